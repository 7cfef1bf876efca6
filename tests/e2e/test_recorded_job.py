"""One recorded job with two GPUs (a stand-in driver), two workers, named ranges and a window."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.analysis import EdgeKind
from stepscope.run import Run, get_span_graph
from stepscope.schema import WindowFact
from stepscope.store import open_run
from tests.support.command import run_command
from tests.support.nvml_stub import compile_nvml
from tests.support.under_stepscope import E2E, FinishedJob, label, run_under

SCRIPT = E2E / "scripts" / "annotated.py"
STEPS = int(label(SCRIPT, "EXPECTED_STEPS"))
WINDOW = (30, 3)
"""First step and number of steps."""
NODE = "algo-1"
PARTS = ("Forward", "Loss", "Backward", "Optimizer")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    directory = tmp_path_factory.mktemp("job")
    schedule = ("--start-step", str(WINDOW[0]), "--num-steps", str(WINDOW[1]))
    done = run_under(
        directory / "run",
        *(sys.executable, str(SCRIPT)),
        options=("--interval", "100", "--window", "asked", "--no-rules", *schedule),
        LD_LIBRARY_PATH=str(compile_nvml(directory)),
        STUB_GPUS="2",
        STEPSCOPE_NODE=NODE,
    )
    assert done.code == 0, done.stderr
    return done


@pytest.fixture
def run(job: FinishedJob) -> OpenRun:
    return stepscope.open(job.run)


@pytest.mark.seed("SMP-03", "SMP-04")
def test_ranges_of_the_script_are_nested(run: OpenRun) -> None:
    rows = run.framework(kind="annotation").rows()
    steps = {row["name"]: row for row in rows if row["name"].startswith("step_")}
    assert set(steps) == {f"step_{number}" for number in range(STEPS)}
    parts = [row for row in rows if row["name"] in PARTS]
    assert Counter(row["name"] for row in parts) == dict.fromkeys(PARTS, STEPS)
    starts = np.array([row["start_ns"] for row in steps.values()])
    for part in parts:
        step = list(steps.values())[np.searchsorted(starts, part["start_ns"], side="right") - 1]
        assert step["start_ns"] <= part["start_ns"] <= part["end_ns"] <= step["end_ns"]
        assert part["depth"] == step["depth"] + 1


@pytest.mark.seed("SMP-23", "SMP-28")
def test_ranges_by_name(job: FinishedJob, run: OpenRun) -> None:
    sources = job.payload("show", "annotations", "--name", "step_*")["sources"]
    (histogram,) = [entry for source in sources for entry in source["histograms"]]
    assert sum(bucket["count"] for bucket in histogram["buckets"]) == STEPS
    durations = {row["name"]: row["duration_ns"] for row in run.framework(kind="annotation").rows()}
    of_steps = [ns for name, ns in durations.items() if name.startswith("step_")]
    assert histogram["total_ns"] == sum(of_steps)
    (match,) = job.payload("show", "timeline-search", "--name", "step_41")["matches"]
    assert match["duration_ns"] == durations["step_41"]
    details = job.payload(
        "show", "timeline-slice", "--track", match["track"], "--event", str(match["event"])
    )
    assert (details["name"], details["duration_ns"]) == ("step_41", durations["step_41"])


@pytest.mark.seed("DBP-04", "DBP-06")
def test_operators_and_functions_of_some_steps(job: FinishedJob, run: OpenRun) -> None:
    """Two linear layers; the window contains the operators of its steps and of no other."""
    (trace,) = job.payload("show", "operators", "--top", "0")["traces"]
    calls = {operator["name"]: operator["calls"] for operator in trace["operators"]}
    assert calls["aten::linear"] == 2 * WINDOW[1]
    assert calls["aten::mse_loss"] == WINDOW[1]
    profile = run.python_profile(steps=(10, 50)).rows()
    of_script = [row for row in profile if not row["library"]]
    assert of_script[0]["function"] == "summarize_by_hand"
    assert of_script[0]["own_ns"] > 0.5 * sum(row["own_ns"] for row in of_script)
    main = next(row for row in of_script if row["function"] == "main")
    assert main["total_ns"] >= of_script[0]["own_ns"]
    of_workers = {row["function"] for row in run.python_profile(workers=True).rows()}
    assert "summarize_by_hand" not in of_workers


def test_fetches_of_workers_in_the_causal_graph(job: FinishedJob) -> None:
    graph = get_span_graph(Run(open_run(job.run)))
    assert not isinstance(graph, str)
    assert graph.error_ratio == pytest.approx(0, abs=0.01)
    assert sum(time_ns for _, time_ns in graph.sum_categories()) == graph.measured_ns
    fixed = graph.fixed_edges
    is_work = fixed.edges.kind == EdgeKind.WORK
    assert is_work.sum() >= graph.step_count
    assert {fixed.names[number] for number in fixed.name[is_work]} == {"fetch Points"}
    assert set(PARTS) <= set(fixed.names)


@pytest.mark.seed("DBP-05", "DBU-11")
def test_loader_and_its_workers(run: OpenRun) -> None:
    loading = run.dataloader()
    assert loading.missing == []
    assert loading.iterator_start_ns is not None
    assert loading.iterator_start_ns.count == 1
    assert loading.wait_ns is not None
    assert loading.wait_ns.count == STEPS + 1  # the last one finds no batch
    assert [worker.worker for worker in loading.workers] == [0, 1]
    fetches = run.framework(kind="fetch").numpy()
    for worker in loading.workers:
        assert worker.fetch_ns is not None
        assert worker.fetch_ns.count == STEPS // 2
        of_worker = fetches["process"] == worker.process
        assert worker.started_ns < fetches["start_ns"][of_worker].min()
        assert worker.ended_ns is not None
        assert fetches["end_ns"][of_worker].max() <= worker.ended_ns
    median = np.median(loading.waits.numpy()["duration_ns"])
    assert all(row["duration_ns"] >= 2 * median for row in loading.slow_waits.rows())


@pytest.mark.seed("DBP-01", "DBP-02", "DBP-17")
def test_samples_cover_the_job(job: FinishedJob, run: OpenRun) -> None:
    node = open_run(job.run).nodes()[NODE]
    assert node.sample_interval_ns == 100_000_000
    rows = run.system().rows()
    assert {row["node"] for row in rows} == {NODE}
    assert {row["node"] for row in run.framework().rows()} == {NODE}
    devices: dict[str, set[str]] = {}
    for row in rows:
        devices.setdefault(row["metric"], set()).add(row["device"])
    cores = {str(core) for core in range(node.cores_total)}
    assert devices["core_busy_ratio"] == devices["core_iowait_ratio"] == cores
    assert devices["gpu_busy_ratio"] == devices["gpu_memory_used_bytes"] == {"0", "1"}
    assert devices["memory_used_bytes"] == {""}
    (status,) = open_run(job.run).statuses().values()
    (main,) = (p for p in open_run(job.run).processes() if p.role == "main")
    moments = (main.launched_ns, main.ready_ns, main.started_ns, main.ended_ns, status.end_ns)
    assert None not in moments
    assert sorted(moments, key=lambda t_ns: t_ns or 0) == list(moments)
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert abs((status.launched_ns or 0) - (main.launched_ns or 0)) < tick_ns  # the command itself
    for group, metric in (
        ("network", "network_sent_bytes_per_s"),
        ("disk", "disk_read_bytes_per_s"),
    ):
        assert metric in devices or node.metrics_missing[group]
    busy = {row["device"]: row["value"] for row in rows if row["metric"] == "gpu_busy_ratio"}
    assert busy == {"0": 0.1, "1": 0.2}  # of the stand-in
    optimizer = run.framework(kind="optimizer").numpy()
    times = run.system(metric="memory_used_bytes").numpy()["t_ns"]
    assert times[0] < optimizer["start_ns"].min()
    assert optimizer["start_ns"].max() < times[-1]


@pytest.mark.seed("DBP-02")
def test_other_intervals_are_rejected(tmp_path: Path) -> None:
    answer = run_command(tmp_path, "run", "--interval", "300", "--", "true")
    assert answer.returncode == 2
    for interval in (100, 200, 500, 1000, 5000, 60000):
        assert f"'{interval}'" in answer.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.extended("another job; test_windows.py schedules a window")
@pytest.mark.seed("DBP-03")
def test_a_window_by_time(tmp_path: Path) -> None:
    paced = str(E2E / "windows" / "paced.py")
    window = ("--start-time", "1", "--duration", "0.2")
    done = run_under(
        tmp_path / "run",
        *(sys.executable, paced, "--steps", "400"),
        options=("--window", "asked", "--no-rules", *window),
        strict=False,
    )
    assert done.code == 0, done.stderr
    reader = open_run(done.run)
    (fact,) = [fact for process in reader.processes() for fact in process.facts_of(WindowFact)]
    assert fact.reason == "scheduled"
    traces = reader.table("traces", ["start_ns", "end_ns"])
    (start_ns,), (end_ns,) = traces["start_ns"].tolist(), traces["end_ns"].tolist()
    steps_ns = reader.table("spans", ["start_ns"], condition="kind = 'optimizer'")["start_ns"]
    count = int(((steps_ns >= start_ns) & (steps_ns < end_ns)).sum())
    assert 0 < count < 100  # steps take at least 10 ms
    (status,) = reader.statuses().values()
    assert start_ns >= status.started_ns + 1_000_000_000
