"""Export of a run as a Perfetto trace: every slice, sample and arrow of the tables once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope import exporters
from stepscope.exporters import ExportOptions, perfetto
from stepscope.run import Run
from stepscope.schema import TRACE_TABLES
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from tests.support.chrome_files import import_into
from tests.support.kineto_files import MANY_KINDS_HEADER, kernel, many_kinds, op, trace, training
from tests.support.perfetto_files import PerfettoContent, read_perfetto

MS = 10**6
STEP = "wait=0 50 | forward ( op:linear 5 | kernel:gemm 3 ) | backward 20 | optimizer 10"


def exported(run: Run, path: Path, **options: Any) -> PerfettoContent:
    exporters.export(run, "perfetto", str(path), ExportOptions(**options))
    return read_perfetto(path)


def recorded(tmp_path: Path, *events: Any, **header: Any) -> Run:
    path = tmp_path / "trace.json"
    path.write_bytes(trace(*events, **header))
    return Run(open_run(import_into(tmp_path / "run", path)))


def rows(run: Run, table: str) -> list[dict[str, Any]]:
    columns = run.reader.table(table)
    values = [np.ma.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def positions(run: Run) -> dict[int, tuple[Any, Any]]:
    """Return process and thread of the tracks of the only trace."""

    def number(text: str, is_text: int) -> Any:
        return text if is_text else int(text)

    return {
        row["track"]: (
            number(row["pid"], row["pid_is_text"] & 1), number(row["tid"], row["pid_is_text"] & 2)
        )
        for row in rows(run, "tracks")
    }  # fmt: skip


def check_trace(run: Run, content: PerfettoContent) -> None:
    """Compare with the tables of a run that has one trace and nothing else."""
    tracks = positions(run)
    expected: Counter[Any] = Counter()
    extents = {}
    tables = [t for t in TRACE_TABLES if t.key == ("trace", "id") and "track" in t.column_names]
    for table in tables:
        for row in rows(run, table.name):
            start, length = row.get("start_ns", row.get("t_ns")), row.get("duration_ns")
            name = row.get("name", "[memory]")
            end = None if length is None else int(start + max(length, 0))
            key = (tracks[row["track"]], name, start, end)
            extents[row["id"]] = key
            expected[key] += 1
    slices = [s for s in content.slices if s.category != perfetto.HEADER_CATEGORY]
    assert Counter((s.position, s.name, s.start_ns, s.end_ns) for s in slices) == expected
    arrows = Counter(
        tuple((s.position, s.name, s.start_ns, s.end_ns) for s in ends) for ends in content.arrows()
    )
    flows = [(row["source"], row["target"]) for row in rows(run, "flows")]
    flows += [
        (row["launch"], row["id"])
        for table in ("kernels", "copies") for row in rows(run, table) if row["launch"] is not None
    ]  # fmt: skip
    assert arrows == Counter((extents[s], extents[t]) for s, t in flows if None not in {s, t})
    expected_samples = Counter(
        (row["name"], row["series"], row["t_ns"], row["value"]) for row in rows(run, "counters")
    )
    assert Counter(sample[1:] for sample in content.samples) == expected_samples


def test_a_trace_of_every_kind(tmp_path: Path) -> None:
    run = recorded(tmp_path, *many_kinds(), **MANY_KINDS_HEADER)
    content = exported(run, tmp_path / "trace.pftrace")
    check_trace(run, content)
    (header,) = [s for s in content.slices if s.category == perfetto.HEADER_CATEGORY]
    assert {key: header.args[key] for key in MANY_KINDS_HEADER} == MANY_KINDS_HEADER
    exporters.export(run, "chrome", str(tmp_path / "trace.json"), ExportOptions())
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    texts = Counter(
        repr((e["name"], e["cat"], sorted((k, v) for k, v in e["args"].items() if v is not None)))
        for e in events if e["ph"] in {"X", "i"} and any(e.get("args", {}).values())
    )  # fmt: skip
    assert texts == Counter(
        repr((s.name, s.category, sorted(s.args.items())))
        for s in content.slices
        if any(s.args.values()) and s is not header
    )
    compressed = exported(run, tmp_path / "trace.pftrace.gz")
    assert compressed.slices == content.slices


@pytest.mark.parametrize("limit", ["SLICE_EVENTS", "MAX_INTERNED"])
def test_limits_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    run = recorded(tmp_path, *many_kinds(), **MANY_KINDS_HEADER)
    content = exported(run, tmp_path / "trace.pftrace")
    monkeypatch.setattr(perfetto, limit, 3)
    again = exported(run, tmp_path / "again.pftrace")
    assert again.slices == content.slices
    assert again.samples == content.samples


def test_slices_that_overlap_are_drawn_as_one_track(tmp_path: Path) -> None:
    events = [
        op("before", 0, 10),
        op("after", 10, 10),
        kernel(0, 100, None, name="long"),
        kernel(50, 100, None, name="overlapping"),
        kernel(60, 100, None, name="third"),
        kernel(100, 20, None, name="next"),
        kernel(120, 0, None, name="empty"),
        kernel(200, 5, None, name="alone"),
    ]
    run = recorded(tmp_path, *events)
    content = exported(run, tmp_path / "trace.pftrace")
    check_trace(run, content)
    keys = Counter(t.sibling_merge_key for t in content.tracks.values() if t.sibling_merge_key)
    assert keys["0/7"] == 3
    assert keys["10/1"] == 1


def test_a_whole_run(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path / "run", code={"work": "main > work"})
    for number in range(2):
        rank = builder.rank(number, workers=1, node=f"n{number}")
        rank.draw(STEP.replace("op:linear 5 | kernel:gemm 3", "do:work 8"), 20)
        rank.workers[0].draw("fetch 40 ( collate 10 )", 20)
    builder.processes[0].draw(f"window ( {STEP} )")
    builder.metric("gpu_busy_ratio", 0.25, device="0").metric("memory_used_bytes", 1e9, node="n1")
    run = builder.open()
    content = exported(run, tmp_path / "run.pftrace")
    assert Counter(content.samples) == Counter(
        (f"{r['node']}: system", f"{r['metric']} {r['device']}".strip(), "value", r["t_ns"],
         r["value"]) for r in rows(run, "metrics")
    )  # fmt: skip
    processes = {info.process: info for info in run.processes}
    spans = [s for s in content.slices if "kind" in s.args]
    drawn = Counter(
        (content.name_of(s)[0].rpartition(" (")[2], content.name_of(s)[1], s.args["kind"],
         s.start_ns, s.end_ns or s.start_ns) for s in spans
    )  # fmt: skip
    assert drawn == Counter(
        (f"pid {processes[r['process']].pid} on {processes[r['process']].node})",
         f"thread {r['log'][:-1]}", r["kind"], r["start_ns"], r["end_ns"] or r["start_ns"])
        for r in rows(run, "spans")
    )  # fmt: skip
    assert {s.name for s in content.slices if s.category == "cpu_op"} == {"linear"}
    assert [s.name for s in content.slices if s.category == "bottleneck"]
    assert not exported(run, tmp_path / "t.pftrace", source=("traces",)).samples


def test_an_empty_run(tmp_path: Path) -> None:
    content = exported(RunBuilder(tmp_path / "run").open(), tmp_path / "run.pftrace")
    assert (content.tracks, content.slices, content.samples) == ({}, [], [])


def test_events_without_a_time_are_counted(tmp_path: Path) -> None:
    run = recorded(tmp_path, op("a", 0, 5), {**op("no time", 0, 5), "ts": "soon"})
    written = exporters.export(run, "perfetto", str(tmp_path / "t"), ExportOptions())
    assert "1 event without a time left out" in written[0].content
    assert [s.name for s in read_perfetto(tmp_path / "t").slices if s.category == "cpu_op"] == ["a"]


def test_traces_of_several_ranks(tmp_path: Path) -> None:
    for rank in range(3):
        content = trace(*training(), distributedInfo={"rank": rank, "world_size": 3})
        (tmp_path / f"rank{rank}.json").write_bytes(content)
    files = [tmp_path / f"rank{rank}.json" for rank in range(3)]
    run = Run(open_run(import_into(tmp_path / "run", *files)))
    content = exported(run, tmp_path / "run.pftrace")
    kernels = [s for s in content.slices if s.category == "kernel"]
    assert len({s.position for s in kernels}) == len(kernels) == 3
    operators = [s for s in content.slices if s.category == "cpu_op"]
    labels = {content.name_of(s)[0].partition(":")[0] for s in operators}
    assert labels == {"rank 0", "rank 1", "rank 2"}
    launches = [(s, t) for s, t in content.arrows() if t.category == "kernel"]
    assert len(launches) == 3
    assert all(s.position[0] - t.position[0] == 10 for s, t in launches)
    headers = [s for s in content.slices if s.category == perfetto.HEADER_CATEGORY]
    assert [header.args["distributedInfo"]["rank"] for header in headers] == [0, 1, 2]
