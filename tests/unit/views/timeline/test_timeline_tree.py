"""The tree of tracks, steps and marks."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stepscope.run import Run
from stepscope.schema import (
    STUCK,
    Finding,
    RankAccount,
    RankState,
    RuleRecord,
    RuleStatus,
    StackFrame,
    StuckNode,
)  # fmt: skip
from stepscope.store import RunWriter, open_run
from stepscope.testing.runs import EPOCH_NS, RunBuilder
from tests.support.drawn_timelines import import_run, tracks_in, view
from tests.support.kineto_files import kernel, launch, memory, op, span, trace, training
from tests.support.printed import print_text


@pytest.mark.seed("SMP-24", "SMP-26")
def test_a_trace_is_a_group_with_its_threads_and_streams(tmp_path: Path) -> None:
    thread_name = {"ph": "M", "name": "thread_name", "pid": 10, "tid": 5, "args": {"name": "empty"}}
    nccl = [launch(9_500, 50, 9), kernel(9_600, 100, 9, name="ncclKernel_AllReduce", stream=20)]
    profiler = span("Trace", "PyTorch Profiler (0)", 0, 9_000, pid="Spans", tid="PyTorch Profiler")
    distributed = {"rank": 3, "world_size": 4}
    file = trace(*training(), *nccl, thread_name, profiler, distributedInfo=distributed)
    payload = view(import_run(tmp_path / "run", file), "timeline")
    (group,) = payload.groups
    assert (group.name, group.kind, group.rank) == ("rank 3: file 0", "recording", 3)
    assert [(t.name, t.row_count, t.event_count, t.is_empty) for t in group.tracks] == [
        ("thread 1: steps", 6, 7 + 1, False),
        ("thread PyTorch Profiler", 1, 1, True),
    ]
    device, counters = group.groups
    assert (device.name, device.kind) == ("device 0", "device")
    assert [t.name for t in device.tracks] == [
        "stream 7 (annotations)",
        "stream 7 (computation)",
        "stream 20 (communication)",
    ]
    assert [t.name for t in counters.tracks] == [
        "memory allocated on device 0",
        "GPU utilisation of device 0",
    ]
    (steps,) = payload.steps
    assert (steps.group, steps.numbers, steps.after_ns, steps.duration_ns) == (
        group.id,
        [3],
        [0],
        [9_000],
    )
    assert payload.end_after_ns == 9_700
    assert payload.missing is None


@pytest.mark.seed("SMP-24", "SMP-31")
def test_a_job_is_nodes_ranks_and_workers(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    for number, node in enumerate(("n0", "n1")):
        rank = run.rank(number, workers=2, node=node)
        rank.draw("wait 5 | forward 12 | backward 20 | optimizer 8", 30)
        for worker in rank.workers:
            worker.draw("fetch ( samples 8 | collate 2 )", 30)
        run.metric("gpu_busy_ratio", 0.5, device="1", node=node)
        run.metric("gpu_busy_ratio", 0.5, device="0", node=node)
        run.metric("core_busy_ratio", 0.5, device="10", node=node)
        run.metric("core_busy_ratio", 0.5, device="9", node=node)
        run.metric("cpu_busy_ratio", 0.5, node=node)
        run.metric("cpu_iowait_ratio", 0, node=node)
    payload = view(run.open(), "timeline")
    assert [(g.name, g.kind) for g in payload.groups] == [("node n0", "node"), ("node n1", "node")]
    counters, rank = payload.groups[0].groups
    assert [(t.name, t.is_empty) for t in counters.tracks] == [
        ("CPU busy", False), ("I/O wait", True),
    ]  # fmt: skip
    assert [(g.name, [t.name for t in g.tracks]) for g in counters.groups] == [
        ("GPU 0", ["busy"]),
        ("GPU 1", ["busy"]),
        ("cores", ["core busy 9", "core busy 10"]),
    ]
    assert (rank.name, rank.kind, rank.rank) == ("rank 0", "process", 0)
    assert [g.name for g in rank.groups] == ["worker 0 of rank 0", "worker 1 of rank 0"]
    assert [t.name.rpartition(" (")[2] for t in rank.tracks] == ["training)"]
    assert [(s.title, s.rank) for s in payload.steps] == [("rank 0",) * 2, ("rank 1",) * 2]
    assert payload.steps[0].group == rank.id
    assert payload.steps[0].numbers == list(range(len(payload.steps[0].after_ns)))
    assert payload.origin_ns == str(EPOCH_NS)


def test_a_stuck_job_stands_in_a_call(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank(0).draw("forward 12 | backward 20 | optimizer 8", 10)
    path = run.write()
    (process,) = [p for p in Run(open_run(path)).processes if p.role == "main"]
    calls = (("wait", "/usr/lib/python3.11/threading.py", 5), ("take", "/job/a.py", 7))
    frames = [StackFrame(function=name, file=file, line=line) for name, file, line in calls]
    account = RankAccount(
        rank=0, process=process.process, pid=process.pid, state=RankState.ANSWERED, frames=frames
    )
    stuck = StuckNode(
        node=process.node, ranks=[account], since_ns=EPOCH_NS + 7, seen_ns=EPOCH_NS + 60,
        limit_ns=30, groups={}, was_stuck=True,
    )  # fmt: skip
    with RunWriter(path, process.node) as writer:
        writer.put_document(STUCK, process.node, stuck)
    payload = view(Run(open_run(path)), "timeline")
    (call,) = payload.standing
    assert (call.name, call.after_ns) == ("take (a.py:7)", 7)
    assert call.track in {t.id for node in payload.groups for g in node.groups for t in g.tracks}


def test_outliers_and_findings_are_marked(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    rank = run.rank(0)
    rank.draw("forward 12 | backward 20 | optimizer 8", 40)
    rank.draw("forward 500 | backward 20 | optimizer 8", 1)
    rank.draw("forward 12 | backward 20 | optimizer 8", 10)
    path = run.write()
    fired = Finding(
        rule="Slow", status=RuleStatus.ISSUES_FOUND, sentences=["It is slow."],
        first_ns=EPOCH_NS + 5, last_ns=EPOCH_NS + 9,
    )  # fmt: skip
    record = RuleRecord(progress="ended", end_ns=1, scan_ns=1, written_ns=1, findings=[fired])
    with RunWriter(path, "n0") as writer:
        writer.put_document("findings", "rules", record)
    payload = view(Run(open_run(path)), "timeline")
    assert payload.steps[0].outliers == [40]
    (mark,) = payload.findings
    assert (mark.rule, mark.sentence, mark.first_after_ns, mark.last_after_ns) == (
        "Slow",
        "It is slow.",
        5,
        9,
    )


def test_a_trace_without_a_clock_starts_at_the_origin(tmp_path: Path) -> None:
    adrift = trace(op("late", 5_000, 10), op("later", 9_000, 10), base=None)
    run = import_run(tmp_path / "run", [op("f", 1_000, 10_000_000)], adrift)
    payload = view(run, "timeline")
    assert payload.end_after_ns == 10_000_000
    assert "file 1" in payload.notes[0]
    matches = view(run, "timeline-search", name="late").matches
    assert [match.after_ns for match in matches] == [0, 4_000]
    slices = view(run, "timeline-slices", tracks=matches[0].track, to_ns=10_000).tracks[0]
    assert slices.after_ns == [0, 4_000]
    details = view(run, "timeline-slice", track=matches[1].track, event=matches[1].event)
    assert details.after_ns == 4_000


def test_an_empty_run_explains_what_to_do(tmp_path: Path) -> None:
    payload = view(import_run(tmp_path / "run"), "timeline")
    assert payload.groups == []
    assert "stepscope run" in (payload.missing or "")


def test_many_tracks_are_limited_with_a_note(tmp_path: Path) -> None:
    events = [op("f", 10 * n, 5, tid=n) for n in range(6_000)]
    run = import_run(tmp_path / "run", events)
    payload = view(run, "timeline")
    assert len(tracks_in(payload.groups)) == 5_000
    assert payload.notes == ["1,000 tracks are not listed, only the first 5,000"]
    slices = view(run, "timeline-slices")
    assert len(slices.tracks) == 2_000
    assert len(slices.omitted_tracks) == 3_000


def test_payloads_can_be_printed(tmp_path: Path) -> None:
    run = import_run(tmp_path / "run", [*training(), memory(50, 100, **{"Total Allocated": 7})])
    track = view(run, "timeline-search", name="gemm").matches[0]
    for name, options in {
        "timeline": {},
        "timeline-slices": {},
        "timeline-counters": {},
        "timeline-slice": {"track": track.track, "event": track.event},
        "timeline-search": {"name": "a"},
        "timeline-summary": {},
        "timeline-flame": {},
    }.items():
        payload = view(run, name, **options)
        assert print_text(payload).strip()
        assert msgspec.json.decode(msgspec.json.encode(payload), type=type(payload)) == payload


def test_shadows_have_a_track_of_their_own(tmp_path: Path) -> None:
    more = {"args": {"device": 0, "stream": 7}, "pid": 0, "tid": 7}
    shadows = [
        span("gpu_user_annotation", "outer", 100, 900, **more),
        span("gpu_user_annotation", "inner", 200, 300, **more),
    ]
    run = import_run(tmp_path / "run", [op("f", 0, 10), kernel(250, 10, None), *shadows])
    device = view(run, "timeline").groups[0].groups[0]
    assert [(t.name, t.row_count) for t in device.tracks] == [
        ("stream 7 (annotations)", 2),
        ("stream 7 (computation)", 1),
    ]


def test_descriptions_of_work_are_on_the_device(tmp_path: Path) -> None:
    names = [
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "/device:TPU:1"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 5, "args": {"name": "Framework Ops"}},
        {"ph": "M", "name": "thread_name", "pid": 3, "tid": 6, "args": {"name": "XLA Ops"}},
    ]
    work = [span("", "fusion", 0, 900, pid=3, tid=tid) for tid in (5, 6)]
    run = import_run(tmp_path / "run", [*names, *work, span("", "train", 0, 900)])
    (group,) = view(run, "timeline").groups
    assert [track.name for track in group.tracks] == ["thread 1"]
    (device,) = [inner for inner in group.groups if inner.kind == "device"]
    assert [track.kind for track in device.tracks] == ["device", "device"]
    assert {track.name for track in device.tracks} >= {"Framework Ops"}


def test_events_of_unknown_kinds_are_drawn_to_the_end(tmp_path: Path) -> None:
    events = [span("mystery", "x", 1_000 * n, 900) for n in range(100)]
    run = import_run(tmp_path / "run", events)
    payload = view(run, "timeline")
    assert payload.end_after_ns == 99_900
    (track,) = tracks_in(payload.groups)
    assert (track.row_count, track.event_count) == (1, 100)
    near = view(run, "timeline-slices", from_ns=98_000, to_ns=99_900).tracks[0]
    assert near.after_ns == [0, 1_000]
