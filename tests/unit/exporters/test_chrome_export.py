"""Export of traces as Chrome files."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from stepscope.errors import IncompleteExportError
from stepscope.exporters import chrome, chrome_events, export_chrome
from stepscope.importers.kineto.arguments import kind_of
from stepscope.run.model.traces import load_traces
from stepscope.schema import EVENT_KINDS
from stepscope.store import DictColumn, RunWriter, open_run
from tests.support import kineto_files
from tests.support.chrome_files import (
    ChromeFile,
    comparable_tables,
    differences,
    export,
    import_into,
)
from tests.support.kineto_files import (
    BASE_NS,
    MANY_KINDS_HEADER,
    kernel,
    many_kinds,
    memory,
    op,
    python,
    span,
    trace,
    training,
)


def recorded(tmp_path: Path, content: bytes, name: str = "trace.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return import_into(tmp_path / f"run of {name}", path)


def test_every_kind_makes_the_round_trip() -> None:
    kinds = {kind_of(e["ph"], e.get("cat", ""), e["name"]) for e in many_kinds()}
    missing = [kind.name for kind in EVENT_KINDS if kind not in kinds]
    file = kineto_files.__file__
    assert not missing, f"draw an event of {', '.join(missing)} in many_kinds() of {file}"


@pytest.mark.parametrize("base", [BASE_NS, None])
def test_round_trip_of_every_kind(tmp_path: Path, base: int | None) -> None:
    run = recorded(tmp_path, trace(*many_kinds(), base=base, **MANY_KINDS_HEADER))
    written = export(run, tmp_path / "exported" / "trace.json")
    original, exported = ChromeFile(tmp_path / "trace.json"), ChromeFile(written)
    assert not list(differences(original, exported))
    assert exported.launch_arrows() == original.expected_launch_arrows()
    assert exported.other_arrows() == original.other_arrows()
    assert exported.track_names() == original.track_names()
    assert {key: exported.header[key] for key in MANY_KINDS_HEADER} == MANY_KINDS_HEADER
    again = import_into(tmp_path / "again", written)
    assert comparable_tables(again) == comparable_tables(run)


def test_round_trip_of_impossible_times(tmp_path: Path) -> None:
    events = [
        *training(),
        {**op("no time", 0, 5), "ts": "soon"},
        {"ph": "X", "cat": "cpu_op", "name": "no duration", "pid": 10, "tid": 1, "ts": 1},
        op("before everything", -BASE_NS, 5),
        kernel(7_000, -3, 8),
        {**memory(0, 512), "ts": -10e15},
    ]
    run = recorded(tmp_path, trace(*events))
    written = export(run, tmp_path / "exported" / "trace.json")
    again = import_into(tmp_path / "again", written)
    assert comparable_tables(again)["other_events"] == comparable_tables(run)["other_events"]
    by_name = {event["name"]: event for event in ChromeFile(written).events}
    assert "ts" not in by_name["no time"]
    assert "dur" not in by_name["no duration"]
    assert ChromeFile(written).time(by_name["before everything"]) == 0


def test_round_trip_of_a_bare_array(tmp_path: Path) -> None:
    events = json.loads(trace(*many_kinds(), base=None))["traceEvents"]
    run = recorded(tmp_path, json.dumps(events).encode())
    written = export(run, tmp_path / "exported" / "trace.json")
    assert not list(differences(ChromeFile(tmp_path / "trace.json"), ChromeFile(written)))
    again = import_into(tmp_path / "again", written)
    assert comparable_tables(again) == comparable_tables(run)


def test_old_spellings_become_those_of_today(tmp_path: Path) -> None:
    called, ran = {"correlation": 4, "external id": 3}, {"stream": 7, "correlation": 4}
    events = [
        span("Operator", "aten::mm", 0, 900, tid="1", args={"External id": 3}),
        span("Runtime", "cudaLaunchKernel", 100, 10, tid="1", args=called),
        span("Kernel", "gemm", 200, 10, pid=0, tid="stream 7", args=ran),
    ]
    run = recorded(tmp_path, trace(*events))
    exported = ChromeFile(export(run, tmp_path / "new.json"))
    by_category = {event["cat"]: event for event in exported.events if event["ph"] == "X"}
    assert set(by_category) == {"cpu_op", "cuda_runtime", "kernel"}
    number = by_category["cpu_op"]["args"]["External id"]
    assert number > 0
    assert by_category["cuda_runtime"]["args"]["External id"] == number
    assert by_category["kernel"]["args"]["External id"] == number
    assert by_category["kernel"]["args"]["stream"] == 7


def test_times_of_a_file_without_base_are_exact_as_doubles(tmp_path: Path) -> None:
    start = BASE_NS + 123_456_789
    run = recorded(tmp_path, trace(op("a", start, 1), op("b", start + 1, 1), base=None))
    content = json.loads(export(run, tmp_path / "new.json").read_text())
    base = content["baseTimeNanoseconds"]
    times = [
        base + round(event["ts"] * 1000) for event in content["traceEvents"] if event["ph"] == "X"
    ]
    assert times == [start, start + 1]


def test_the_rank_is_found_line_by_line(tmp_path: Path) -> None:
    run = recorded(tmp_path, trace(*training(), **MANY_KINDS_HEADER))
    lines = export(run, tmp_path / "new.json").read_text().splitlines()
    assert sum(bool(re.search(r'"rank":\s+1\b', line)) for line in lines) == 1


def test_a_name_in_gz_is_compressed(tmp_path: Path) -> None:
    run = recorded(tmp_path, trace(*training()))
    plain = export(run, tmp_path / "new.json").read_bytes()
    assert gzip.decompress(export(run, tmp_path / "new.json.gz").read_bytes()) == plain


def test_slices_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path, trace(*many_kinds(), **MANY_KINDS_HEADER))
    complete = export(run, tmp_path / "whole.json").read_text()
    monkeypatch.setattr("stepscope.exporters.chrome.SLICE_EVENTS", 3)
    assert export(run, tmp_path / "sliced.json").read_text() == complete


def test_ranges_are_operators_for_tensorboard(tmp_path: Path) -> None:
    """torch_tb_profiler 0.4.3 leaves out every `user_annotation` except steps and collectives."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [*training(), span("user_annotation", name, 100, 8_000, args={"External id": 9})]
    run = recorded(tmp_path, trace(*events))
    plain = ChromeFile(export(run, tmp_path / "plain.json")).events
    adapted = ChromeFile(export(run, tmp_path / "adapted.json", "--for", "tensorboard")).events
    assert [e["cat"] for e in plain if e["name"] == name] == ["user_annotation"]
    changed = [e for e in adapted if e not in plain]
    assert {e["name"] for e in changed} == {name, "ProfilerStep#3"}
    assert {e["cat"] for e in changed} == {"cpu_op"}
    assert [e | {"cat": "user_annotation"} for e in changed] == [
        e for e in plain if e not in adapted
    ]


def test_merged_recordings_are_processes_of_their_own(tmp_path: Path) -> None:
    for rank in (0, 1):
        header = {"distributedInfo": {"rank": rank}}
        content = trace(*training(), base=BASE_NS + rank * 1_000_000, **header)
        (tmp_path / f"rank{rank}.json").write_bytes(content)
    run = import_into(tmp_path / "run", *(tmp_path / f"rank{rank}.json" for rank in (0, 1)))
    merged = ChromeFile(export(run, tmp_path / "merged.json", "--merge"))
    names = merged.track_names()
    assert {name for (key, _), name in names.items() if key == "process_name"} >= {
        "rank 0: python",
        "rank 1: python",
    }
    steps = merged.by_category["X", "user_annotation"]
    assert [merged.time(step) for step in steps] == [BASE_NS, BASE_NS + 1_000_000]
    assert len({step["pid"] for step in steps}) == 2
    starts = [event["id"] for event in merged.events if event["ph"] == "s"]
    assert len(starts) == len(set(starts)) == 4


def spans(run: Path, process: str) -> None:
    """Store spans of stepscope: a phase, a nested one that others overlap, a mark, a distant one.

    Their times are relative to the trace.
    """
    rows = [
        ("forward", "Net", 100, 5_100, 0, None),
        ("h2d", "h2d", 200, 9_200, 1, '{"shape":"big"}'),
        ("step", "step", 6_000, 6_000, 0, None),
        ("optimizer", "Adam", 8_000, None, 0, None),
        ("backward", "backward", 10**12, 10**12 + 1, 0, None),
    ]
    kind, name, start, end, flags, labels = zip(*rows, strict=True)
    count = len(rows)
    with RunWriter(run, "node") as writer:
        writer.append(
            "spans",
            {
                **{
                    column: DictColumn.encode(values)
                    for column, values in {
                        "node": ["node"] * count,
                        "process": [process] * count,
                        "log": ["1c"] * count,
                        "kind": kind,
                        "name": name,
                        "labels": labels,
                    }.items()
                },
                "seq": np.arange(count),
                "start_ns": np.array(start) + BASE_NS,
                "end_ns": np.ma.MaskedArray(
                    [BASE_NS + (time or 0) for time in end], mask=[time is None for time in end]
                ),
                "depth": np.zeros(count, dtype=np.int64),
                "flags": np.array(flags),
                "value": np.zeros(count, dtype=np.int64),
            },
        )


def test_spans_of_the_same_process_are_drawn_beside_it(tmp_path: Path) -> None:
    from stepscope.importers.kineto import Identity, import_trace

    run = recorded(tmp_path, trace(*training()), "other.json")
    path = tmp_path / "window.json"
    path.write_bytes(trace(*training()))
    process = "10-5-1"
    with RunWriter(run, "node") as writer:
        import_trace(path, writer, Identity(name="window", process=process), scratch=tmp_path)
    spans(run, process)

    written = export(run, tmp_path / "with.json", "--trace", "window")
    naming_events = [
        e for e in ChromeFile(written).events if "stepscope" in json.dumps(e, default=str)
    ]
    (naming,) = naming_events
    assert naming["args"] == {"name": "stepscope: thread 1"}
    ours = [
        e for e in ChromeFile(written).events if e.get("tid") == naming["tid"] and e["ph"] != "M"
    ]
    assert {e["pid"] for e in ours} == {10}
    drawn = {(e["ph"], e["name"]): e for e in ours}
    assert set(drawn) == {
        ("X", "forward: Net"),
        ("b", "h2d"),
        ("e", "h2d"),
        ("i", "step"),
        ("X", "optimizer: Adam"),
    }
    file = ChromeFile(written)
    assert file.time(drawn["X", "forward: Net"]) == BASE_NS + 100
    assert drawn["X", "forward: Net"]["dur"] * 1000 == 5_000
    assert file.time(drawn["e", "h2d"]) == BASE_NS + 9_200
    assert drawn["b", "h2d"]["id"] == drawn["e", "h2d"]["id"]
    assert drawn["b", "h2d"]["args"]["labels"] == {"shape": "big"}
    (window,) = [
        candidate for candidate in load_traces(open_run(run)) if candidate.name == "window"
    ]
    assert drawn["X", "optimizer: Adam"]["dur"] * 1000 == window.end_ns - BASE_NS - 8_000

    without = export(run, tmp_path / "without.json", "--trace", "window", "--no-spans")
    assert not any("stepscope" in json.dumps(e, default=str) for e in ChromeFile(without).events)


def test_the_comparison_sees_every_change(tmp_path: Path) -> None:
    written = export(recorded(tmp_path, trace(*many_kinds())), tmp_path / "new.json")
    original, text = ChromeFile(tmp_path / "trace.json"), written.read_text()
    for old, new in (
        ('"blocks per SM":0.075758', '"blocks per SM":0.075759'),
        ('"dur":1.234', '"dur":1.235'),
        ('"tid":7,"ts":17.001,"dur"', '"tid":7,"ts":17.002,"dur"'),
        ('"Seq":12,', ""),
        ('"name":"shy"', '"name":"bold"'),
        ('"External id":7,"correlation":7', '"External id":6,"correlation":7'),
        ('"Python parent id":4', '"Python parent id":5'),
        ('"odd":{"a":[]}', '"odd":{"a":[1]}'),
    ):
        assert old in text
        written.write_text(text.replace(old, new, 1))
        assert list(differences(original, ChromeFile(written))), old


def test_a_failure_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = recorded(tmp_path, trace(*training()))
    existing = tmp_path / "out" / "kept.json"
    export(run, existing)
    before = existing.read_bytes()
    monkeypatch.setattr("stepscope.exporters.chrome.events_between", lambda **_: "SELECT nothing")
    with pytest.raises(Exception, match="nothing"):
        export_chrome(load_traces(open_run(run)), existing)
    assert existing.read_bytes() == before
    assert [file.name for file in existing.parent.iterdir()] == ["kept.json"]


def test_an_export_without_a_kind_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded(tmp_path, trace(*many_kinds()))
    kinds = [kind for kind in EVENT_KINDS if kind.table.name != "kernels"]
    monkeypatch.setattr("stepscope.schema.EVENT_KINDS", kinds)
    with pytest.raises(IncompleteExportError) as raised:
        export_chrome(load_traces(open_run(run)), tmp_path / "new.json")
    event_count = len([event for event in many_kinds() if event["ph"] not in "Msf"])
    kernels = open_run(run).row_count("kernels")
    assert f"{event_count - kernels} of {event_count} events were written" in str(raised.value)
    assert "the tables: kernels" in str(raised.value)
    assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize(
    ("query", "noun"), [("events_between", "events"), ("arrows_between", "arrows")]
)
def test_a_query_that_drops_rows_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, noun: str
) -> None:
    run = recorded(tmp_path, trace(*many_kinds()))
    text = getattr(chrome_events, query)()
    monkeypatch.setattr(chrome, query, lambda **_: text + " OFFSET 1")
    with pytest.raises(IncompleteExportError, match=f"{noun} were written. No file was created"):
        export_chrome(load_traces(open_run(run)), tmp_path / "new.json")


def test_python_callers_are_linked(tmp_path: Path) -> None:
    run = recorded(tmp_path, trace(python("outer", 0, 900, 7, None), python("inner", 1, 5, 8, 7)))
    exported = ChromeFile(export(run, tmp_path / "new.json"))
    outer, inner = exported.by_category["X", "python_function"]
    assert outer["args"]["Python parent id"] is None
    assert inner["args"]["Python parent id"] == outer["args"]["Python id"]
