"""Kinds of activity and of copies, waits for copies, and annotations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from stepscope.analysis import HostCalls, find_copy_waits
from stepscope.analysis.devices.device_work import (
    is_synchronization,
    summarize_activities,
    summarize_copies,
)
from stepscope.analysis.operators.annotation_table import (
    BUCKETS,
    MAX_BUCKETS,
    build_annotation_histograms,
    choose_round_width,
    summarize_annotations,
)
from stepscope.store import DictColumn
from tests.support.drawn_operators import numbers, strings


def copies(*rows: tuple[str, int, int]) -> dict[str, Any]:
    names, durations, sizes = zip(*rows, strict=True) if rows else ((), (), ())
    kinds = ["memset" if name.startswith("Memset") else "memcpy" for name in names]
    return {
        "device": np.zeros(len(rows), dtype=np.int64),
        "kind": DictColumn.encode(kinds),
        "name": DictColumn.encode(names),
        "duration_ns": np.array(durations, dtype=np.int64),
        "bytes": np.array(sizes, dtype=np.int64),
    }


def named(*rows: tuple[str, int]) -> dict[str, Any]:
    return {
        "name": DictColumn.encode(name for name, _ in rows),
        "duration_ns": np.array([duration for _, duration in rows], dtype=np.int64),
    }


def test_activities() -> None:
    activities = summarize_activities(
        named(("gemm", 10), ("ncclKernel_AllReduce_RING_LL_Sum_float", 7), ("add", 5)),
        copies(("Memcpy HtoD (Pageable -> Device)", 3, 100), ("Memset (Device)", 2, 8)),
        named(("cudaLaunchKernel", 50), ("cudaStreamSynchronize", 20), ("hipEventSynchronize", 1)),
    )
    assert [(one.kind, one.count, one.total_ns) for one in activities] == [
        ("compute", 2, 15),
        ("communication", 1, 7),
        ("memcpy", 1, 3),
        ("memset", 1, 2),
        ("synchronization", 2, 21),
    ]
    assert not is_synchronization("cudaStreamWaitEvent")  # the device waits, not the host


def test_copies_by_direction_and_memory() -> None:
    kinds = summarize_copies(
        copies(
            ("Memcpy HtoD (Pageable -> Device)", 100, 1000),
            ("Memcpy HtoD (Pinned -> Device)", 10, 1000),
            ("Memcpy HtoD (Pinned -> Device)", 10, 500),
            ("Memcpy HtoD (Pinned -> Device)", 10, -1),  # of unknown size
            ("Memset (Device)", 5, 64),
        )
    )
    assert [
        (k.direction, k.source, k.target, k.count, k.total_ns, k.moved_bytes) for k in kinds
    ] == [
        ("HtoD", "pageable", "device", 1, 100, 1000),
        ("HtoD", "pinned", "device", 3, 30, 1500),
        ("memset", None, None, 1, 5, 64),
    ]
    # 1500 bytes in 20 ns are 75 bytes a nanosecond, which is 75 GB/s.
    assert kinds[1].achieved_bytes_per_s == pytest.approx(75e9)


TO_DEVICE = (
    "Memcpy M2D (MEMORY(Unknown) -> DEVICE)", "Memcpy H2D (HOST -> DEVICE)", "h2d", "HtoD",
    "Memcpy S2D (SHARED -> DEVICE)", "MEMCPY_HtoD", "[CUDA memcpy HtoD]", "MEMCPYHtoD", "MemcpyH2D",
    "MEMORY_COPY_HOST_TO_DEVICE", "host to device", "Memcpy (Pageable -> Device)", "HostToDevice",
)  # fmt: skip
"""Spellings of one copy: CUDA, HIP, ROCm's profilers, Intel's, TensorFlow's, Paddle's, Ascend's."""


@pytest.mark.seed("SMP-22")
@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Memcpy DtoH (Device -> Pinned)", "DtoH"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
        ("Memcpy PtoP (Device -> Device)", "PtoP"),
        ("Memcpy HtoH (Host -> Host)", "HtoH"),
        ("CopyHostToDevice", "HtoD"),
        ("CopyDeviceToDevice", "DtoD"),
        ("Memset (Unknown)", "memset"),
        *((f"Memcpy {ends}", "HtoD") for ends in ("M2D", "H2D", "S2D", "H2S", "M2S", "HtoD")),
        *((f"Memcpy {ends}", "DtoH") for ends in ("D2M", "D2H", "D2S", "S2M", "DtoH")),
        *((f"Memcpy {ends}", "HtoH") for ends in ("M2M", "M2H", "H2M", "H2H")),
        *((name, "HtoD") for name in TO_DEVICE),
        ("Memcpy D2M (DEVICE -> MEMORY(Unknown))", "DtoH"),
        ("Memcpy D2D - P2P", "DtoD"),
        ("Memcpy S2S (SHARED -> SHARED)", "StoS"),
        ("MEMCPY_ASYNC", "MEMCPY_ASYNC"),
        ("hipMemcpyParam2DAsync", "hipMemcpyParam2DAsync"),
        ("something else", "something else"),
    ],
)
def test_directions(name: str, direction: str) -> None:
    (kinds,) = summarize_copies(copies((name, 1, -1)))
    assert kinds.direction == direction
    assert (kinds.moved_bytes, kinds.achieved_bytes_per_s) == (None, None)


def test_no_copies() -> None:
    assert summarize_copies(copies()) == []


CALL = st.tuples(
    st.integers(0, 1),  # thread
    st.integers(1, 9),  # duration
    st.integers(-1, 2),  # operator
    st.booleans(),  # waits
    st.booleans(),  # launches
)
COPY = st.tuples(st.integers(-1, 7), st.integers(0, 60))
Row = tuple[int, int, int, bool, bool]


@given(st.lists(CALL, max_size=8), st.lists(COPY, max_size=5), st.randoms())
def test_waits_are_those_of_a_search(
    rows: list[Row], copies: list[tuple[int, int]], random: object
) -> None:
    """Calls of a thread follow each other, in any order of rows."""
    free = {0: 0, 1: 0}
    timed = []
    for thread, duration, operator, waits, launches in rows:
        timed.append((thread, free[thread], free[thread] + duration, operator, waits, launches))
        free[thread] += duration
    random.shuffle(timed)  # type: ignore[attr-defined]
    columns = np.array([row[:4] for row in timed], dtype=np.int64).reshape(-1, 4).T
    calls = HostCalls(
        track=columns[0],
        start=columns[1],
        end=columns[2],
        operator=columns[3],
        is_wait=np.array([row[4] for row in timed], dtype=np.bool_),
        is_launch=np.array([row[5] for row in timed], dtype=np.bool_),
    )
    start_call = np.array([min(call, len(timed) - 1) for call, _ in copies], dtype=np.int64)
    end = np.array([end for _, end in copies], dtype=np.int64)
    result = find_copy_waits(calls, start_call, end)
    for i, (call, copy_end) in enumerate(zip(start_call.tolist(), end.tolist(), strict=True)):
        is_blocking, following = False, None
        if call >= 0:
            thread, _, call_end, operator, _, _ = timed[call]
            is_blocking = call_end >= copy_end
            later = [
                row
                for row in range(len(timed))
                if timed[row][0] == thread
                and timed[row][1] > timed[call][1]
                and (timed[row][4] or timed[row][5])
            ]
            first = min(later, key=lambda row: timed[row][1], default=None)
            following = first if first is not None and timed[first][4] else None
        lasts_until_end = following is not None and timed[following][2] >= copy_end
        is_own = following is not None and operator >= 0 and timed[following][3] == operator
        assert result.is_waited_for[i] == (is_blocking or lasts_until_end)
        assert result.call[i] == (call if is_blocking else -1)
        assert result.wait[i] == (following if is_own else -1)


def annotations(*rows: tuple[str, int, int]) -> dict[str, Any]:
    """Ranges: name, 1 for a device, duration; each after the one before it."""
    durations = [duration for _, _, duration in rows]
    starts = [sum(durations[:number]) for number in range(len(rows))]
    return {
        "name": strings([name for name, _, _ in rows]),
        "on_device": numbers([on_device for _, on_device, _ in rows]),
        "track": numbers([on_device for _, on_device, _ in rows]),
        "start_ns": numbers(starts),
        "duration_ns": numbers(durations),
    }


STEPS = annotations(
    ("ProfilerStep#1", 0, 100),
    ("ProfilerStep#2", 0, 300),
    ("ProfilerStep#1", 1, 90),
    ("forward", 0, 10),
    ("forward", 0, 20),
    ("forward", 0, 60),
)


def test_every_name_on_host_and_device() -> None:
    assert [
        (r.name, r.on_device, r.count, r.total_ns) for r in summarize_annotations(STEPS).rows
    ] == [
        ("ProfilerStep#*", False, 2, 400),
        ("ProfilerStep#*", True, 1, 90),
        ("forward", False, 3, 90),
    ]
    forward = summarize_annotations(STEPS).rows[2]
    assert (forward.mean_ns, forward.p50_ns, forward.p95_ns, forward.max_ns) == (30, 20, 56, 60)
    assert summarize_annotations(annotations()).rows == []
    top = summarize_annotations(STEPS, top=1)
    assert (len(top.rows), top.row_count) == (1, 3)


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        ([f"step_{n}" for n in range(60)], ["step_*"]),
        ([f"epoch {n}" for n in range(10)], ["epoch *"]),
        ([f"step_{n}" for n in range(9)], [f"step_{n}" for n in range(9)]),
        # Layers come again in every step, and a model may have many.
        ([f"layer_{n}" for n in range(12)] * 2, [f"layer_{n}" for n in range(12)]),
        ([f"conv2d{n}" for n in range(12)], [f"conv2d{n}" for n in range(12)]),
    ],
)
def test_counters_form_one_row(names: list[str], rows: list[str]) -> None:
    drawn = annotations(*((name, on_device, 5) for name in names for on_device in (0, 1)))
    for on_device in (False, True):
        table = summarize_annotations(drawn).rows
        groups = [row for row in table if row.on_device == on_device]
        assert {row.name for row in groups} == set(rows)
        assert sum(row.count for row in groups) == len(names)
        histogram = build_annotation_histograms(drawn, groups[0].name)[int(on_device)]
        assert sum(bucket.count for bucket in histogram.buckets) == groups[0].count


def test_self_times_leave_out_the_ranges_inside_on_the_same_track() -> None:
    drawn = annotations(("step", 0, 100), ("forward", 0, 60), ("loss", 0, 20), ("step", 1, 50))
    drawn["start_ns"] = numbers([0, 10, 20, 5])
    rows = summarize_annotations(drawn).rows
    assert {(row.name, row.on_device): row.self_ns for row in rows} == {
        ("step", False): 100 - 60,
        ("forward", False): 60 - 20,
        ("loss", False): 20,
        ("step", True): 50,
    }


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 99)), min_size=1)
)
def test_quantiles_equal_those_of_each_name(drawn: list[tuple[str, int, int]]) -> None:
    for row in summarize_annotations(annotations(*drawn)).rows:
        durations = [
            d
            for name, drawn_on_device, d in drawn
            if (name, drawn_on_device) == (row.name, row.on_device)
        ]
        assert row.p50_ns == pytest.approx(np.percentile(durations, 50))
        assert row.p95_ns == pytest.approx(np.percentile(durations, 95))


def test_a_histogram() -> None:
    (host,) = build_annotation_histograms(STEPS, "forward", bucket_ns=20)
    assert (host.on_device, host.total_ns) == (False, 90)
    assert [(b.from_ns, b.count) for b in host.buckets] == [(0, 1), (20, 1), (40, 0), (60, 1)]
    assert host.duration_ns is not None
    assert (host.duration_ns.count, host.duration_ns.p50) == (3, 20)


def test_a_pattern_chooses_numbered_names() -> None:
    host, device = build_annotation_histograms(STEPS, "ProfilerStep#*")
    counts = [sum(b.count for b in histogram.buckets) for histogram in (host, device)]
    assert counts == [2, 1]
    (host,) = build_annotation_histograms(STEPS, "ProfilerStep#2")
    assert host.duration_ns is not None
    assert (host.duration_ns.count, host.duration_ns.maximum) == (1, 300)
    assert build_annotation_histograms(STEPS, "backward") == []


def test_names_with_brackets_are_found_as_they_are() -> None:
    name = "[pl][profile]run_training_batch"
    assert build_annotation_histograms(annotations((name, 0, 5)), name)[0].total_ns == 5


@pytest.mark.parametrize(
    ("extent", "width"), [(0, 1), (19, 1), (40, 2), (100, 5), (101, 10), (2_000, 100), (2_100, 200)]
)
def test_round_widths(extent: int, width: int) -> None:
    assert choose_round_width(extent) == width


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=50), st.none() | st.integers(1, 10**6))
@example([0, 39], None)
def test_every_range_is_in_its_bucket(durations: list[int], width: int | None) -> None:
    columns = annotations(*(("a", 0, duration) for duration in durations))
    (histogram,) = build_annotation_histograms(columns, "a", bucket_ns=width)
    buckets = histogram.buckets
    assert sum(bucket.count for bucket in buckets) == len(durations)
    assert len(buckets) <= MAX_BUCKETS + 1
    assert width is not None or len(buckets) <= BUCKETS + 2
    edges = buckets[0].from_ns + histogram.bucket_ns * np.arange(len(buckets) + 1)
    assert np.histogram(durations, edges)[0].sum() == len(durations)
    first = sum(edges[0] <= duration < edges[1] for duration in durations)
    assert buckets[0].count == first
