"""Predictions of fixes: worked examples, a simulated loader, and each cause. Milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from stepscope.diagnosis import Verdict, diagnose
from stepscope.diagnosis.advice import OVERLAP
from stepscope.diagnosis.pipeline_model import HANDOVER_NS, Pipeline, WorkerEstimate
from stepscope.diagnosis.what_if import CPU_TIME_RETURNED
from stepscope.testing import RunBuilder
from tests.support.cause_runs import CAUSE_RUNS, COMPUTE

RunMaker = Callable[..., RunBuilder]

MS = 1_000_000

WITHOUT = {
    "slow_reads": 50,
    "slow_decode": 50,
    "slow_augmentation": 60,
    "slow_tokenisation": 40,
    "slow_collate": 60,
    "slow_dataset": 40,
    "too_few_workers": 40,
    "worker_startup": 122 / 3,
    "batch_handover": 40,
    "inline_data_preparation": 40 + HANDOVER_NS / MS,
    "host_to_device_copies": 41,
    "host_sync": 45,
    "logging": 45,
    "garbage_collection": 45,
    "debug_switch": 30,
    # Without sizeable operators in the forward pass, nor, as far as known, in most of the backward
    # pass: with 5 ms of the optimizer, twice the samples take only the rest more.
    "small_batch": 40 - (20 + 15 * 20 / 21 + 5) / 2,
    "python_overhead": 45,
    "checkpoint": 45,
    "recompilation": 40,
    "evaluation": 41 + 0.1 * 30,
    "memory_leak": 40 + 13,
    "cpu_limit": 16,
    "straggler": 60,
    "uneven_ranks": 55,
    "gradient_accumulation": 90,
    "cpu_contention": 20,
    "optimizer": 40,
    "gradient_exchange": 70,
    "collectives": 40,
}
"""Step of each drawn run without its cause, derived from the drawing."""
WITHOUT_PREDICTION = {"compute", "unknown"}
ACHIEVABLE = {
    "inline_data_preparation",
    "evaluation",
    "gradient_accumulation",
    "memory_leak",
    "too_few_workers",
    "debug_switch",
    "small_batch",
}
"""Causes with a fix that does not have to remove a part entirely to save as much."""


@pytest.mark.parametrize("cause", CAUSE_RUNS)
def test_prediction_of_the_first_fix_of_each_cause(
    judge_cause: Callable[[str], Verdict], cause: str
) -> None:
    verdict = judge_cause(cause)
    predictions = [fix.prediction for fix in verdict.fixes]
    assert verdict.mean_step_ns is not None
    if cause in WITHOUT_PREDICTION:
        assert predictions in ([], [None, None])
        return
    first = predictions[0]
    assert ("at most" in first.text) == first.is_bound == (cause not in ACHIEVABLE)
    for prediction in filter(None, predictions):
        assert prediction.condition
        assert 0 <= prediction.saving_ratio < 1
        step_ns = prediction.measured_ns * (1 - prediction.saving_ratio)
        assert prediction.step_ns == pytest.approx(step_ns)
        assert (prediction.measured_ns == verdict.mean_step_ns) == (cause != "evaluation")
    if cause in WITHOUT:
        assert first.step_ns == pytest.approx(WITHOUT[cause] * MS)
    else:  # the share of dispatch in the compute phases
        inside = [s.share_ratio for s in verdict.stages if s.name.startswith("dispatch")]
        assert first.saving_ratio == pytest.approx(sum(inside))


def test_reads_that_wait_are_overlapped_by_more_workers(
    judge_cause: Callable[[str], Verdict],
) -> None:
    """A batch takes 60 ms and the passes 40 ms; two workers hide it."""
    fixes = {fix.title: fix.prediction for fix in judge_cause("slow_reads").fixes}
    overlapped = fixes[OVERLAP]
    assert overlapped.step_ns == pytest.approx(40 * MS + HANDOVER_NS)


def simulate_loader(workers: int, *, busy: int, fetch: int, steps: int = 400) -> float:
    """Simulate a loader whose workers take turns and prefetch two batches each; return its mean
    step."""
    if not workers:
        return busy + fetch
    made_at: list[int] = []
    received_at: list[int] = []
    now = 0
    for batch in range(steps):
        free = made_at[batch - workers] if batch >= workers else 0
        room = received_at[batch - 2 * workers] if batch >= 2 * workers else 0
        made_at.append(max(free, room) + fetch)
        now = max(now, made_at[batch])
        received_at.append(now)
        now += busy
    half = steps // 2
    return (received_at[-1] - received_at[half - 1]) / (steps - half)


@given(
    workers=st.integers(0, 6),
    after=st.integers(0, 6),
    busy=st.integers(1, 60),
    fetch=st.integers(1, 200),
    new_fetch=st.integers(0, 200),
)
def test_the_model_agrees_with_a_simulated_loader(
    workers: int, after: int, busy: int, fetch: int, new_fetch: int
) -> None:
    new_fetch = min(new_fetch, fetch)
    busy, fetch, new_fetch = (time * 1000 * MS for time in (busy, fetch, new_fetch))
    now = simulate_loader(workers, busy=busy, fetch=fetch)
    pipeline = Pipeline(
        workers=workers,
        cores=None,
        busy_ns=busy,
        making_ns=now - busy,
        starting_ns=0,
        handing_over_ns=0,
        fetch_ns=fetch,
        fetch_cpu_ns=0,
        other_cpu_ns=0,
    )
    assert pipeline.predict_step_ns() == pytest.approx(now)
    expected = simulate_loader(after, busy=busy, fetch=new_fetch)
    predicted = pipeline.predict_step_ns(workers=after, fetch_ratio=new_fetch / fetch)
    assert predicted == pytest.approx(expected, rel=0.05)  # workers start at uneven intervals


def test_batches_that_come_late_by_chance(new_run: RunMaker) -> None:
    # Two workers create a batch every 20 ms for steps of 40 ms; one batch in ten is 300 ms late.
    run = new_run()
    process = run.rank(workers=2)
    for _ in range(20):
        process.draw(f"wait=1 0 | {COMPUTE}", 9).draw(f"wait=0 300 | {COMPUTE}")
    process.workers[0].draw("fetch 40", 200)
    opened = run.open()
    pipeline = Pipeline.measure(opened, opened.ranks[0])
    measured = float(opened.ranks[0].steps.wall_ns[opened.ranks[0].steps.measured()].mean())
    assert pipeline.predict_step_ns() == pytest.approx(measured)
    assert pipeline.predict_steady_ns() == pytest.approx(40 * MS)
    half = 40 * MS + (measured - 40 * MS) / 2
    assert pipeline.predict_step_ns(workers=4) == pytest.approx(half)


@pytest.mark.parametrize(("without_core", "is_contended"), [(0.1, True), (0.004, False)])
def test_cpu_time_returned_to_the_training_thread(
    new_run: RunMaker, without_core: float, is_contended: bool
) -> None:
    """Steps of 100 ms, 60 ms of them waiting for a batch of which 90% is decoding.

    Without decoding, 90% of the time without a core also disappears from the other 40 ms. A
    prediction that saves more than the waiting explains this.
    """
    run = new_run(cores=2)
    process = run.rank(workers=1).draw(f"wait=0 60 | {COMPUTE}", 50)
    process.workers[0].draw("fetch ( samples ( do:decode 90 ) | collate 10 )", 50)
    run.metric("job_cpu_cores", 1.4).metric("outside_cpu_cores", 0)
    run.metric("process_cpu_cores", 1, device=str(process.workers[0].info.pid))
    run.metric("process_cpu_cores", 0.4, device=str(process.info.pid))
    run.metric("process_runqueue_ratio", without_core, device=str(process.info.pid))
    verdict = diagnose(run.open())
    prediction = verdict.fixes[0].prediction
    assert prediction.step_ns == pytest.approx((40 - 0.9 * 100 * without_core) * MS, rel=0.01)
    assert prediction.condition == "decoding took no time" + (
        CPU_TIME_RETURNED if is_contended else ""
    )
    assert (prediction.saving_ratio > verdict.phases["data_wait"] + 0.005) == is_contended
    assert prediction.saving_ratio <= verdict.share_ratio


# --- number of workers -------------------------------------------------------------------------


def estimate_workers(
    run: RunBuilder, *, wait: float, fetch: str, job_cores: float, ranks: int = 1, batches: int = 1
) -> WorkerEstimate:
    for _ in range(ranks):
        process = run.rank(workers=1)
        process.draw(" | ".join([f"wait {wait}"] * batches) + f" | {COMPUTE}", 50)
        process.workers[0].draw(fetch, 50 * batches)
    run.metric("job_cpu_cores", job_cores).metric("outside_cpu_cores", 0)
    opened = run.open()
    pipeline = Pipeline.measure(opened, opened.ranks[0])
    estimate = pipeline.find_best_workers()
    assert estimate is not None
    return estimate


@pytest.mark.parametrize(
    ("cores", "drawn", "workers", "step_ms", "tolerance"),
    [
        # 40 ms of compute, batches of 100 ms: three workers create one every 33 ms.
        (8, {"wait": 60, "fetch": "fetch 100", "job_cores": 1.4}, 3, 40, 1e-6),
        # Per step of 100 ms: 90 ms CPU for the batch, 130 - 90 ms for the rest, two cores.
        (2, {"wait": 60, "fetch": "fetch=0.9 100", "job_cores": 1.3}, 2, (90 + 40) / 2, 0.03),
        # Reads that wait need no cores.
        (4, {"wait": 60, "fetch": "fetch=0.01 160", "job_cores": 0.4}, 4, 40, 1e-6),
        # 160 ms per batch for 40 ms of compute; 62 ms of it are CPU time, which two cores can
        # supply: workers that mostly wait may be twice as many as cores.
        (2, {"wait": 120, "fetch": "fetch=0.39 160", "job_cores": 0.6}, 4, 160 / 4, 0.35),
        (2, {"wait": 120, "fetch": "fetch=0.41 160", "job_cores": 0.6}, 2, 160 / 2, 0.35),
        # Each of two ranks of a node has two cores for 100 ms of batch creation and 40 ms of
        # compute.
        (4, {"wait": 60, "fetch": "fetch 100", "job_cores": 2.8, "ranks": 2}, 2, 70, 1e-6),
        # Two batches of 50 ms in sequence for 40 ms of compute
        (None, {"wait": 30, "fetch": "fetch 50", "job_cores": 1.4, "batches": 2}, 3, 40, 1e-6),
    ],
)
def test_the_best_number_of_workers(
    new_run: RunMaker,
    cores: int | None,
    drawn: dict[str, Any],
    workers: int,
    step_ms: float,
    tolerance: float,
) -> None:
    run = new_run() if cores is None else new_run(cores=cores)
    estimate = estimate_workers(run, **drawn)
    assert estimate.workers == workers
    assert estimate.step_ns == pytest.approx(step_ms * MS, rel=tolerance)
    if tolerance < 0.1:
        assert estimate.data_ratio == pytest.approx(1 - 40 / step_ms, rel=0.03, abs=1e-6)


def test_a_worker_that_waits_for_a_core_needs_one(new_run: RunMaker) -> None:
    # 60 ms CPU and 30 ms without a core are 90 ms; 130 - 90 ms for the rest; two cores.
    run = new_run(cores=2)
    run.metric("process_runqueue_ratio", 0.3, device="1100")  # the worker's pid
    estimate = estimate_workers(run, wait=60, fetch="fetch=0.6 100", job_cores=1.3)
    assert (estimate.workers, estimate.step_ns) == (2, pytest.approx(65e6, rel=0.03))


@pytest.mark.parametrize("is_recorded", [False, True])
def test_no_number_of_workers_without_recorded_fetches_or_known_cores(
    new_run: RunMaker, is_recorded: bool
) -> None:
    run = new_run()
    process = run.rank(workers=1).draw(f"wait 60 | {COMPUTE}", 50)
    if is_recorded:
        process.workers[0].draw("fetch 100", 50)
    opened = run.open()
    pipeline = Pipeline.measure(opened, opened.ranks[0])
    assert (pipeline is not None) == is_recorded
    if is_recorded:
        assert pipeline.find_best_workers() is None
