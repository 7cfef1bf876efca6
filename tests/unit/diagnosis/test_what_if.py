"""Predictions of fixes: worked examples, simulated loaders and schedulers. Milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from stepscope.diagnosis import Verdict, diagnose
from stepscope.diagnosis.fixes.fact_fixes import OVERLAP, PREPARE_BESIDE
from stepscope.diagnosis.fixes.what_if import CPU_TIME_RETURNED
from stepscope.diagnosis.shares.pipeline_model import (
    HANDOVER_NS,
    UNCERTAINTY_RATIO,
    BatchWork,
    Pipeline,
    TrainingWork,
    WorkerEstimate,
    plan_step,
)
from stepscope.rule_feed import check_rules, choose_rules, refuse_advice
from stepscope.testing import RunBuilder
from tests.support.cause_runs import CAUSE_RUNS, COMPUTE, SETTINGS
from tests.support.simulated_loaders import Loader, draw_loader, simulate_training

RunMaker = Callable[..., RunBuilder]

MS = 1_000_000

WITHOUT = {
    "padding": 100 - 80 * 36 / 48,
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
    "slow_input_pipeline": 40,
    "waiting_for_a_thread": 40,
    "waiting_for_a_process": 40,
    "waiting_for_a_service": 40,
    "waiting_for_a_program": 40,
    "waiting_for_a_coroutine": 40,
    "waiting_for_a_lock": 40,
    "host_to_device_copies": 41,
    "host_sync": 45,
    "logging": 45,
    "garbage_collection": 45,
    "debug_switch": 30,
    "job_profiler": 45,
    "too_many_workers": 40,
    # Without sizeable operators in the forward pass, nor, as far as known, in most of the backward
    # pass: with 5 ms of the optimizer, twice the samples take only the rest more.
    "small_batch": 40 - (20 + 15 * 20 / 21 + 5) / 2,
    "python_overhead": 45,
    "sleeping": 45,
    "model_callbacks": 45,
    "checkpoint": 45,
    "recompilation": 40,
    "evaluation": 41 + 0.1 * 30,
    "memory_leak": 40 + 13,
    "cpu_limit": 16,
    "straggler": 40,
    "uneven_ranks": 55,
    "gradient_accumulation": 90,
    "cpu_contention": 16,
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
    "too_many_workers",
    "debug_switch",
    "job_profiler",
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


@pytest.mark.parametrize("has_loader", [True, False])
@pytest.mark.parametrize("outside", [0.0, 1.5])
@pytest.mark.parametrize("fetch_ms", [1, 2, 3, 6])
def test_no_workers_are_advised_for_batches_that_are_handed_over_more_slowly(
    new_run: RunMaker, fetch_ms: int, outside: float, has_loader: bool
) -> None:
    """A step creates its batch itself, as long as it trains, on a quiet machine or a busy one."""
    run = new_run(cores=4)
    if has_loader:
        fetch = f"wait=-1 {fetch_ms} ( fetch {fetch_ms} ( samples ( do:decode {fetch_ms} ) ) )"
        rank = run.rank(workers=0).draw(f"{fetch} | forward {fetch_ms}  | optimizer 0.1", 600)
    else:
        rank = run.rank().draw(f"do:batch {fetch_ms} | forward {fetch_ms} | optimizer 0.1", 600)
    run.metric("job_cpu_cores", 1).metric("outside_cpu_cores", outside)
    run.metric("process_cpu_cores", 1, device=str(rank.info.pid))
    source = run.open()
    verdict = diagnose(source)
    assert verdict.suspect == "data_pipeline"
    titles = " ".join(fix.title for fix in verdict.fixes)
    is_advised = "DataLoader worker" in titles or PREPARE_BESIDE in titles
    assert is_advised == (fetch_ms > 3)
    note = f"More DataLoader workers are no fix here: a batch is created in {fetch_ms} ms, and"
    assert any(text.startswith(note) for text in verdict.notes) != is_advised
    findings = check_rules(source.reader, choose_rules(["DataloaderBottleneck"])).findings
    (finding,) = refuse_advice(findings, source)
    assert finding.fired == has_loader
    refused = "Refused by the verdict, because a batch is created in"
    assert (refused in finding.recommendation) == (has_loader and not is_advised)


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


@pytest.mark.parametrize(("workers", "fetch"), [(1, 18), (2, 36), (2, 10), (4, 60)])
def test_checkpoints_that_hide_a_loader(new_run: RunMaker, workers: int, fetch: int) -> None:
    """Without checkpoints, which take half of the step, the thread waits for its batches."""
    loader = Loader(fetch, 10, workers, save=100, steps=200)
    verdict = diagnose(draw_loader(new_run(), loader).open())
    assert verdict.cause == "checkpoint"
    prediction = verdict.fixes[0].prediction
    assert prediction is not None
    expected_ms = simulate_training(loader._replace(save=0)).step_ms
    assert prediction.step_ns / MS == pytest.approx(expected_ms, rel=0.02)
