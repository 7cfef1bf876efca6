"""Cases that break other readers of these files: kinds, numbers, links and steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.kineto_files import (
    BASE_NS,
    Event,
    imported,
    kernel,
    launch,
    many_kinds,
    memory,
    op,
    python,
    span,
    trace,
)

OVERFLOWED = 2**64 - 7


# --- tables of kinds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spellings", "table"),
    [
        (("cpu_op", "Operator", "operator"), "operators"),
        (("cuda_runtime", "Runtime", "hip_runtime", "mtia_runtime"), "runtime_calls"),
        (("cuda_driver", "xpu_driver"), "runtime_calls"),
        (("kernel", "Kernel"), "kernels"),
        (("gpu_memcpy", "Memcpy", "gpu_memset", "Memset"), "copies"),
        (("python_function",), "python_functions"),
        (("user_annotation", "gpu_user_annotation"), "annotations"),
        (("cuda_sync",), "synchronisations"),
        (("overhead", "Trace", "unheard_of", ""), "other_events"),
    ],
)
def test_all_spellings_of_a_category(spellings: tuple[str, ...], table: str) -> None:
    events = [span(name, name, 10_000 * n, 100) for n, name in enumerate(spellings)]
    assert imported(trace(*events)).names(table) == list(spellings), (
        f"{table} lacks a spelling: if its kind has a new table in schema/event_kinds.py, "
        f"move it to that table in {__file__}"
    )


def test_waits_for_device_work() -> None:
    """Every column is that of the file; a row of a stream that holds waits is no thread."""
    events = many_kinds()
    tables = imported(trace(*events))
    recorded = [event for event in events if event.get("cat") == "cuda_sync"]
    columns = {
        "wait_on_stream": "waited_stream",
        "wait_on_cuda_event_record_corr_id": "record_correlation",
        "wait_on_cuda_event_id": "event",
        "stream": "stream",
        "correlation": "correlation",
        "device": "device",
    }
    rows = [row for _, row in sorted(tables.by_id("synchronisations").items())]
    assert len(rows) == len(recorded) == 3
    for row, event in zip(rows, recorded, strict=True):
        assert row["name"] == event["args"]["cuda_sync_kind"]
        assert row["duration_ns"] == 7
        for key, column in columns.items():
            value = event["args"].get(key, -1)
            assert row[column] == (None if value == -1 else value), (event, key)
    kinds = {(row["pid"], row["tid"]): row["kind"] for row in tables.rows("tracks")}
    assert kinds["0", "7"] == "device"
    assert kinds["0", "-1"] == "other"


def test_a_stream_does_not_make_device_work() -> None:
    tables = imported(trace(op("triton", 0, 10, {"stream": 7, "device": 0, "correlation": 3})))
    assert tables.names("operators") == ["triton"]
    assert not tables.rows("kernels")
    assert tables.one("tracks")["kind"] == "host"


def test_work_that_cannot_last_as_long() -> None:
    """Of a work of 90 us beyond the next one, of one that starts 20 us before its launch, and of
    one that hardware lets start early."""
    times = [(0, 100), (10, 5), (40, 5), (44, 3), (60, 10)]
    events = [kernel(1000 * at, 1000 * length, n) for n, (at, length) in enumerate(times, 1)]
    launches = [
        launch(1000 * (at + (20 if n == 3 else -1)), 500, n) for n, (at, _) in enumerate(times, 1)
    ]
    tables = imported(trace(*events, *launches))
    durations = [row["duration_ns"] for row in tables.rows("kernels")]
    assert durations == [10_000, 5_000, 5_000, 3_000, 10_000]
    overflow, early = tables.quality["overflow"], tables.quality["early_device"]
    assert (overflow["count"], overflow["of_count"], overflow["worst_ns"]) == (1, 5, 90_000)
    assert (early["count"], early["of_count"], early["worst_ns"]) == (1, 5, 20_000)
    assert tables.quality["same_stream_overlap"]["count"] == 1


def test_operators_of_a_file_without_categories() -> None:
    """As `export_chrome_trace` of the events of torch.autograd.profiler writes them."""
    fields = {"pid": "CPU functions", "tid": 1, "args": {}}
    marked = {"ph": "X", "name": "aten::mm", "ts": 3.5, "dur": 2.25} | fields
    arrow = {"ph": "s", "name": "aten::mm", "ts": 3.5, "id": 1, "cat": "cpu_to_cuda"} | fields
    elsewhere = marked | {"pid": 1}
    tables = imported(json.dumps([marked, arrow, elsewhere]).encode())
    assert [(row["name"], row["duration_ns"]) for row in tables.rows("operators")] == [
        ("aten::mm", 2250)
    ]
    assert tables.names("other_events") == ["aten::mm"]


def test_the_shadow_of_a_step_is_not_a_step() -> None:
    marks = [
        span("user_annotation", "ProfilerStep#1", 0, 5_000),
        span("gpu_user_annotation", "ProfilerStep#1", 1_000, 9_000, pid=0, tid=7),
    ]
    tables = imported(trace(*marks))
    assert [row["on_device"] for row in tables.rows("annotations")] == [0, 1]
    assert "duplicate_step" not in tables.quality
    marks.append(span("user_annotation", "ProfilerStep#1", 6_000, 5_000))
    assert imported(trace(*marks)).quality["duplicate_step"]["count"] == 1


def test_marks_and_asynchronous_events_are_kept() -> None:
    common = {"pid": 10, "tid": 1, "ts": 5}
    events: list[Event] = [
        {"ph": "i", "name": "Iteration Start: PyTorch Profiler", "s": "g", **common},
        {"ph": "b", "cat": "async", "name": "fetch", "id": 1, **common},
        {"ph": "e", "cat": "async", "name": "fetch", "id": 1, **common},
        {"ph": "R", "name": "mark", **common},
    ]
    tables = imported(trace(op("a", 0, 9_000), *events))
    rows = tables.by_id("other_events")
    assert [rows[n]["phase"] for n in sorted(rows)] == ["i", "b", "e", "R"]
    assert [rows[n]["duration_ns"] for n in sorted(rows)] == [None] * 4


def test_counters() -> None:
    def counter(at: int, args: object) -> Event:
        return {"ph": "C", "name": "queue", "pid": 1, "tid": 2, "ts": at, "args": args}

    odd = [counter(3, [1]), counter(4, "text"), counter(5, {"a": "b"}), counter(6, None)]
    tables = imported(trace(counter(1, {"a": 1, "b": 2.5}), counter(2, {"a": -3}), *odd))
    rows = [(r["t_ns"] - BASE_NS, r["series"], r["value"]) for r in tables.rows("counters")]
    assert rows == [(1_000, "a", 1.0), (1_000, "b", 2.5), (2_000, "a", -3.0)]


@pytest.mark.parametrize("args", [None, [1, 2], "text", {}, {"device": None}])
def test_work_that_states_no_device_is_of_that_of_its_stream(args: Any) -> None:
    """Else of its process, if that has other work; a kernel alone states no device."""
    events = [kernel(0, 100, None, device=3), kernel(200, 100, None, name="odd", device=3)]
    events[1]["args"] = args
    elsewhere = span("gpu_memset", "odd", 400, 100, pid=3, tid=9, args=args)
    tables = imported(trace(*events, elsewhere, op("aten::mm", 0, 900)))
    rows = [*tables.rows("kernels"), *tables.rows("copies")]
    assert [row["device"] for row in rows] == [3, 3, 3]
    assert imported(trace(events[1])).one("kernels")["device"] == -1


# --- begin and end ---------------------------------------------------------------------------


def mark(phase: str, at: int, name: str | None = None, **more: Any) -> Event:
    name_member = {} if name is None else {"name": name}
    fixed = {"ph": phase, "cat": "cpu_op", "pid": 10, "tid": 1, "ts": at}
    return {**fixed, **name_member, **more}


def test_begins_and_ends_are_ranges() -> None:
    events = [
        mark("B", 1, "outer", args={"External id": 3}),
        mark("B", 2, "inner", args={"x": 1, "y": 1}),
        launch(2_500, 10, 5, external=3),
        mark("B", 2, "elsewhere", tid=2),
        mark("E", 3, args={"x": 2}),
        mark("E", 4, "outer"),
        mark("E", 9, "elsewhere", tid=2),
    ]
    for order in (events, events[::-1]):
        rows = {r["name"]: r for r in imported(trace(*order)).rows("operators")}
        lengths = {name: row["duration_ns"] for name, row in rows.items()}
        assert lengths == {"outer": 3_000, "inner": 1_000, "elsewhere": 7_000}
        assert rows["inner"]["parent"] == rows["outer"]["id"]
        assert json.loads(rows["inner"]["args"]) == {"x": 2, "y": 1}
        assert rows["outer"]["runtime_ns"] == 10


def test_begins_and_ends_without_partner_are_kept() -> None:
    events = [
        mark("E", 1, "early"),
        mark("B", 2, "outer"),
        mark("B", 3, "never ended", args={"a": 1}),
        mark("E", 5, "outer"),
        mark("E", 6, "never started"),
        mark("E", 7),
    ]
    tables = imported(trace(*events))
    assert [(r["name"], r["duration_ns"]) for r in tables.rows("operators")] == [("outer", 3_000)]
    rows = tables.by_id("other_events")
    assert {n: (rows[n]["phase"], rows[n]["name"]) for n in rows} == {
        0: ("E", "early"),
        2: ("B", "never ended"),
        4: ("E", "never started"),
        5: ("E", ""),
    }
    assert tables.one("traces")["event_count"] == len(events)
    issue = tables.quality["unpaired"]
    assert (issue["count"], issue["of_count"]) == (4, 6)
    assert issue["detail"] == "operator: 4 of 5"


Range = tuple[int, int, int, bool]
"""Depth, start, end, and whether the end is in the file."""


@st.composite
def nested_ranges(draw: st.DrawFn, start: int = 0, depth: int = 0, end: int = 24) -> list[Range]:
    """Draw ranges inside each other and beside each other, in the order in which they end."""
    ranges: list[Range] = []
    while start < end and depth < 4 and draw(st.booleans()):
        first = draw(st.integers(start, end - 1))
        last = start = draw(st.integers(first + 1, end))
        ranges += draw(nested_ranges(first, depth + 1, last))
        ranges.append((depth, first, last, draw(st.integers(0, 4)) > 0))
    return ranges


@given(nested_ranges())
def test_named_ends_close_their_ranges_whatever_is_lost(ranges: list[Range]) -> None:
    """Recorders sort by time alone: events of equal times are in any order of nesting."""
    marks = [
        mark(phase, at, f"depth {depth}")
        for depth, first, last, has_end in ranges
        for phase, at in (("B", first), *([("E", last)] if has_end else []))
    ]
    tables = imported(trace(op("other", 100, 1), *sorted(marks, key=lambda event: event["ts"])))
    rows = [row for row in tables.rows("operators") if row["name"] != "other"]
    start = BASE_NS
    assert sorted(
        (row["name"], row["start_ns"] - start, row["duration_ns"]) for row in rows
    ) == sorted(
        (f"depth {depth}", 1_000 * first, 1_000 * (last - first))
        for depth, first, last, has_end in ranges
        if has_end
    )
    lost = sum(not has_end for *_, has_end in ranges)
    assert tables.quality.get("unpaired", {"count": 0})["count"] == lost


# --- impossible events -----------------------------------------------------------------------


def ordinary() -> list[Event]:
    return [
        op("a", 1_000_000_000_000_000, 9_000),
        launch(1_000_000_000_001_000, 500, 3),
        kernel(1_000_000_000_002_000, 4_000, 3),
    ]


@pytest.mark.parametrize("duration", [OVERFLOWED, -1_000, -(2**63), 10**19, 200 * 86_400 * 10**9])
def test_impossible_durations(duration: int) -> None:
    odd = kernel(1_000_000_000_007_000, duration, 3, name="odd")
    tables = imported(trace(*ordinary(), odd))
    assert tables.names("kernels") == ["gemm"]
    assert tables.one("other_events")["name"] == "odd"
    assert tables.quality["impossible_duration"]["count"] == 1
    assert tables.one("operators")["launched_ns"] == 4_000
    assert "same_stream_overlap" not in tables.quality
    assert tables.one("traces")["end_ns"] - BASE_NS == 1_000_000_000_009_000


@pytest.mark.parametrize("start", [0, -5_000, 2**62, 1_000_000_000_000_000 + 10**15])
@pytest.mark.parametrize("category", ["kernel", "cpu_op", "cuda_runtime", "user_annotation"])
def test_impossible_starts(category: str, start: int) -> None:
    odd = span(category, "odd", start, 100, pid=0, tid=7, args={"correlation": 3})
    carried = kernel(1_000_000_000_001_500, 5, None, name="carried")
    tables = imported(trace(odd, *ordinary(), carried))
    assert tables.one("other_events")["name"] == "odd"
    assert tables.quality["impossible_time"]["count"] == 1
    row = tables.one("traces")
    assert (row["start_ns"] - BASE_NS, row["end_ns"] - BASE_NS) == (
        1_000_000_000_000_000,
        1_000_000_000_009_000,
    )
    by_name = {r["name"]: r for r in tables.rows("kernels")}
    calls = tables.by_id("runtime_calls")
    assert by_name["gemm"]["launch"] in calls
    assert by_name["carried"]["carry_over"] == 1


def test_an_impossible_launch_is_ignored() -> None:
    events = [*ordinary()[:2], launch(0, 5, 8), kernel(1_000_000_000_003_000, 5, 8)]
    assert imported(trace(*events)).one("kernels")["launch"] is None


# --- launches --------------------------------------------------------------------------------


def test_kernels_launched_through_the_driver() -> None:
    events = [op("triton", 0, 9_000), launch(1_000, 5, 3, category="cuda_driver"), kernel(5, 5, 3)]
    tables = imported(trace(*events))
    assert tables.one("kernels")["operator"] == 0
    assert tables.one("runtime_calls")["driver"] == 1


@pytest.mark.parametrize("correlation", [0, None, -1])
def test_work_without_a_number(correlation: int | None) -> None:
    tables = imported(trace(launch(0, 5, correlation), kernel(100, 5, correlation)))
    assert tables.one("kernels")["launch"] is None
    assert tables.quality["zero_correlation"]["count"] == 1
    assert tables.quality["unlinked_device"]["count"] == 1


def test_a_correlation_that_is_used_twice() -> None:
    events = [launch(0, 5, 3), kernel(100, 50, 3), launch(10_000, 5, 3), kernel(10_100, 50, 3)]
    tables = imported(trace(*events))
    kernels = tables.by_id("kernels")
    assert (kernels[1]["launch"], kernels[3]["launch"]) == (0, 2)
    assert tables.quality["duplicate_correlation"]["count"] >= 1


def test_one_launch_of_many_kernels() -> None:
    events = [op("replay", 0, 100), launch(10, 50, 3, name="cudaGraphLaunch")]
    events += [kernel(1_000 * n, 900, 3, {"graph id": 1, "graph node id": n}) for n in range(1, 9)]
    tables = imported(trace(*events))
    assert {row["launch"] for row in tables.rows("kernels")} == {1}
    assert tables.one("operators")["launched_ns"] == 8 * 900


def test_work_of_one_stream_may_overlap() -> None:
    events = [kernel(0, 1_000, None), kernel(900, 500, None), kernel(1_300, 10, None)]
    events += [kernel(0, 5_000, None, stream=8)]
    overlap = imported(trace(*events)).quality["same_stream_overlap"]
    assert (overlap["count"], overlap["worst_ns"], overlap["of_count"]) == (2, 100, 4)


def test_work_launched_before_the_window() -> None:
    events = [
        kernel(0, 100, 900, name="carried"),
        kernel(200, 100, None, name="carried too"),
        launch(250, 5, 3),
        kernel(400, 100, 3, name="linked"),
        kernel(600, 100, 901, name="lost launch"),
        kernel(0, 100, None, stream=8, name="a stream without launches"),
    ]
    tables = imported(trace(*events))
    carried = {row["name"] for row in tables.rows("kernels") if row["carry_over"]}
    assert carried == {"carried", "carried too"}
    assert tables.quality["carry_over"]["count"] == 2
    assert tables.quality["unlinked_device"]["count"] == 4


def test_a_call_without_a_known_external_id_gets_the_enclosing_operator() -> None:
    events = [op("a", 0, 9_000, external=4), launch(100, 5, 3, external=77), launch(50_000, 5, 4)]
    tables = imported(trace(*events))
    calls = tables.by_id("runtime_calls")
    assert (calls[1]["operator"], calls[2]["operator"]) == (0, None)
    assert tables.quality["unmatched_external_id"]["count"] == 1


# --- trees -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "parent"), [(0, 0), (1, 0), (1_000, 0), (1_001, None), (50_000, None)]
)
def test_a_range_that_ends_after_the_enclosing_one(late: int, parent: int | None) -> None:
    """Up to a microsecond it stays a child; clocks are read at different moments."""
    tables = imported(trace(op("outer", 0, 5_000), op("inner", 1_000, 4_000 + late)))
    row = tables.by_id("operators")[1]
    assert (row["parent"], row["duration_ns"]) == (parent, 4_000 + late)
    overhang = tables.quality.get("overhang", {"count": 0, "worst_ns": 0})
    assert (overhang["count"], overhang["worst_ns"]) == (int(late > 0), late)


def test_python_functions_that_name_each_other() -> None:
    """A cycle of callers must not be followed forever."""
    events = [python("a", 0, 900, 1, 2), python("b", 0, 900, 2, 1), python("c", 10, 50, 3, 3)]
    rows = imported(trace(*events)).by_id("python_functions")
    assert len(rows) == 3
    assert all(row["parent"] != n for n, row in rows.items())


def test_more_events_than_fit_16_bits() -> None:
    events = [op("a", 10 * n, 10) for n in range(40_000)]
    tables = imported(trace(*events))
    assert sorted(tables.by_id("operators")) == list(range(40_000))


def test_deep_recursion() -> None:
    events = [op("f", n, 2 * (5_000 - n)) for n in range(5_000)]
    rows = imported(trace(*events)).by_id("operators")
    assert [rows[n]["depth"] for n in range(5_000)] == list(range(5_000))


def test_memory_belongs_to_the_enclosing_operator() -> None:
    events = [op("aten::empty", 0, 100), memory(50, 512), memory(500, -512), memory(50, 8, tid=2)]
    rows = imported(trace(*events)).by_id("memory_events")
    assert [(rows[n]["size_bytes"], rows[n]["operator"]) for n in (1, 2, 3)] == [
        (512, 0), (-512, None), (8, None),
    ]  # fmt: skip


# --- several traces in one -------------------------------------------------------------------


@pytest.mark.parametrize("part", [1.0, 0.3])
def test_events_that_were_written_twice_count_once(part: float) -> None:
    """A recorder that flushes its buffer twice: the tables are those of each event once."""
    events = [event for event in many_kinds() if event["ph"] in {"X", "i", "M"}]
    more = events[: round(part * len(events))]
    once, twice = imported(trace(*events)), imported(trace(*events, *more))
    assert twice.quality["copied_event"]["of_count"] == len(events) + len(more)
    assert twice.quality["copied_event"]["count"] == sum(event["ph"] != "M" for event in more)
    assert "duplicate_correlation" not in twice.quality
    for table in (
        "operators",
        "kernels",
        "copies",
        "runtime_calls",
        "annotations",
        "python_functions",
        "memory_events",
        "other_events",
    ):
        assert twice.rows(table) == once.rows(table), table
    assert twice.levels() == once.levels()


def test_events_that_differ_in_a_number_are_several() -> None:
    events = [op("a", 0, 10, external=1), op("a", 0, 10, external=2), op("a", 0, 10, {"x": 1})]
    tables = imported(trace(*events))
    assert len(tables.rows("operators")) == 3
    assert "copied_event" not in tables.quality


@pytest.mark.parametrize("first", [1, 100])
def test_processes_of_one_file_are_not_mixed(first: int) -> None:
    """Work whose launch may be of either process has none; other work has its own."""
    events = [
        event
        for rank, (pid, number) in enumerate(((10, 1), (20, first)))
        for n in range(5)
        for event in (
            op("aten::mm", 1_000 * n + rank, 500, external=n + 1, pid=pid),
            launch(1_000 * n + 100 + rank, 10, number + n, external=n + 1, pid=pid),
            kernel(1_000 * n + 300, 400, number + n, device=rank),
        )
    ]
    tables = imported(trace(*events))
    assert (tables.quality["several_processes"]["count"], first) == (2, first)
    assert tables.quality["several_processes"]["detail"] == "10, 20"
    assert "early_device" not in tables.quality
    calls = tables.by_id("runtime_calls")
    tracks = {row["track"]: row["pid"] for row in tables.rows("tracks")}
    launched_by = {
        (tracks[row["track"]], row["launch"] and tracks[calls[row["launch"]]["track"]])
        for row in tables.rows("kernels")
    }
    assert launched_by == ({("0", None), ("1", None)} if first == 1 else {("0", "10"), ("1", "20")})
