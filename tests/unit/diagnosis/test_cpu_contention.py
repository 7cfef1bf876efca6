"""CPU contention between the training thread and its workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.diagnosis import diagnose
from stepscope.diagnosis.cpu_contention import compute_worker_share, measure_core_waits
from stepscope.diagnosis.shares import build_phase_matrix, compute_shares, measure_phase_split
from stepscope.run import Run
from stepscope.testing import RunBuilder

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
    run = record_contention(tmp_path, **case)  # type: ignore[arg-type]
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
