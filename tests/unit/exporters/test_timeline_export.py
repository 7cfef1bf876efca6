"""Export of a run as one Chrome trace: every sample and span once, at its time and position."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli import root
from stepscope.errors import IncompleteExportError, UsageError
from stepscope.exporters import (
    SOURCES,
    ExportedTimeline,
    choose_content,
    export_timeline,
    find_step_range,
    timeline,
)
from stepscope.run import Run
from stepscope.schema import Finding, RuleRecord, RuleStatus
from stepscope.store import RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from tests.support.debugger_files import DebuggerOutput, event, step

MS = 10**6
Event = dict[str, Any]
STEP = "wait=0 50 | forward ( op:linear 5 | kernel:gemm 3 ) | backward 20 | optimizer 10"


@pytest.fixture
def drawn(tmp_path: Path) -> RunBuilder:
    run = RunBuilder(tmp_path / "run", code={"work": "main > work"})
    for number in range(2):
        rank = run.rank(number, workers=1, node=f"n{number}")
        rank.draw(STEP.replace("op:linear 5 | kernel:gemm 3", "do:work 8"), 20)
        rank.workers[0].draw("fetch 40 ( collate 10 )", 20)
    run.processes[0].draw(f"window ( {STEP} )").draw("annotation:last ?")
    run.metric("gpu_busy_ratio", 0.25, device="0").metric("memory_used_bytes", 1e9, node="n1")
    return run


@pytest.fixture
def run(drawn: RunBuilder) -> Run:
    return drawn.open()


@pytest.fixture
def export(run: Run, tmp_path: Path) -> Callable[..., tuple[ExportedTimeline, list[Event]]]:
    def write(**range_: int) -> tuple[ExportedTimeline, list[Event]]:
        path = tmp_path / "timeline.json"
        exported = export_timeline(run, path, **range_)
        content = json.loads(path.read_text(), parse_float=Decimal)
        assert exported.text_bytes == path.stat().st_size
        for item in content["traceEvents"]:
            if "ts" in item:
                item["ns"] = content["baseTimeNanoseconds"] + int(item["ts"] * 1000)
        return exported, content["traceEvents"]

    return write


def test_every_sample_is_a_counter(run: Run, export: Callable[..., Any]) -> None:
    exported, events = export()
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    counters = Counter(
        (names[e["pid"]], e["name"], e["ns"], float(e["args"]["value"]))
        for e in events
        if e["ph"] == "C"
    )
    table = run.reader.table("metrics")
    rows = zip(*(table[n].tolist() for n in ("node", "metric", "device", "t_ns", "value")),
               strict=True)  # fmt: skip
    expected = Counter((f"{n}: system", f"{m} {d}".strip(), t, v) for n, m, d, t, v in rows)
    assert counters == expected
    assert exported.counter_count == sum(expected.values())


def test_every_span_is_on_its_track(run: Run, export: Callable[..., Any]) -> None:
    exported, events = export()
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    threads = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"
    }
    spans = [e for e in events if e["ph"] in {"X", "i"} and e.get("cat") == "user_annotation"]
    drawn_spans = Counter(
        (names[e["pid"]].partition(" (")[0], threads[e["pid"], e["tid"]], e["args"]["kind"],
         e["ns"], e["ns"] + int(e.get("dur", 0) * 1000))
        for e in spans
    )  # fmt: skip
    infos = {p.process: p for p in run.processes}
    labels = {1000: "rank 0", 1100: "DataLoader worker of rank 0", 1200: "rank 1",
              1300: "DataLoader worker of rank 1"}  # fmt: skip
    table = run.reader.table("spans")
    ends = table["end_ns"].filled(exported.end_ns).tolist()
    rows = zip(*(table[n].tolist() for n in ("process", "log", "kind", "start_ns")), ends,
               strict=True)  # fmt: skip
    assert drawn_spans == Counter(
        (labels[infos[p].pid], f"thread {log[:-1]}", kind, start, end)
        for p, log, kind, start, end in rows
    )
    assert exported.span_count == len(ends)


def test_an_aggregate_is_an_instant_with_its_sum(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("fetch ( samples ( do 40 ) | transform:Crop=9 | collate 4 )")
    exported = export_timeline(run.open(), tmp_path / "timeline.json")
    events = json.loads((tmp_path / "timeline.json").read_text())["traceEvents"]
    spans = {e["name"]: e for e in events if e.get("cat") == "user_annotation"}
    assert exported.span_count == len(spans) == 4
    assert spans["transform: Crop"]["ph"] == "i"
    assert spans["transform: Crop"]["args"]["value"] == 9 * MS
    assert {spans[name]["ph"] for name in ("fetch", "samples", "collate")} == {"X"}


def test_ranks_come_first_and_numbers_are_unique(export: Callable[..., Any]) -> None:
    _, events = export()
    order = {e["pid"]: e["args"]["sort_index"] for e in events
             if e.get("name") == "process_sort_index"}  # fmt: skip
    names = [(e["args"]["name"], e["pid"]) for e in events if e.get("name") == "process_name"]
    ordered = sorted((order[pid], name.partition(" (")[0]) for name, pid in names if pid in order)
    assert [name for _, name in ordered][:6] == [
        "n0: system", "n1: system", "rank 0", "rank 1", "DataLoader worker of rank 0",
        "DataLoader worker of rank 1",
    ]  # fmt: skip
    assert len({pid for _, pid in names}) == len(names)


def test_windows_match_the_spans_of_their_process(export: Callable[..., Any]) -> None:
    exported, events = export()
    assert exported.recordings == ["drawn"]
    (window,) = [e for e in events if e.get("args", {}).get("kind") == "window"]
    (operator,) = [e for e in events if e.get("cat") == "cpu_op"]
    (kernel,) = [e for e in events if e.get("cat") == "kernel"]
    begin, end = window["ns"], window["ns"] + int(window["dur"] * 1000)
    assert begin + 50 * MS == operator["ns"]
    assert begin <= kernel["ns"] < end
    assert operator["pid"] != window["pid"]


def test_a_range(run: Run, export: Callable[..., Any]) -> None:
    start, end = EPOCH_NS + 500 * MS, EPOCH_NS + 900 * MS
    exported, events = export(start_ns=start, end_ns=end)
    timed = [e for e in events if "ns" in e and e["ph"] != "M"]
    assert timed
    assert all(start <= e["ns"] < end for e in timed)
    assert (exported.start_ns, exported.end_ns, exported.recordings) == (start, end, [])
    query = "SELECT count(*) AS n FROM spans WHERE start_ns >= ? AND start_ns < ?"
    assert exported.span_count == run.reader.sql(query, [start, end])["n"][0]


def test_slices_lose_nothing(export: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    complete, _ = export()
    monkeypatch.setattr(timeline, "SLICE_ROWS", 7)
    sliced, events = export()
    assert (sliced.counter_count, sliced.span_count) == (
        complete.counter_count,
        complete.span_count,
    )
    assert sum(e["ph"] == "C" for e in events) == complete.counter_count


def test_an_empty_run(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run").open()
    exported = export_timeline(run, tmp_path / "out.json")
    assert (exported.counter_count, exported.span_count, exported.recordings) == (0, 0, [])
    assert json.loads((tmp_path / "out.json").read_text())["traceEvents"] == []


def test_by_command(drawn: RunBuilder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = str(drawn.write()), tmp_path / "out.json.gz"
    root.main(["export", run, "--to", "timeline", "-o", str(path)], standalone_mode=False)
    assert "1 trace" in capsys.readouterr().out
    assert json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    root.main(["export", run, "--to", "timeline", "-o", str(path), "--json"], standalone_mode=False)
    payload = json.loads(capsys.readouterr().out)
    assert (payload["format"], payload["files"][0]["path"]) == ("timeline", str(path))
    for wrong in (["--merge"], ["--rank", "0"], ["--trace", "x"]):
        with pytest.raises(UsageError, match="--to timeline does not take --"):
            root.main(["export", run, "--to", "timeline", "-o", str(path), *wrong],
                      standalone_mode=False)  # fmt: skip
    with pytest.raises(UsageError, match="is a directory"):
        root.main(["export", run, "--to", "timeline", "-o", str(tmp_path)], standalone_mode=False)


def test_spans_of_a_process_without_a_manifest(drawn: RunBuilder, tmp_path: Path) -> None:
    location = drawn.write()
    manifest = min((location / "processes").rglob("*.json"))
    process = json.loads(manifest.read_text())["process"]
    manifest.unlink()
    run = Run(open_run(location))
    exported = export_timeline(run, tmp_path / "out.json")
    assert exported.span_count == len(run.reader.table("spans")["kind"])
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    (pid,) = [e["pid"] for e in events if e.get("args", {}).get("name") == f"process {process}"]
    spans = [e for e in events if e["pid"] == pid and e.get("cat") == "user_annotation"]
    assert len(spans) == (run.reader.table("spans")["process"] == process).sum() > 0


@pytest.mark.parametrize("noun", ["samples", "spans"])
def test_an_incomplete_export_is_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noun: str
) -> None:
    query = {"samples": "_COUNTERS", "spans": "_SPANS"}[noun]
    without_first = f"SELECT * FROM ({getattr(timeline, query)}) OFFSET 1"  # noqa: S608
    monkeypatch.setattr(timeline, query, without_first)
    with pytest.raises(
        IncompleteExportError, match=rf"timeline is incomplete: .* {noun}"
    ) as caught:
        export_timeline(run, tmp_path / "out.json")
    assert "No file was created. This is a defect in stepscope" in str(caught.value)
    assert not (tmp_path / "out.json").exists()


# --- content -------------------------------------------------------------------------------------


def content_of(run: Run, path: Path, **selected: Any) -> tuple[ExportedTimeline, list[Event]]:
    exported = export_timeline(run, path / "timeline.json", content=choose_content(run, **selected))
    return exported, json.loads((path / "timeline.json").read_text())["traceEvents"]


@pytest.mark.seed("DBU-12")
def test_sources(drawn: RunBuilder, tmp_path: Path) -> None:
    drawn.processes[0].draw("communication:all_reduce 10")
    run = drawn.open()
    span_count = len(run.reader.table("spans")["seq"])
    sample_count = len(run.reader.table("metrics")["seq"])
    counts = {
        source: (exported.counter_count, exported.span_count, exported.bottleneck_count > 0)
        for source in SOURCES
        for exported, _ in [content_of(run, tmp_path, sources=[source])]
    }
    assert counts == {
        "system": (sample_count, 0, False),
        "framework": (0, span_count - 1, False),
        "communication": (0, 1, False),
        "traces": (0, 0, False),
        "bottlenecks": (0, 0, True),
    }
    exported, events = content_of(run, tmp_path, sources=["communication"])
    assert [e["name"] for e in events if e["ph"] == "X"] == ["communication: all_reduce"]
    assert exported.recordings == []
    assert content_of(run, tmp_path, sources=["traces"])[0].recordings == ["drawn"]
    with pytest.raises(UsageError, match="no source 'spans'; there are system, framework"):
        choose_content(run, sources=["spans"])


@pytest.mark.seed("DBU-12")
def test_marks_of_gpus_that_are_hardly_used(tmp_path: Path) -> None:
    """A sample every half second: below 85% from 1 s on and at 3 s, and a reading that failed."""
    values = [1.0, 0.9, 0.2, 0.4, 0.9, 0.85, 0.8, float("nan"), 0.1]
    builder = RunBuilder(tmp_path / "run")
    builder.rank().draw("forward 250 | backward 200 | optimizer 50", len(values))
    builder.metric("gpu_busy_ratio", lambda s: values[round(2 * s)], device="3")
    builder.metric("cpu_busy_ratio", lambda s: s / 10)
    run = builder.open()
    exported, events = content_of(run, tmp_path)
    tracks = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"
    }
    marks = [e for e in events if e.get("cat") == "bottleneck"]
    assert {tracks[mark["pid"], mark["tid"]] for mark in marks} == {"bottlenecks: GPU 3 < 85%"}
    assert exported.bottleneck_count == len(marks) == 3
    start_s = min(float(e["ts"]) for e in events if e["ph"] == "C") / 1e6
    extents = [(round(float(m["ts"]) / 1e6 - start_s, 6), float(m["dur"]) / 1e6) for m in marks]
    assert extents == [(0.5, 1.0), (2.5, 0.5), (3.5, 0.5)]
    assert marks[0]["name"] == "GPU 3 busy 30%"
    assert marks[0]["args"] == pytest.approx(
        {
            "mean gpu_busy_ratio": 0.3,
            "min gpu_busy_ratio": 0.2,
            "mean cpu_busy_ratio": (0.05 + 0.1 + 0.15) / 3,
        }
    )
    assert content_of(run, tmp_path, gpu_below_ratio=0)[0].bottleneck_count == 0
    assert content_of(run, tmp_path, gpu_below_ratio=0.15)[0].bottleneck_count == 1


@pytest.mark.seed("DBU-12")
def test_marks_of_findings(drawn: RunBuilder, tmp_path: Path) -> None:
    run = drawn.open()
    fired = Finding(
        rule="Dataloader",
        status=RuleStatus.ISSUES_FOUND,
        sentences=["Batches are late."],
        recommendation="Add workers.",
        first_ns=EPOCH_NS + 200 * MS,
        last_ns=EPOCH_NS + 700 * MS,
    )
    quiet = Finding(rule="StepOutlier", status=RuleStatus.NO_ISSUES_FOUND)
    record = RuleRecord(
        progress="ended", end_ns=None, scan_ns=1, written_ns=1, findings=[fired, quiet]
    )
    with RunWriter(drawn.path, "n0") as writer:
        writer.put_document("findings", "rules", record)
    _, events = content_of(run, tmp_path, gpu_below_ratio=0)
    (mark,) = [e for e in events if e.get("cat") == "bottleneck"]
    assert (mark["name"], mark["dur"]) == ("Dataloader", 500 * 1000)
    assert mark["args"] == {"text": "Batches are late.", "recommendation": "Add workers."}
    later = export_timeline(run, tmp_path / "later.json", start_ns=EPOCH_NS + 701 * MS)
    assert later.bottleneck_count == content_of(run, tmp_path)[0].bottleneck_count - 1


@pytest.mark.seed("DBU-12")
def test_a_range_of_steps(run: Run) -> None:
    steps = run.ranks[0].steps
    start, end = find_step_range(run, (3, 6))
    starts = [int(rank.steps.start[3]) for rank in run.ranks]
    ends = [int(rank.steps.end[5]) for rank in run.ranks]
    assert (start, end) == (min(starts), max(ends))
    assert find_step_range(run, (len(steps) - 1, 10**6))[1] == max(
        int(rank.steps.end[-1]) for rank in run.ranks
    )
    with pytest.raises(UsageError, match="No rank has a step from 500 to before 600"):
        find_step_range(run, (500, 600))


@pytest.mark.seed("DBU-12")
def test_suffixes_of_imported_files(tmp_path: Path) -> None:
    output = DebuggerOutput(tmp_path / "profiler-output")
    output.events("77-algo-1", [step(n, 1000 * n, 1000) for n in range(5)])
    tensor = {**event("allreduce.layer", "ALLREDUCE", 100, 50)}
    output.events("77-algo-1", [tensor, tensor], suffix="horovod_timeline")
    run = output.imported(tmp_path / "run")
    recorders = {
        suffix: content_of(run, tmp_path, suffixes=[suffix])[1]
        for suffix in ("pythontimeline", "horovod_timeline")
    }
    names = {
        suffix: {e["name"] for e in events if e.get("cat") == "user_annotation"}
        for suffix, events in recorders.items()
    }
    assert names["horovod_timeline"] == {"communication: ALLREDUCE"}
    assert names["pythontimeline"] == {"TRAIN"}  # marks of steps are in no file
    with pytest.raises(
        UsageError,
        match="No imported file has the suffix 'model_timeline'; there are horovod_timeline, pyth",
    ):
        choose_content(run, suffixes=["model_timeline"])


@pytest.mark.seed("DBU-12")
def test_the_command_selects(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "part.json"
    command = ["export", str(tmp_path / "run"), "--to", "timeline", "-o", str(path)]
    options = ["--steps", "4:12", "--source", "framework,bottlenecks", "--gpu-below", "50"]
    root.main([*command, *options], standalone_mode=False)
    output = capsys.readouterr().out
    assert re.search(r"0 samples, \d+ spans, 0 traces, 1 mark of bottlenecks", output)
    start, end = find_step_range(run, (4, 12))
    content = json.loads(path.read_text(), parse_float=Decimal)
    times = [
        content["baseTimeNanoseconds"] + int(e["ts"] * 1000)
        for e in content["traceEvents"]
        if e.get("cat") == "user_annotation" and e["ph"] in {"X", "i"}
    ]
    table = run.reader.table("spans")["start_ns"]
    assert sorted(times) == sorted(t for t in table.tolist() if start <= t < end)
    with pytest.raises(UsageError, match="--to chrome does not take --steps"):
        root.main(["export", str(tmp_path / "run"), "--to", "chrome", "-o", str(path),
                   "--steps", "1:2"], standalone_mode=False)  # fmt: skip
