"""Time without a core: contention with workers, and recorded delays."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.diagnosis import diagnose
from stepscope.diagnosis.shares.cpu_contention import compute_worker_share, measure_core_waits
from stepscope.diagnosis.shares.shares import (
    build_phase_matrix,
    compute_shares,
    measure_phase_split,
)
from stepscope.diagnosis.verdict import CORE_SHARE, STEP_SHARE
from stepscope.run import Run
from stepscope.testing import RunBuilder
from tests.support.cause_runs import SETTINGS

WAIT, BUSY = 10, 90
WITHOUT_CORE = 0.36


def record_contention(
    path: Path,
    *,
    outside: float = 0.0,
    worker: float = 0.9,
    job: float = 0.0,
    workers: int = 1,
    stolen: float = 0.0,
) -> Run:
    """A tenth of the step is batch handover; for 36% of it the thread has no core."""
    run = RunBuilder(path)
    rank = run.rank(workers=workers)
    rank.draw(f"wait=1 {WAIT} | forward 40 | backward 40 | optimizer {BUSY - 80}", 60)
    pid = str(rank.info.pid)
    if workers:
        rank.workers[0].draw("fetch 95 | do 5", 60)
        run.metric("process_cpu_cores", worker, device=str(rank.workers[0].info.pid))
    run.metric("process_runqueue_ratio", WITHOUT_CORE, device=pid)
    run.metric("process_cpu_cores", 0.8, device=pid)
    run.metric("job_cpu_cores", 0.8 + worker + job)
    run.metric("outside_cpu_cores", outside + stolen).metric("stolen_cpu_cores", stolen)
    return run.open()


def test_contention_by_workers_counts_for_the_data_pipeline(tmp_path: Path) -> None:
    run = record_contention(tmp_path)
    verdict = diagnose(run)
    # Handover and everything outside the waiting need a core. The worker is busy for 95% of the
    # time, so half of the waiting is for unfinished batches.
    blocked = WAIT - 0.05 * (WAIT + BUSY)
    without_core = WITHOUT_CORE * (WAIT + BUSY) / (WAIT + BUSY - blocked)
    expected = (WAIT + BUSY * without_core) / (WAIT + BUSY)
    assert verdict.suspect == "data_pipeline"
    assert verdict.share_ratio == pytest.approx(expected, abs=0.01)
    assert any("because the workers had the cores" in e.text for e in verdict.evidence)
    shares = compute_shares(build_phase_matrix(run.ranks), measure_phase_split(run.ranks))
    assert sum(shares.suspects.values()) == pytest.approx(1)
    assert sum(shares.phases.values()) + shares.worker_contention == pytest.approx(1)
    busy_ratio = BUSY / (WAIT + BUSY)
    remaining = 1 - shares.worker_contention / busy_ratio
    assert shares.phases["forward"] == pytest.approx(0.4 * remaining)


@pytest.mark.parametrize(
    ("case", "share"),
    [
        ({}, 1.0),
        ({"outside": 0.6}, 0.9 / 1.5),  # processes outside the job compete too
        ({"job": 0.9}, 0.5),  # another process of the job uses as many cores
        ({"worker": 0.0}, 0.0),
        # 0.34 cores were stolen from 1.7 running ones, a fifth: of 0.8 cores that is 0.16.
        ({"stolen": 0.34}, WITHOUT_CORE / (WITHOUT_CORE + 0.16)),
        ({"workers": 0}, 0.0),
    ],
)
def test_contention_is_shared_by_cores_used(
    tmp_path: Path, case: dict[str, float], share: float
) -> None:
    run = record_contention(tmp_path, **case)
    assert compute_worker_share(run) == pytest.approx(share)
    assert (measure_core_waits(run.ranks).outside_data_wait > 0) == (share > 0)


@pytest.mark.parametrize("without_core", [0.0, 0.05, 0.2])
@pytest.mark.parametrize(("usual", "late"), [(2, 32), (12, 12)])
def test_ready_batches_delayed_by_other_processes(
    tmp_path: Path, usual: int, late: int, without_core: float
) -> None:
    """Two of three batches are handed over in `usual` ms, the third in `late` ms, beside 100 ms of
    compute. Irregular handover time counts as time without a core, as far as any was measured; the
    workers use a third of the competing cores and cause a third of it."""
    builder = RunBuilder(tmp_path)
    rank = builder.rank(workers=1)
    for _ in range(60):
        for wait in (usual, usual, late):
            rank.draw(f"wait=1 {wait} | forward 50 | backward 50 | optimizer 1")
    rank.workers[0].draw("fetch 10 | do 90", 180)
    builder.metric("process_runqueue_ratio", without_core, device=str(rank.info.pid))
    builder.metric("process_cpu_cores", 1, device=str(rank.info.pid))
    builder.metric("process_cpu_cores", 0.3, device=str(rank.workers[0].info.pid))
    builder.metric("job_cpu_cores", 1.3).metric("outside_cpu_cores", 0.6)
    run = builder.open()

    waiting, busy = (2 * usual + late) / 3, 101
    step, irregular = waiting + busy, (late - usual) / 3
    runnable = without_core * step
    receiving = min(runnable, waiting, max(irregular, runnable * waiting / step))
    outside_data_wait = (runnable - receiving) / busy / 3
    split = measure_phase_split(run.ranks)
    core_waits = split.core_waits
    assert core_waits.handover == pytest.approx(receiving / waiting / 3, rel=0.02)
    assert core_waits.handover_others == pytest.approx(receiving / waiting * 2 / 3, rel=0.02)
    assert core_waits.outside_data_wait == pytest.approx(outside_data_wait, rel=0.05, abs=1e-3)
    shares = compute_shares(build_phase_matrix(run.ranks), split)
    delayed = receiving * 2 / 3
    assert shares.delayed_by_others == pytest.approx(delayed / step, rel=0.02)
    expected = (waiting - delayed + outside_data_wait * busy) / step
    assert shares.suspects["data_pipeline"] == pytest.approx(expected, rel=0.02)
    assert sum(shares.suspects.values()) + shares.delayed_by_others == pytest.approx(1)
    notes = [note for note in diagnose(run).notes if "a batch was ready" in note]
    assert bool(notes) == (delayed / step >= 0.05)


RunMaker = Callable[..., RunBuilder]
MS = 1_000_000
STEPS = 60
MEASURED = 54
"""Steps after the first tenth."""
DECODE = "samples ( do:decode {0} )"


def draw(
    run: RunBuilder, step: str, delay_ms: float, *, outside: float = 1.5, workers: int | None = 0
) -> None:
    rank = run.rank(workers=workers).draw(step, STEPS)
    rank.thread().draw(f"run_queue={round(delay_ms * MS)} 100", STEPS)
    rank.fact("stack_sampler", period_ns=100 * MS, counts_delays=True)
    run.metric("job_cpu_cores", 0.5).metric("outside_cpu_cores", outside)
    run.metric("process_cpu_cores", 0.5, device=str(rank.info.pid))
    run.metric("process_runqueue_ratio", delay_ms / 100, device=str(rank.info.pid))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # A thread wants no core while a worker still creates the batch.
        ("wait=0 20 | forward 40 | backward 30 | optimizer 10", (0, 20, 15, 5)),
        ("wait=1 20 | forward 40 | backward 30 | optimizer 10", (8, 16, 12, 4)),
        ("wait=-1 20 | forward 40 | backward 30 | optimizer 10", (8, 16, 12, 4)),
        ("wait=0 70 | forward 10 | backward 10 | optimizer 10", (28, 4, 4, 4)),
    ],
)
def test_delays_belong_to_phases_that_want_a_core(
    new_run: RunMaker, step: str, expected: tuple[int, ...]
) -> None:
    run = new_run()
    draw(run, step, 40, workers=1)
    delays = run.open().ranks[0].core_delays.phase_ns
    phases = ("data_wait", "forward", "backward", "optimizer")
    measured = [delays[phase] / MEASURED / MS for phase in phases]
    assert measured == pytest.approx(expected)
    assert delays["other"] == delays["h2d"] == 0


def test_a_run_that_counted_no_delays_has_none(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("forward 50 | backward 40 | optimizer 10", STEPS)
    assert run.open().ranks[0].core_delays is None


@pytest.mark.parametrize("delay_ms", [0, 30, 49])
def test_a_slow_decode_is_named_whatever_the_contention(new_run: RunMaker, delay_ms: int) -> None:
    run = new_run(cores=2)
    step = f"wait=-1 ( fetch 35 ( {DECODE.format(35)} ) ) | forward 30 | backward 30 | optimizer 5"
    draw(run, step, delay_ms)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "slow_decode")
    assert verdict.share_ratio == pytest.approx(0.35, abs=0.01)
    assert verdict.mean_step_ns == pytest.approx(100 * MS)
    assert verdict.phases["data_wait"] == pytest.approx(0.35)
    beside = {cause.cause: cause.share_ratio for cause in verdict.also}
    assert beside.get("cpu_contention", 0) == pytest.approx(delay_ms / 100, abs=0.01)
    assert verdict.share_of == (CORE_SHARE if delay_ms else STEP_SHARE)
    assert any("time without a core" in note for note in verdict.notes) == (delay_ms > 0)


def test_only_the_phase_that_was_delayed_gets_shorter(new_run: RunMaker) -> None:
    """Forward passes take 60 ms, 50 ms of them without a core: decoding has 35 of 50 ms."""
    run = new_run(cores=2)
    rank = run.rank(workers=0)
    step = f"wait=-1 ( fetch 35 ( {DECODE.format(35)} ) ) | forward 60 | optimizer 5"
    rank.draw(step, STEPS)
    rank.thread().draw(f"do 35 | run_queue={50 * MS} 60 | do 5", STEPS)
    rank.fact("stack_sampler", period_ns=100 * MS, counts_delays=True)
    run.metric("job_cpu_cores", 0.5).metric("outside_cpu_cores", 1.5)
    run.metric("process_cpu_cores", 0.5, device=str(rank.info.pid))
    verdict = diagnose(run.open())
    assert verdict.cause == "slow_decode"
    assert verdict.share_ratio == pytest.approx(35 / 50, abs=0.01)


@pytest.mark.parametrize(
    ("delay_ms", "outside", "cause"),
    [(51, 1.5, "cpu_contention"), (23, 1.5, "none"), (15, 1.5, "none"), (51, 0.1, "none")],
)
def test_contention_is_the_cause_of_more_than_half_of_the_step(
    new_run: RunMaker, delay_ms: float, outside: float, cause: str
) -> None:
    run = new_run(cores=2)
    draw(run, "forward 50 | backward 45 | optimizer 5", delay_ms, outside=outside, workers=None)
    verdict = diagnose(run.open())
    assert verdict.cause == cause
    beside = {entry.cause: (entry.share_ratio, entry.share_of) for entry in verdict.also}
    contention = (pytest.approx(delay_ms / 100, abs=0.01), STEP_SHARE)
    if cause == "cpu_contention":
        assert (verdict.share_ratio, verdict.share_of) == contention
    elif outside > 1 and delay_ms >= 20:
        assert verdict.headline.startswith("Probably no bottleneck: 100% of step time is model")
        assert verdict.headline.endswith(" The step waits for a core 23% of its time.")
        assert beside == {"cpu_contention": contention}
        assert [fix.title for fix in verdict.fixes] == ["Get the cores back"]


@pytest.mark.parametrize("delay_ms", [0, 23, 40, 75])
def test_a_share_times_its_base_is_the_time_whatever_the_contention(
    new_run: RunMaker, delay_ms: int
) -> None:
    """Each phase of a step of 100 ms is without a core for the same part of it."""
    base = {"data_wait": 15, "forward": 30, "backward": 20, "optimizer": 10, "other": 25}
    run = new_run(cores=2)
    step = (
        f"wait=-1 ( fetch 15 ( {DECODE.format(15)} ) ) | forward 30 | backward 20 | optimizer 10"
        " | do:python 25"
    )
    draw(run, step, delay_ms)
    verdict = diagnose(run.open())
    with_core = 1 - delay_ms / 100
    for entry in verdict.suspects:
        expected = {
            "data_pipeline": base["data_wait"],
            "framework_overhead": base["other"],
            "communication": 0,
            "model": base["forward"] + base["backward"] + base["optimizer"],
        }[entry.suspect]
        time_ns = verdict.measure_share(entry.share_ratio, entry.share_of)
        assert time_ns == pytest.approx(expected * with_core * MS, rel=0.01, abs=1)
    times_ms = {"slow_decode": 15 * with_core, "python_overhead": 25 * with_core}
    times_ms["cpu_contention"] = delay_ms
    causes = [(verdict.cause, verdict.share_ratio, verdict.share_of)]
    causes += [(entry.cause, entry.share_ratio, entry.share_of) for entry in verdict.also]
    assert {cause for cause, *_ in causes} == {name for name, ms in times_ms.items() if ms}
    for cause, share, share_of in causes:
        measured_ns = verdict.measure_share(share, share_of)
        assert measured_ns == pytest.approx(times_ms[cause] * MS, rel=0.01)
    assert verdict.suspect_step_ns == pytest.approx(times_ms[verdict.cause] * MS, rel=0.01)
    assert (verdict.cause == "cpu_contention") == (delay_ms > 50)
    for fix in verdict.fixes:
        saved_ns = fix.prediction.saving_ratio * fix.prediction.measured_ns
        assert fix.prediction.saved_ns == pytest.approx(saved_ns)
        assert saved_ns <= (1 + 1e-9) * max(times_ms.values()) * MS
    bars = {bar.phase: bar for bar in verdict.bars if bar.with_core_ratio}
    for phase, ms in base.items():
        assert bars[phase].share_ratio == pytest.approx(ms / 100, abs=2e-3)
        assert bars[phase].with_core_ratio == pytest.approx(ms * with_core / 100, abs=2e-3)
    waiting = sum(bar.without_core_ratio for bar in verdict.bars)
    assert waiting == pytest.approx(delay_ms / 100, abs=1e-3)
    assert verdict.bars_basis.startswith("Hatched: waiting for a core, ") == (delay_ms > 0)


def test_batches_that_are_late_because_workers_had_no_core(new_run: RunMaker) -> None:
    """A worker creates a batch in 100 ms, 60 of them without a core; the other 40 ms would hide
    behind the compute, which takes 60 ms, 20 of them without a core."""
    run = new_run(cores=2)
    rank = run.rank(workers=1).draw("wait=0 40 | forward 30 | backward 25 | optimizer 5", STEPS)
    worker = rank.workers[0].draw("fetch 100", STEPS)
    for process, delay_ms in ((rank, 20), (worker, 60)):
        process.thread().draw(f"run_queue={delay_ms * MS} 100", STEPS)
        process.fact("stack_sampler", period_ns=100 * MS, counts_delays=True)
        run.metric("process_cpu_cores", 0.4, device=str(process.info.pid))
    run.metric("job_cpu_cores", 0.8).metric("outside_cpu_cores", 20)
    verdict = diagnose(run.open())
    assert verdict.cause == "cpu_contention"
    assert verdict.share_ratio == pytest.approx((40 + 20) / 100, abs=0.03)


@pytest.mark.parametrize(("outside", "removed"), [(0.1, 0.1), (0.3, 0.3), (0.5, 0.4), (1.5, 0.4)])
def test_processes_outside_the_job_cause_no_more_delays_than_they_use_cores(
    new_run: RunMaker, outside: float, removed: float
) -> None:
    """Of steps of 100 ms, 40 are without a core; two threads of the job can delay each other."""
    run = new_run(cores=2)
    draw(run, "forward 50 | backward 45 | optimizer 5", 40, outside=outside)
    ranks = run.open().ranks
    shares = compute_shares(build_phase_matrix(ranks), measure_phase_split(ranks))
    assert shares.without_core == pytest.approx(removed, abs=0.005)


@pytest.mark.parametrize("threads", [0.2, 0.5, 1.0])
def test_threads_beside_the_training_thread_delay_its_compute(
    new_run: RunMaker, threads: float
) -> None:
    """Of steps of 100 ms, 20 are waiting for batches; operators end with their last thread."""
    run = new_run(cores=2)
    draw(run, "wait=0 20 | forward 50 | backward 25 | optimizer 5", 20, workers=1)
    run.metric("process_waiting_threads", threads, device=str(run.processes[0].info.pid))
    delays = run.open().ranks[0].core_delays.phase_ns
    compute = {"forward": 50, "backward": 25, "optimizer": 5}
    own_ms = {phase: ms / 80 * 20 for phase, ms in compute.items()}
    added_ms = min(60.0, (1 - math.exp(-threads)) * 0.8 * 100)
    for phase, ms in compute.items():
        expected = own_ms[phase] + added_ms * ms / 80
        assert delays[phase] / MEASURED / MS == pytest.approx(expected, rel=1e-3)
    assert delays["data_wait"] == pytest.approx(0)


@pytest.mark.parametrize(
    ("versions", "intra_op_threads", "is_estimated"),
    [
        ({"torch": "2.13.0"}, 2, True),
        ({"torch": "2.13.0"}, 1, False),
        ({"jax": "0.10.2", "keras": "3.15.1", "keras_backend": "jax"}, None, False),
        ({"torch": "2.13.0", "jax": "0.10.2", "keras_backend": "jax"}, 2, False),
        ({"tensorflow": "2.20.0"}, None, True),
    ],
)
def test_threads_count_that_the_training_thread_waits_for(
    new_run: RunMaker, versions: dict[str, str], intra_op_threads: int | None, is_estimated: bool
) -> None:
    """Of steps of 100 ms, 40 are without a core, and one other thread has none."""
    run = new_run(cores=2)
    rank = run.rank(workers=None, versions=versions)
    rank.draw("forward 50 | backward 45 | optimizer 5", STEPS)
    rank.thread().draw(f"run_queue={40 * MS} 100", STEPS)
    rank.fact("stack_sampler", period_ns=100 * MS, counts_delays=True)
    if intra_op_threads is not None:
        rank.fact("settings", **{**SETTINGS, "intra_op_threads": intra_op_threads})
    run.metric("job_cpu_cores", 0.5).metric("outside_cpu_cores", 1.5)
    run.metric("process_waiting_threads", 1, device=str(rank.info.pid))
    verdict = diagnose(run.open())
    texts = [evidence.text for evidence in verdict.evidence]
    measured = "The training thread was runnable without a core for 40% of the time."
    estimated = 0.4 + (1 - math.exp(-1)) * 0.6
    if is_estimated:
        assert verdict.cause == "cpu_contention"
        assert verdict.share_ratio == pytest.approx(estimated, abs=0.02)
        assert measured in texts
        assert any(text.startswith("An estimated 78% of step time") for text in texts)
    else:
        assert verdict.cause == "none"
        (contention,) = verdict.also
        assert (contention.cause, contention.share_ratio) == (
            "cpu_contention",
            pytest.approx(0.4, abs=0.01),
        )


def test_workers_that_take_the_cores_of_other_threads_cost_what_they_delay(
    new_run: RunMaker,
) -> None:
    """The training thread always has a core; half of the time its second thread has none."""
    run = new_run(cores=2)
    draw(run, "wait=1 1 | forward 60 | backward 35 | optimizer 4", 0, outside=0, workers=1)
    run.processes[1].draw("fetch 100", STEPS)
    run.metric("process_cpu_cores", 0.8, device=str(run.processes[1].info.pid))
    run.metric("process_waiting_threads", 0.5, device=str(run.processes[0].info.pid))
    verdict = diagnose(run.open())
    assert verdict.suspect == "data_pipeline"
    assert verdict.share_ratio == pytest.approx(1 - math.exp(-0.5), abs=0.05)
