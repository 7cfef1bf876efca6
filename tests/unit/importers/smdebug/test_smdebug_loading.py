"""Input pipelines in SageMaker Debugger's framework events."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stepscope.diagnosis import diagnose
from stepscope.rule_feed import check_rules, choose_rules
from stepscope.run import Run, analyse_loading, count_loader_workers
from stepscope.schema import Finding
from stepscope.views.steps.input_pipeline import show_input_pipeline
from tests.support.debugger_files import EPOCH_NS, DebuggerOutput, Event, event, rows, sample, step

US, MS = 10**3, 10**6
SECOND_US = 10**6


Fetches = dict[int, list[tuple[int, int]]]
"""Start and duration in microseconds of the fetches of each worker."""


def draw_fetches(workers: int, seconds: int, rng: random.Random) -> Fetches:
    """Draw fetches without a pause."""
    fetches: Fetches = {}
    for worker in range(workers):
        at = rng.randint(0, 100_000)
        fetches[worker] = []
        while at < seconds * SECOND_US:
            duration_us = rng.randint(200_000, 900_000)
            fetches[worker].append((at, duration_us))
            at += duration_us
    return fetches


def write_job(output: DebuggerOutput, *, workers: int, cores: int, seconds: int = 30) -> list[int]:
    """Write a job that waits for its batches; return the durations of fetches in microseconds."""
    fetches = draw_fetches(workers, seconds, random.Random(3))
    events: list[Event] = [
        event("DataLoaderIterInitialize", "_MultiProcessingDataLoaderIter.__init__", 0, 900,
              num_workers=workers, pin_memory=False, pid=77)
    ]  # fmt: skip
    for worker, parts in fetches.items():
        events += [
            event("DataLoaderWorker", "fetch", at, duration_us, pid=80 + worker, worker_id=worker)
            for at, duration_us in parts
        ]
    arrivals = sorted(at + duration_us for parts in fetches.values() for at, duration_us in parts)
    at = 1_000
    for number, arrival in enumerate(arrivals):
        ready = max(at + 5, arrival)
        events += [
            event("DataLoaderIter", "_MultiProcessingDataLoaderIter.__next__", at, ready - at),
            event("Forward", "Net", ready, 40_000),
            event("Backward(post-forward)", "Net", ready + 40_000, 50_000),
            step(number, ready, 90_000),
        ]
        at = ready + 90_000
    output.events("77-algo-1", events)
    output.system(
        "algo-1",
        [
            sample("CPUUtilization", f"cpu{core}", 50, second=second)
            for second in range(seconds)
            for core in range(cores)
        ],
    )
    return [duration_us for parts in fetches.values() for _, duration_us in parts]


def check_dataloader(run: Run) -> Finding:
    (finding,) = check_rules(run.reader, choose_rules(["Dataloader"])).findings
    return finding


@pytest.mark.parametrize(
    ("workers", "cores", "fires"), [(4, 8, True), (6, 8, False), (5, 2, True), (4, 2, False)]
)
def test_rule_on_imported_workers(
    output: DebuggerOutput, workers: int, cores: int, fires: bool
) -> None:
    """Below 70% of the cores are too few, above 200% too many."""
    durations_us = write_job(output, workers=workers, cores=cores)
    run = output.imported()
    finding = check_dataloader(run)
    details = finding.details["nodes"]["algo-1"]
    assert (details["cores_available"], details["loader_process_count"]) == (cores, workers)
    assert finding.fired == fires
    assert finding.datapoints == len(durations_us)
    for name, share in {"p25": 0.25, "p50": 0.5, "p95": 0.95}.items():
        exact_s = float(np.quantile(durations_us, share)) / SECOND_US
        assert details[f"loading_{name}_s"] == pytest.approx(exact_s, rel=0.02)
    assert sum(details["loading_histogram"]["counts"]) == len(durations_us)
    assert finding.details["loaders"]["trainer"]["num_workers"] == workers
    assert "Batches are not in pinned memory." in " ".join(finding.sentences)


@pytest.mark.seed("DBU-11")
def test_view_and_verdict_of_workers(output: DebuggerOutput) -> None:
    durations_us = write_job(output, workers=4, cores=8)
    run = output.imported()
    (rank,) = show_input_pipeline(run).ranks
    assert rank.making is not None
    assert rank.making.batch_count == len(durations_us)
    assert rank.making.mean_ns == pytest.approx(np.mean(durations_us) * US)
    assert rank.making.worker_busy_ratio == pytest.approx(1)
    # Files of Debugger state neither CPU time nor the parts of a fetch.
    assert (rank.making.cpu_ratio, rank.making.collate_ratio) == (None, None)
    assert rank.making.samples_ratio is None
    waits = rows(run, kind="data_wait")
    assert len(waits) == len(durations_us)
    verdict = diagnose(run)
    assert verdict.suspect == "data_pipeline"
    assert "None" not in " ".join(evidence.text for evidence in verdict.evidence)
    analysis = analyse_loading(run)
    assert analysis.missing == []
    assert sorted(worker.worker or 0 for worker in analysis.workers) == [0, 1, 2, 3]
    assert count_loader_workers(run.ranks[0]) == 4


def test_workers_with_files_of_their_own(output: DebuggerOutput) -> None:
    output.events("77-algo-1", [step(n, 1000 * n, 900) for n in range(20)])
    for pid in (80, 81):
        fetches = [
            event("DataLoaderWorker", "fetch", 1000 * n, 800, pid=pid, worker_id=pid - 80)
            for n in range(20)
        ]
        output.events(f"{pid}-algo-1", fetches, end_us=pid)
    run = output.imported()
    main, *workers = sorted(run.processes, key=lambda process: process.pid)
    assert (main.role, main.pid) == ("main", 77)
    assert {(w.role, w.pid, w.parent_pid) for w in workers} == {
        ("dataloader_worker", 80, 77),
        ("dataloader_worker", 81, 77),
    }
    assert count_loader_workers(run.ranks[0]) == 2
    (rank,) = show_input_pipeline(run).ranks
    assert rank.making is not None
    assert rank.making.batch_count == 40


def test_loader_without_workers(output: DebuggerOutput) -> None:
    """The training process creates a batch during its wait."""
    events = [
        event("DataLoaderIterInitialize", "_SingleProcessDataLoaderIter.__init__", 0, 10,
              num_workers="0", pin_memory="True")
    ]  # fmt: skip
    for number in range(40):
        at = 400_000 * number + 10
        events += [
            event("DataLoaderIter", "_SingleProcessDataLoaderIter.__next__", at, 300_000 + number),
            event("Forward", "Net", at + 300_100, 50_000),
            event("Backward(post-forward)", "Net", at + 350_100, 40_000),
            step(number, at + 300_100, 90_000),
        ]
    output.events("77-algo-1", events)
    output.system("algo-1", [sample("CPUUtilization", f"cpu{core}", 50) for core in range(4)])
    run = output.imported()
    fetches, waits = rows(run, kind="fetch"), rows(run, kind="data_wait")
    assert [(r["start_ns"], r["end_ns"]) for r in fetches] == [
        (r["start_ns"], r["end_ns"]) for r in waits
    ]
    assert count_loader_workers(run.ranks[0]) == 0
    finding = check_dataloader(run)
    assert finding.fired
    assert not finding.details["nodes"]["algo-1"]["has_workers"]
    assert "pinned" not in " ".join(finding.sentences)


def test_pipeline_of_tensorflow(output: DebuggerOutput) -> None:
    """The model waits in IteratorGetNext; a call of a dataset inside another makes no batch."""
    events = []
    for number in range(40):
        at = 400_000 * number
        events += [
            event("DataIterator", "IteratorGetNextOp::DoCompute", at, 300_000),
            event("DataIterator", "dataset::GetNext", at + 10, 299_000),
            event("DataIterator", "dataset::GetNext", at + 20, 1_000),
            event("DataIterator", "dataset::GetNext", at + 2_000, 200_000),
            step(number, at, 390_000),
        ]
    output.events("905-algo-1", events, suffix="model_timeline")
    output.system("algo-1", [sample("CPUUtilization", f"cpu{core}", 50) for core in range(4)])
    run = output.imported()
    assert len(rows(run, kind="sample")) == 2 * 40
    fetches = rows(run, kind="fetch")
    assert [r["start_ns"] for r in fetches] == [
        EPOCH_NS + 400 * MS * n + 10 * US for n in range(40)
    ]
    (rank,) = show_input_pipeline(run).ranks
    assert rank.making is not None
    assert rank.making.mean_ns == 299 * MS
    measured = run.ranks[0].steps.measured()
    wall_ns = run.ranks[0].steps.wall_ns[measured].sum()
    assert rank.waiting.share_ratio == pytest.approx(measured.sum() * 300 * MS / wall_ns)
    finding = check_dataloader(run)
    assert not finding.fired
    assert finding.details["nodes"]["algo-1"]["loader_process_count"] is None
    assert "threads of the training process create the batches" in finding.sentences[0]
    assert diagnose(run).suspect == "data_pipeline"
