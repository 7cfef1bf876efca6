"""Import of SageMaker Debugger's framework events, and of its output as a whole."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest

from stepscope.diagnosis import diagnose
from stepscope.importers.kineto import importer
from stepscope.importers.smdebug.events import Form, detect_form, read_events
from stepscope.importers.smdebug.system import read_samples
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.schema import JobState
from stepscope.views.job.overview import show_overview
from stepscope.views.steps.steps import show_steps
from stepscope.views.system import show_system
from tests.support.command import run_command
from tests.support.debugger_files import (
    EPOCH_NS,
    EPOCH_S,
    EPOCH_US,
    DebuggerOutput,
    event,
    rows,
    sample,
    step,
)
from tests.support.kineto_files import trace, training

S, MS, US = 10**9, 10**6, 10**3


# --- framework events ------------------------------------------------------------------------


@pytest.mark.seed("DBP-12")
def test_kinds_of_pytorch(output: DebuggerOutput) -> None:
    output.events(
        "77-algo-1",
        [
            event("DataLoaderIterInitialize", "_Iter.__init__", 0, 50, num_workers=4,
                  pin_memory=False, pid=77),
            event("DataLoaderIter", "_Iter.__next__", 60, 30, pid=77),
            event("DataLoaderWorker", "fetch", 10, 40, pid=78, worker_id=0, bytes_fetched=99),
            event("Forward", "Net", 100, 200, step_num="0"),
            event("Forward-SubModuleInternal", "Net.fc", 110, 50),
            event("Backward(post-forward)", "Net", 300, 400),
            event("cpu_functions", "aten::mm", 120, 10),
            event("gpu_functions-dev:0", "sgemm", 130, 10),
            step(0, 100, 600),
        ],
    )  # fmt: skip
    run = output.imported()
    spans = {(r["kind"], r["name"]): r for r in rows(run)}
    assert set(spans) == {
        ("loader_start", "_Iter.__init__"),
        ("data_wait", "_Iter.__next__"),
        ("fetch", "fetch"),
        ("forward", "Net"),
        ("annotation", "Net.fc"),
        ("backward", "Net"),
        ("mode", "TRAIN"),
        ("step", ""),
    }
    forward = spans["forward", "Net"]
    assert (forward["start_ns"], forward["end_ns"]) == (EPOCH_NS + 100 * US, EPOCH_NS + 300 * US)
    assert json.loads(str(forward["labels"])) == {
        "phase": "Forward", "recorder": "pythontimeline", "step_num": 0,
    }  # fmt: skip
    training_track = {r["log"] for r in rows(run, kind="forward") + rows(run, kind="step")}
    assert training_track == {"77c"}
    assert spans["data_wait", "_Iter.__next__"]["value"] == -1
    main, worker = sorted(run.processes, key=lambda p: p.pid)
    assert (main.process, worker.process) == ("77-algo-1", "78-algo-1")
    assert (worker.role, worker.parent_pid) == ("dataloader_worker", 77)
    assert {"fact": "dataloader_worker", "worker": 0} in worker.facts
    fact = {"fact": "dataloader_seen", "num_workers": 4, "pin_memory": False}
    assert fact in main.facts
    assert "includes the optimizer" in " ".join(main.notes)


def test_steps_and_their_phases(output: DebuggerOutput) -> None:
    """A step takes as long as Debugger's; the phases include the time before it, with the wait."""
    events = []
    for number in range(30):
        at = 1000 * number
        events += [
            event("DataLoaderIter", "next", at, 300),
            event("Forward", "Net", at + 300, 200),
            event("Backward(post-forward)", "Net", at + 500, 400),
            step(number, at + 300, 600),
        ]
    output.events("77-algo-1", events)
    run = output.imported()
    (rank,) = run.ranks
    assert len(rank.steps) == 30
    assert rank.steps.wall_ns.tolist() == [900 * US] + [1000 * US] * 29
    assert rank.steps.duration_ns.tolist() == [600 * US] * 30
    for phase, microseconds in {"data_wait": 300, "forward": 200, "backward": 400}.items():
        assert (rank.steps.phase_ns[phase] == microseconds * US).all()
    marks = [r["value"] for r in rows(run, kind="step")]
    assert marks == list(range(30))
    assert diagnose(run).suspect == "data_pipeline"
    (shown,) = show_steps(run).ranks
    assert (shown.step_count, shown.between_ns) == (30, 400 * US)
    assert shown.step_ns is not None
    assert (shown.step_ns.minimum, shown.step_ns.maximum) == (600 * US, 600 * US)


@pytest.mark.parametrize("scan_s", [60, 1])
@pytest.mark.parametrize("mode", ["TRAIN", "GLOBAL"])
def test_statistics_of_steps_and_modes_are_those_of_the_events(
    output: DebuggerOutput, mode: str, scan_s: int
) -> None:
    """Durations are drawn; a wait of 300 ms precedes each step, and evaluation ends the job."""
    durations_us = [10_000 * (40 + 7 * n % 31) for n in range(150)]
    events, at = [], 0
    for number, duration_us in enumerate(durations_us):
        at += 300_000
        events.append(step(number, at, duration_us, mode))
        at += duration_us
    events += [step(n, at + 100_000 * n, 50_000, "EVAL") for n in range(10)]
    output.events("77-algo-1", events)
    run = output.imported()
    names = ["StepOutlier", "OverallFrameworkMetrics"]
    evaluation = check_rules(run.reader, choose_rules(names), scan_ns=scan_s * S)
    outlier, overall = evaluation.findings
    (details,) = outlier.details["ranks"].values()
    seconds = np.array(durations_us) / 1e6
    assert details["step_count"] == len(seconds)
    statistics = {"mean_s": seconds.mean(), "max_s": seconds.max(), "min_s": seconds.min()}
    for name, value in statistics.items():
        assert details[name] == pytest.approx(value, rel=1e-4)
    for name, q in {"p50_s": 0.5, "p95_s": 0.95, "p99_s": 0.99}.items():
        lower, upper = (np.quantile(seconds, q, method=m) for m in ("lower", "higher"))
        assert lower * (1 - 1e-4) <= details[name] <= upper * (1 + 1e-4)
    total_us = at - 300_000 + 9 * 100_000 + 50_000
    trained_us, evaluated_us = sum(durations_us), 10 * 50_000
    shares = {
        mode: trained_us,
        "EVAL": evaluated_us,
        "others": total_us - trained_us - evaluated_us,
    }
    assert overall.details["phase_share_ratio"] == pytest.approx(
        {name: value / total_us for name, value in shares.items()}
    )


def test_steps_of_a_script_without_modes(output: DebuggerOutput) -> None:
    output.events("77-algo-1", [step(n, 1000 * n, 1000, "GLOBAL") for n in range(25)])
    (rank,) = output.imported().ranks
    assert rank.steps.wall_ns.tolist() == [1000 * US] * 25


def test_steps_alone_have_a_start_and_no_verdict(output: DebuggerOutput) -> None:
    output.events("77-algo-1", [step(n, 1000 * n + 50, 900) for n in range(25)])
    run = output.imported()
    (rank,) = run.ranks
    assert rank.steps.wall_ns.tolist() == [900 * US] + [1000 * US] * 24
    verdict = diagnose(run)
    assert verdict.suspect == "insufficient_evidence"
    assert "no phase" in verdict.headline


def test_steps_over_several_files(output: DebuggerOutput) -> None:
    for part in range(3):
        output.events("77-algo-1", [step(n, 1000 * n, 900) for n in range(8 * part, 8 * part + 8)])
    run = output.imported()
    (rank,) = run.ranks
    assert len(rank.steps) == 24
    marks = [r["value"] for r in rows(run, kind="step")]
    assert marks == [-1, *range(24)]  # the first one marks the start of the first step
    numbers = [r["seq"] for r in rows(run, log="77c")]
    assert sorted(numbers) == list(range(len(numbers)))


def test_evaluation_is_cut_out(output: DebuggerOutput) -> None:
    events = [step(n, 1000 * n, 1000) for n in range(5)]
    events += [step(n, 5000 + 100 * n, 100, "EVAL") for n in range(10)]
    events += [step(n, 6000 + 1000 * (n - 5), 1000) for n in range(5, 10)]
    output.events("77-algo-1", events)
    (rank,) = output.imported().ranks
    assert len(rank.steps) == 10
    assert rank.steps.evaluation.total_ns == 1000 * US
    assert (rank.steps.wall_ns == 1000 * US).all()


@pytest.mark.seed("DBP-07")
def test_horovod_brackets_over_files(output: DebuggerOutput) -> None:
    """An end may have no name, and be in a later file whose numbers mean other tensors."""
    begin = {"phase": "grad_a", "name": "NEGOTIATE_ALLREDUCE", "ph": "B", "ts": 100}
    output.events(
        "9-algo-1",
        [
            begin,
            {**begin, "phase": "grad_b", "ts": 110},
            {"phase": "grad_b", "name": "", "ph": "E", "ts": 130},
            {"phase": "grad_b", "name": "CYCLE_START", "ph": "i", "ts": 131},
        ],
        suffix="horovod_timeline",
    )
    output.events(
        "9-algo-1",
        [
            {"phase": "grad_b", "name": "ALLREDUCE", "ph": "B", "ts": 140},
            {"phase": "grad_a", "name": "", "ph": "E", "ts": 150},
            {"phase": "grad_a", "name": "", "ph": "E", "ts": 160},
        ],
        suffix="horovod_timeline",
    )
    run = output.imported()
    spans = {(r["name"], json.loads(str(r["labels"]))["tensor"]): r for r in rows(run)}
    times = {key: (r["start_ns"], r["end_ns"]) for key, r in spans.items()}
    assert times == {
        ("NEGOTIATE_ALLREDUCE", "grad_a"): (EPOCH_NS + 100 * US, EPOCH_NS + 150 * US),
        ("NEGOTIATE_ALLREDUCE", "grad_b"): (EPOCH_NS + 110 * US, EPOCH_NS + 130 * US),
        ("ALLREDUCE", "grad_b"): (EPOCH_NS + 140 * US, None),
    }
    assert {(r["kind"], r["flags"]) for r in spans.values()} == {("communication", 1)}
    (process,) = run.processes
    assert "1 ends of ranges have no start" in process.notes


def test_impossible_durations_are_left_out_and_counted(output: DebuggerOutput) -> None:
    output.events(
        "9-algo-1",
        [event("Forward", "sane", 0, 100), event("Forward", "mad", 10, 812355471858),
         event("Forward", "backwards", 20, -5)],
    )  # fmt: skip
    run = output.imported()
    assert [r["name"] for r in rows(run)] == ["sane"]
    (process,) = run.processes
    assert "2 events with impossible durations (up to 226 h)" in " ".join(process.notes)


def test_samples_bound_the_end_of_the_job(output: DebuggerOutput) -> None:
    output.system("algo-1", [sample("GPUUtilization", "gpu0", 1, second=s) for s in range(10)])
    hour_us = 3600 * 10**6
    output.events(
        "9-algo-1", [event("x", "sane", 0, hour_us), event("x", "too long", 0, 2 * hour_us)]
    )
    assert [r["name"] for r in rows(output.imported())] == ["sane"]


@pytest.mark.parametrize(
    ("end", "count", "sentence"),
    [
        (",\n", 3, "the file is truncated"),
        (',\n{"name": "Forw', 3, "1 event could not be read"),
        (',\n{"name": bad},\n{"name": "after", "ph": "X", "pid": 1, "ts": 9, "dur": 1}\n]', 4,
         "1 event could not be read"),
        (',\n{"name": "x", "ph": "X", "pid": 1, "ts": "soon", "dur": 1}\n]', 3,
         "1 event could not be read"),
    ],
)  # fmt: skip
def test_missing_events_are_reported(
    output: DebuggerOutput, end: str, count: int, sentence: str
) -> None:
    output.events("9-algo-1", [event("Forward", "Net", 10 * n, 5) for n in range(3)], end=end)
    run = output.imported()
    assert len(rows(run)) == count
    (process,) = run.processes
    assert sentence in " ".join(process.notes)


def test_without_a_base_the_name_states_the_end(output: DebuggerOutput) -> None:
    output.events(
        "9-algo-1", [event("t", "ALLREDUCE", 500, 100)], suffix="horovod_timeline", base_us=None,
        end_us=EPOCH_US + 10_000,
    )  # fmt: skip
    run = output.imported()
    (row,) = rows(run)
    assert row["end_ns"] == EPOCH_NS + 10_000 * US
    assert "has no base time" in " ".join(run.processes[0].notes)


def test_absolute_times_need_no_base(output: DebuggerOutput) -> None:
    output.events("9-algo-1", [event("x", "y", EPOCH_US, 100)], base_us=None, end_us=1)
    (row,) = rows(output.imported())
    assert row["start_ns"] == EPOCH_NS


@pytest.mark.parametrize(
    ("recorder", "process", "node"),
    [
        ("77-algo-2", "77-algo-2", "algo-2"),
        ("77-host.example.org", "77-host.example.org", "host.example.org"),
        ("77_0000", "77-algo-1", "algo-1"),
        ("0001", "0-algo-1", "algo-1"),
    ],
)
def test_the_recorder_of_a_file(
    output: DebuggerOutput, recorder: str, process: str, node: str
) -> None:
    """A file that names no node belongs to the only one with samples."""
    output.system("algo-1", [sample("GPUUtilization", "gpu0", 1)])
    output.events(recorder, [event("Forward", "Net", 0, 10)])
    run = output.imported()
    assert {(r["process"], r["node"]) for r in rows(run)} == {(process, node)}
    assert [p.process for p in run.processes] == [process]


def test_crossing_ranges_are_asynchronous(output: DebuggerOutput) -> None:
    output.events(
        "9-algo-1",
        [event("DataIterator", n, *t) for n, t in
         {"outer": (0, 100), "inner": (10, 50), "crossing": (40, 100), "later": (150, 10)}.items()],
        suffix="model_timeline",
    )  # fmt: skip
    spans = {r["name"]: (r["depth"], r["flags"]) for r in rows(output.imported())}
    assert spans == {"outer": (0, 0), "inner": (1, 0), "crossing": (2, 1), "later": (0, 0)}


# --- everything together ---------------------------------------------------------------------


def test_views_of_an_imported_job(output: DebuggerOutput) -> None:
    output.system("algo-1", [sample("GPUUtilization", "gpu0", 50, second=s) for s in range(4)])
    output.events("77-algo-1", [step(n, 1000 * n, 900) for n in range(25)])
    (output.path / "system" / "training_job_end.ts").write_text("")
    run = output.imported()
    (node,) = show_overview(run).nodes
    assert (node.state, node.gpu_busy_ratio, node.cpu_busy_ratio) == (JobState.COMPLETED, 0.5, None)
    assert not node.monitor_lost
    assert (node.started_ns, node.ended_ns) == (EPOCH_NS, EPOCH_NS + 3 * S)
    (machine,) = show_system(run).nodes
    assert (machine.sample_count, machine.memory_bytes) == (4, None)
    assert "size of the memory" in machine.metrics_missing
    assert show_steps(run).ranks[0].source == "marked"


def test_directories_may_be_mixed(
    output: DebuggerOutput, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output.system("algo-1", [sample("GPUUtilization", "gpu0", 50)])
    output.events("77-algo-1", [event("Forward", "Net", 0, 10)])
    (output.path / "rank0.json").write_bytes(trace(*training()))
    (output.path / "notes.txt").write_text("hello")
    (output.path / "python_stats").write_bytes(b"\x00")
    monkeypatch.setattr(importer, "available_processes", lambda: 1)  # no worker processes
    done = run_command(tmp_path, "import", str(output.path), "-o", "run", "--json")
    payload = json.loads(done.stdout)
    assert [t["name"] for t in payload["traces"]] == ["rank0.json"]
    assert {(r["sample_count"], r["event_count"]) for r in payload["recorded"]} == {(1, 0), (0, 1)}
    assert len(payload["refused"]) == 2
    assert "is no readable Python profile" in done.stderr


@pytest.mark.parametrize("with_metadata", [True, False])
def test_traces_of_tensorflow(output: DebuggerOutput, with_metadata: bool) -> None:
    folder = output.path / "framework/tensorflow/detailed_profiling" / "2020091312" / "000000005"
    path = folder / "plugins" / "profile" / "2020_09_13" / "box.trace.json.gz"
    path.parent.mkdir(parents=True)
    events = [{"ph": "X", "name": "MatMul", "pid": 1, "tid": 1, "ts": 2.5, "dur": 10}]
    path.write_bytes(gzip.compress(msgspec.json.encode({"traceEvents": events})))
    if with_metadata:
        (folder / f"77-algo-1_{EPOCH_US}_{EPOCH_US + 99}.metadata").write_text("")
    run = output.imported()
    (recording,) = run.traces
    assert recording.name == "box.trace.json.gz"
    assert recording.start_ns == (EPOCH_NS if with_metadata else 0) + 2500
    assert recording.quality_issues["clock_base"].detail is not None


def test_a_truncated_trace_of_tensorflow(output: DebuggerOutput) -> None:
    folder = output.path / "detailed_profiling" / "000000005"
    path = folder / "plugins" / "profile" / "2020_09_13" / "box.trace.json.gz"
    path.parent.mkdir(parents=True)
    (folder / f"77-algo-1_{EPOCH_US}_{EPOCH_US + 99}.metadata").write_text("")
    chance = random.Random(1)
    events = [
        {"ph": "X", "name": f"op {chance.random()}", "pid": 1, "tid": 1, "ts": n, "dur": 1}
        for n in range(1000)
    ]
    data = gzip.compress(msgspec.json.encode({"traceEvents": events}))
    path.write_bytes(data[: len(data) // 2])
    (recording,) = output.imported().traces
    assert recording.start_ns == EPOCH_NS
    assert 100 < recording.event_count < 1000
    assert "truncated" in recording.quality_issues


@pytest.mark.seed("DBU-15")
def test_a_file_cut_anywhere_is_read_up_to_the_cut(output: DebuggerOutput, tmp_path: Path) -> None:
    """At every byte: all complete events before the cut are read."""
    events = [event("Forward", "Net {0} [x]", 10 * n, 5, step_num=str(n)) for n in range(4)]
    path = output.events("9-algo-1", events)
    text = path.read_bytes()
    cut = tmp_path / path.name
    for length in range(len(text)):
        cut.write_bytes(text[:length])
        lines = text[:length].split(b"\n")
        complete = [
            line for line in lines if b'"ph": "X"' in line and line.count(b"{") == line.count(b"}")
        ]
        content = read_events(cut)
        assert len(content.rows) == len(complete)
        if length < len(text) - 1:
            assert content.lost is not None
    path = output.system("algo-1", [sample("Memory", "MemoryUsedPercent", n) for n in range(3)])
    text = path.read_bytes()
    for length in range(len(text)):
        cut.write_bytes(text[:length])
        lines_read = read_samples(cut)
        complete_lines = [line for line in text[:length].split(b"\n") if line.endswith(b"}")]
        assert len(lines_read.samples) == len(complete_lines)
        is_cut = length > 0 and not text[:length].endswith((b"}", b"\n"))
        assert (lines_read.lost is not None) == is_cut


@pytest.mark.parametrize(
    ("name", "content", "form"),
    [
        ("any.json", b'{"Dimension":"x","NodeId":"n","Timestamp":1,"Value":2}\n', Form.SYSTEM),
        ("a.json", b'{"Dimension": cut\n{"Dimension":"x","NodeId":"n","Timestamp":1,"Value":2}',
         Form.SYSTEM),
        ("a.json", b'[{"args": {"start_time_since_epoch_in_micros": 5}}]', Form.EVENTS),
        ("1_9-algo-1_horovod_timeline.json", b'[\n{"ph": "B"}]', Form.EVENTS),
        ("1_9-algo-1_horovod_timeline.json", b"", Form.EVENTS),
        ("1_9-algo-1_horovod_timeline.json", b"text", None),
        ("a.json", b'{"traceEvents": [{"Dimension": 1}]}', None),
        ("a.json", b'[{"ph": "X"}]', None),
        ("a.json", b"", None),
        ("training_job_end.ts", b"", Form.MARK),
    ],
)  # fmt: skip
def test_files_are_recognised_by_their_content(
    tmp_path: Path, name: str, content: bytes, form: Form | None
) -> None:
    (tmp_path / name).write_bytes(content)
    assert detect_form(tmp_path / name) is form


def test_an_empty_file_does_not_affect_others(output: DebuggerOutput) -> None:
    output.events("9-algo-1", [event("Forward", "Net", 0, 10)])
    (output.path / f"{EPOCH_S}_9-algo-1_pythontimeline.json").write_text("")
    assert len(rows(output.imported())) == 1
