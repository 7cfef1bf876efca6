"""The CPU budget, against a simulated scheduler and against measured loaders."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.diagnosis import diagnose
from stepscope.diagnosis.cpu_budget import BatchWork, TrainingWork, plan_step
from stepscope.diagnosis.pipeline_model import UNCERTAINTY_RATIO, Pipeline
from stepscope.testing import RunBuilder
from tests.support.cause_runs import COMPUTE, SETTINGS

MS = 1_000_000


def simulate_scheduler(*, compute: int, fetch: int, workers: int, cores: int) -> float:
    """Simulate a training thread and workers on cores that are shared fairly, without intra-op
    threads; return the mean step. A worker may be two batches ahead."""
    step_count, tick = 91, 0.05
    remaining: list[float] = [0.0] * workers  # work on the batch of each worker
    busy = [False] * workers
    ready = started = done = 0
    training, now, times = 0.0, 0.0, []
    while done < step_count:
        for worker in range(workers):
            if not busy[worker] and started < done + 2 * workers:
                busy[worker], remaining[worker], started = True, float(fetch), started + 1
        is_computing = training > 0
        if not is_computing and ready:
            ready, training, is_computing = ready - 1, float(compute), True
        speed = min(1.0, cores / max(1, sum(busy) + is_computing))
        for worker in range(workers):
            if busy[worker]:
                remaining[worker] -= speed * tick
                if remaining[worker] <= 0:
                    busy[worker], ready = False, ready + 1
        if is_computing:
            training -= speed * tick
            if training <= 0:
                done += 1
                times.append(now)
        now += tick
    # Batches of 1 to 3 workers arrive together: 60 steps hold whole groups.
    return (times[90] - times[30]) / 60


@settings(max_examples=30)
@given(
    compute=st.integers(2, 12),
    fetch=st.integers(2, 24),
    workers=st.integers(1, 3),
    idle=st.integers(0, 2),
)
def test_one_thread_and_its_workers_share_the_cores(
    compute: int, fetch: int, workers: int, idle: int
) -> None:
    cores = workers + idle
    plan = plan_step(
        TrainingWork(wall_ns=compute, parallel_ratio=0.0, threads=1),
        BatchWork(wall_ns=fetch, cpu_ns=fetch),
        workers,
        float(cores),
    )
    simulated = simulate_scheduler(compute=compute, fetch=fetch, workers=workers, cores=cores)
    assert 0.9 * simulated <= plan.busy_ns + plan.wait_ns <= 1.35 * simulated
    if workers < cores:
        assert plan.stretch_ns == 0
        assert plan.busy_ns + plan.wait_ns == pytest.approx(simulated, rel=0.05)


class Measured(NamedTuple):
    """Loader without workers and with two intra-op threads on two idle cores, in milliseconds."""

    compute: float
    cpu: float
    """CPU time of the compute, of both threads."""
    fetch: float
    changes: dict[tuple[int, int], float]
    """Step with other numbers of workers and threads, over the step without workers."""
    megabytes: float = 0.6
    steps_per_epoch: float = 1e9


MEASURED = {
    "perceptron": Measured(28.7, 49.7, 31.6, {(1, 2): 1.30, (1, 1): 0.68}),
    "convolutions": Measured(42.7, 75.6, 31.4, {(1, 2): 1.19, (1, 1): 0.82}),
    "small layers": Measured(17.7, 30.7, 15.7, {(1, 2): 1.15, (1, 1): 0.49}, 0.1),
    "slow batches": Measured(9.2, 15.0, 50.7, {(1, 2): 1.23, (1, 1): 0.90, (2, 1): 0.57}),
    "cheap batches": Measured(62.8, 110.0, 12.0, {(1, 2): 0.91}),
    "cheaper batches": Measured(41.0, 69.3, 11.8, {(1, 2): 0.80}),
    "short steps": Measured(4.7, 8.8, 2.26, {(1, 2): 1.19, (1, 1): 0.75}, 0.02),
    "short epochs": Measured(9.0, 16.2, 4.9, {(1, 1): 0.98}, 0.1, steps_per_epoch=30),
    "large batches": Measured(15.1, 15.0, 2.8, {(1, 1): 1.22}, 20),
}


@pytest.mark.parametrize("case", MEASURED)
def test_advice_has_the_sign_of_measured_changes(case: str) -> None:
    measured = MEASURED[case]
    threads = 2 if measured.cpu > 1.1 * measured.compute else 1
    pipeline = Pipeline(
        workers=0,
        threads=threads,
        cores=2.0,
        busy_ns=measured.compute * MS,
        making_ns=measured.fetch * MS,
        starting_ns=0,
        handing_over_ns=0,
        fetch_ns=measured.fetch * MS,
        fetch_cpu_ns=measured.fetch * MS,
        other_cpu_ns=measured.cpu * MS,
        batch_bytes=measured.megabytes * 1e6,
        start_count=1 / measured.steps_per_epoch,
    )
    step_ns = pipeline.predict_step_ns()
    better = pipeline.find_better_workers()
    if better is not None:
        assert measured.changes[better.workers, better.threads] < 1 - UNCERTAINTY_RATIO / 2
    elif case in {"perceptron", "small layers", "slow batches"}:
        pytest.fail("an advice that was right is missing")
    for (workers, thread_count), change in measured.changes.items():
        if thread_count == threads and change > 1:
            predicted_ns = pipeline.predict_step_ns(workers=workers)
            assert predicted_ns > (1 - UNCERTAINTY_RATIO) * step_ns


@pytest.mark.parametrize(
    ("cores", "threads", "cpu", "title"),
    [
        (8, 2, 1.8, "Use 1 DataLoader worker instead of 0"),  # there are cores for all
        (2, 1, 1.0, "Use 1 DataLoader worker instead of 0"),
        (2, 2, 1.9, None),  # the worker would have the core of the second thread
        (1, 1, 1.0, None),
        (2, 2, 1.4, "Use 1 DataLoader worker instead of 0 and 1 intra-op thread instead of 2"),
        (2, 8, 1.0, "Use 1 DataLoader worker instead of 0"),  # a GPU does the work
    ],
)
def test_workers_are_advised_where_cores_are_left(
    tmp_path: Path, cores: int, threads: int, cpu: float, title: str | None
) -> None:
    """Steps of 40 ms after batches of 30 ms, with `cpu` busy cores in the 40 ms."""
    run = RunBuilder(tmp_path, cores=cores, code={"decode": "main > decode:PIL"})
    rank = run.rank(workers=0)
    rank.draw(f"wait ( fetch 30 ( samples ( do:decode 30 ) ) ) | {COMPUTE}", 60)
    rank.fact("settings", **{**SETTINGS, "intra_op_threads": threads})
    run.metric("job_cpu_cores", (30 + cpu * 40) / 70).metric("outside_cpu_cores", 0)
    run.metric("process_cpu_cores", (30 + cpu * 40) / 70, device=str(rank.info.pid))
    verdict = diagnose(run.open())
    titles = [fix.title for fix in verdict.fixes if "worker" in fix.title]
    assert titles == ([] if title is None else [title])
    notes = [note for note in verdict.notes if "no fix here" in note]
    assert len(notes) == (title is None)
