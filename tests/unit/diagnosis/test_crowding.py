"""Workers that take the cores which the training thread wants."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.diagnosis import Signals, Verdict, diagnose
from stepscope.diagnosis.crowding import crowded_by_workers
from stepscope.diagnosis.shares import phase_matrix, proportions, shares_of
from stepscope.testing import RunBuilder

WAIT, BUSY = 10, 90
WITHOUT_CORE = 0.36


def crowded(
    path: Path, *, outside: float = 0.0, worker: float = 0.9, other: float = 0.0, workers: int = 1
) -> Signals:
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
    run.metric("job_cpu_cores", 0.8 + worker + other).metric("outside_cpu_cores", outside)
    return run.signals()


def verdict(signals: Signals) -> Verdict:
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
    ("case", "ratio"),
    [
        ({}, WITHOUT_CORE),
        ({"outside": 0.6}, WITHOUT_CORE * 0.9 / 1.5),  # somebody else is in the way too
        ({"other": 0.9}, WITHOUT_CORE / 2),  # another process of the job takes as much
        ({"worker": 0.0}, 0.0),
        ({"workers": 0}, 0.0),
    ],
)
def test_only_what_workers_take_counts(
    tmp_path: Path, case: dict[str, float], ratio: float
) -> None:
    signals = crowded(tmp_path, **case)  # type: ignore[arg-type]
    assert crowded_by_workers(signals) == pytest.approx(ratio)
