"""Workers that take the cores which the training thread wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.diagnosis import Verdict, diagnose
from stepscope.diagnosis.cpu_contention import crowding, workers_part
from stepscope.diagnosis.shares import phase_matrix, proportions, shares_of
from stepscope.run import Run
from stepscope.testing import RunBuilder

WAIT, BUSY = 10, 90
WITHOUT_CORE = 0.36


def crowded(
    path: Path,
    *,
    outside: float = 0.0,
    worker: float = 0.9,
    other: float = 0.0,
    workers: int = 1,
    stolen: float = 0.0,
) -> Run:
    """A tenth of the step is taking over batches; for 36 % of it the thread has no core."""
    run = RunBuilder(path)
    rank = run.rank(workers=workers)
    rank.draw(f"wait=1 {WAIT} | forward 40 | backward 40 | optimizer {BUSY - 80}", 60)
    pid = str(rank.info.pid)
    if workers:
        rank.workers[0].draw("fetch 95 | do 5", 60)
        run.metric("process_cpu_cores", worker, device=str(rank.workers[0].info.pid))
    run.metric("process_runqueue_ratio", WITHOUT_CORE, device=pid)
    run.metric("process_cpu_cores", 0.8, device=pid)
    run.metric("job_cpu_cores", 0.8 + worker + other)
    run.metric("outside_cpu_cores", outside + stolen).metric("stolen_cpu_cores", stolen)
    return run.open()


def verdict(signals: Run) -> Verdict:
    return diagnose(signals)


def test_it_belongs_to_the_data_pipeline(tmp_path: Path) -> None:
    signals = crowded(tmp_path)
    found = verdict(signals)
    # Both the taking over and all else want a core; the worker is busy for 95 % of the time, so
    # that half of the waiting is for batches in the making.
    blocked = WAIT - 0.05 * (WAIT + BUSY)
    of_runnable = WITHOUT_CORE * (WAIT + BUSY) / (WAIT + BUSY - blocked)
    expected = (WAIT + BUSY * of_runnable) / (WAIT + BUSY)
    assert found.suspect == "data_pipeline"
    assert found.share_ratio == pytest.approx(expected, abs=0.01)
    assert any("had no core, because the workers had them" in e.text for e in found.evidence)
    shares = shares_of(phase_matrix(signals.ranks), proportions(signals.ranks))
    assert sum(shares.suspects.values()) == pytest.approx(1)
    assert shares.phases["forward"] == pytest.approx(0.4)  # as it was measured


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ({}, 1.0),
        ({"outside": 0.6}, 0.9 / 1.5),  # somebody else is in the way too
        ({"other": 0.9}, 0.5),  # another process of the job takes as much
        ({"worker": 0.0}, 0.0),
        # A fifth of the 1.7 cores that run was stolen beside them: from 0.8 of a core 0.16.
        ({"stolen": 0.34}, WITHOUT_CORE / (WITHOUT_CORE + 0.16)),
        ({"workers": 0}, 0.0),
    ],
)
def test_only_what_workers_take_counts(tmp_path: Path, case: dict[str, float], part: float) -> None:
    signals = crowded(tmp_path, **case)  # type: ignore[arg-type]
    assert workers_part(signals) == pytest.approx(part)
    assert (crowding(signals.ranks).beside > 0) == (part > 0)


@pytest.mark.parametrize("without_core", [0.0, 0.05, 0.2])
@pytest.mark.parametrize(("often", "seldom"), [(2, 32), (12, 12)])
def test_batches_that_lay_ready_while_others_had_the_cores(
    tmp_path: Path, often: int, seldom: int, without_core: float
) -> None:
    """Two of three batches are handed over in `often` ms, the third in `seldom`, beside 100 ms of
    computing. What is irregular is waiting for a core as far as there was any, and of it the
    workers, who have a third of the cores that were taken, are to blame for a third."""
    run = RunBuilder(tmp_path)
    rank = run.rank(workers=1)
    for _ in range(60):
        for wait in (often, often, seldom):
            rank.draw(f"wait=1 {wait} | forward 50 | backward 50 | optimizer 1")
    rank.workers[0].draw("fetch 10 | do 90", 180)
    run.metric("process_runqueue_ratio", without_core, device=str(rank.info.pid))
    run.metric("process_cpu_cores", 1, device=str(rank.info.pid))
    run.metric("process_cpu_cores", 0.3, device=str(rank.workers[0].info.pid))
    run.metric("job_cpu_cores", 1.3).metric("outside_cpu_cores", 0.6)
    signals = run.open()

    waited, busy = (2 * often + seldom) / 3, 101
    step, irregular = waited + busy, (seldom - often) / 3
    asked = without_core * step
    receiving = min(asked, waited, max(irregular, asked * waited / step))
    beside = (asked - receiving) / busy / 3
    split = proportions(signals.ranks)
    assert split.crowding.receiving == pytest.approx(receiving / waited / 3, rel=0.02)
    assert split.crowding.receiving_others == pytest.approx(receiving / waited * 2 / 3, rel=0.02)
    assert split.crowding.beside == pytest.approx(beside, rel=0.05, abs=1e-3)
    shares = shares_of(phase_matrix(signals.ranks), split)
    others = receiving * 2 / 3
    assert shares.late_for_others == pytest.approx(others / step, rel=0.02)
    expected = (waited - others + beside * busy) / step
    assert shares.suspects["data_pipeline"] == pytest.approx(expected, rel=0.02)
    assert sum(shares.suspects.values()) + shares.late_for_others == pytest.approx(1)
    told = [note for note in diagnose(signals).notes if "a batch lay ready" in note]
    assert bool(told) == (others / step >= 0.05)
