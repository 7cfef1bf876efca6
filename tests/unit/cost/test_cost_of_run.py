"""`stepscope cost`: what a run costs per step, epoch, hour and sample."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from stepscope.cost.cost_report import (
    NO_BATCH_SIZE,
    NO_MACHINES,
    NOT_ACCUSED,
    Cost,
    cost_of_run,
)
from stepscope.cost.pricing import NO_PRICE, Asked
from stepscope.diagnosis.verdict import LOOP_SHARE, STEP_SHARE
from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.run.epochs import NO_LOADER
from stepscope.store import open_run
from stepscope.testing import RunBuilder

STEP = "wait=0 60 | forward 12 | backward 20 | optimizer 8"
AT_36 = Asked(usd_per_hour="36")
"""A cent a second."""


def starving(path: Path, *, ranks: int = 1) -> RunBuilder:
    """Two epochs of a hundred steps of a tenth of a second."""
    run = RunBuilder(path)
    for rank in range(ranks):
        process = run.rank(rank if ranks > 1 else None, workers=1)
        for _ in range(2):
            process.draw("start 0").draw(STEP, 100).draw("exhausted 0")
        process.workers[0].draw("fetch 95", 200)
    return run


def reckoned(run: RunBuilder, asked: Asked = AT_36, **more: float) -> Cost:
    return cost_of_run(run.open(), asked, **more)


def test_a_run_that_waits_for_its_data(tmp_path: Path) -> None:
    found = reckoned(starving(tmp_path / "run"), epochs=30, hours=12)
    assert found.duration_ns == 20_000_000_000
    assert found.job_usd == 0.2
    assert found.machine_hours == pytest.approx(20 / 3600)
    assert found.hour_usd == 36
    assert found.step_usd == pytest.approx(0.001)
    assert found.epoch is not None
    assert (found.epoch.count, found.epoch.step_count) == (2, 100)
    assert found.epoch.usd == pytest.approx(0.1)
    assert found.samples_per_step == 32
    assert found.million_samples_usd == pytest.approx(0.001 / 32 * 1e6)
    assert found.suspect is not None
    assert found.suspect.suspect == "data_pipeline"
    assert found.suspect.share_ratio == pytest.approx(0.6, abs=0.01)
    assert (found.suspect.share_of, found.evaluation_ratio) == (STEP_SHARE, 0)
    assert found.evaluated_step_ns is None
    assert found.suspect.hour_usd == pytest.approx(36 * found.suspect.share_ratio)
    assert found.suspect.training_usd == pytest.approx(0.2 * found.suspect.share_ratio)
    assert found.fixes
    for fix in found.fixes:
        assert fix.hour_usd == pytest.approx(36 * fix.saving_ratio)
        assert fix.step_usd == pytest.approx(0.001 * fix.saving_ratio)
    epochs, hours = found.projections
    assert (epochs.what, epochs.usd) == ("30 epochs", pytest.approx(3))
    assert (hours.what, hours.usd, hours.machine_hours) == ("12 hours", 36 * 12, 12)
    assert found.price is not None
    assert found.price.said == "as given to this command"


def test_evaluation_is_in_no_step(tmp_path: Path) -> None:
    """Steps of 100 ms, 55 of them copies, each followed by 400 ms of evaluation at a cent a second:
    of an hour and of the training, the copies are 55 % of a fifth."""
    run = RunBuilder(tmp_path / "run")
    process = run.rank(workers=0)
    for _ in range(100):
        process.draw("wait 5 | h2d 55 | forward 12 | backward 20 | optimizer 8 | predict 400")
    found = reckoned(run)
    training_usd = 0.01 * (99 * 0.5 + 0.1)  # it ends with the last step
    assert found.evaluation_ratio == pytest.approx(0.8)
    assert (found.step_ns, found.evaluated_step_ns) == (100_000_000, pytest.approx(500_000_000))
    assert (found.step_usd, found.evaluated_step_usd) == (0.001, 0.005)
    assert found.suspect is not None
    assert found.suspect.share_of == LOOP_SHARE
    assert found.suspect.step_usd == pytest.approx(0.8 * 0.005)
    assert found.suspect.hour_usd == pytest.approx(0.8 * 36)
    assert found.suspect.training_usd == pytest.approx(0.8 * training_usd)
    fixes = {fix.share_of: fix for fix in found.fixes}
    less = fixes[LOOP_SHARE]
    assert less.saving_ratio == pytest.approx(0.9 * 0.8)  # a tenth of it is left
    assert less.step_usd == pytest.approx(0.72 * 0.005)
    assert less.hour_usd == pytest.approx(0.72 * 36)
    assert less.training_usd == pytest.approx(0.72 * training_usd)
    copies = fixes[STEP_SHARE]
    assert copies.saving_ratio == pytest.approx(0.55)
    assert copies.step_usd == pytest.approx(0.55 * 0.001)
    assert copies.hour_usd == pytest.approx(0.55 * 0.2 * 36)
    assert copies.training_usd == pytest.approx(0.55 * 0.2 * training_usd)


def test_every_rank_reads_its_own_batches(tmp_path: Path) -> None:
    found = reckoned(starving(tmp_path / "run", ranks=4))
    assert found.samples_per_step == 4 * 32


def test_machines_multiply(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    for rank in range(2):
        run.rank(rank, node=f"n{rank}", workers=0).draw("wait 60 | forward 20 | optimizer 20", 100)
    found = reckoned(run)
    assert found.instance_count == 2
    assert found.hour_usd == 72
    assert found.job_usd == 0.2


def test_without_a_price_times_stay(tmp_path: Path) -> None:
    found = reckoned(starving(tmp_path / "run"), Asked(), epochs=2)
    assert found.price_missing == NO_PRICE
    assert (found.price, found.job_usd, found.hour_usd, found.step_usd) == (None,) * 4
    assert found.epoch is not None
    assert found.epoch.mean_ns == 10_000_000_000
    assert found.epoch.usd is None
    assert found.million_samples_usd is None
    assert found.right_sizing is None
    assert found.fixes == []
    assert [each.usd for each in found.projections] == [None]


def test_a_price_that_was_recorded(tmp_path: Path) -> None:
    path = starving(tmp_path / "run").write()
    said = msgspec.json.decode((path / "run.json").read_bytes())
    said["options"] = {"instance_type": "p3.2xlarge"}
    (path / "run.json").write_bytes(msgspec.json.encode(said))
    found = cost_of_run(Run(open_run(path)))
    assert found.hour_usd == 3.06
    assert found.price is not None
    assert found.price.as_of == "2026-01-19"
    assert found.right_sizing is not None
    assert "no GPU was sampled" in found.right_sizing.headline


def test_why_there_is_no_figure(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("forward 30 | backward 40 | optimizer 30", 100)
    found = reckoned(run, epochs=3)
    assert found.epoch_missing == NO_LOADER
    assert found.samples_missing == NO_BATCH_SIZE
    assert (found.epoch, found.million_samples_usd, found.projections) == (None, None, [])
    assert found.suspect is not None or found.suspect_missing == NOT_ACCUSED


def test_a_run_that_nobody_watched(tmp_path: Path) -> None:
    path = starving(tmp_path / "run").write()
    for status in path.rglob("status.json"):
        status.unlink()
    imported = cost_of_run(Run(open_run(path)), AT_36)
    assert imported.instance_count == 1  # the machine is known, though nobody watched the job
    for node in path.rglob("node.json"):
        node.unlink()
    found = cost_of_run(Run(open_run(path)), AT_36)
    assert found.price_missing == NO_MACHINES
    assert found.job_usd is None


def test_a_cent_is_a_cent(tmp_path: Path) -> None:
    """20 s at this price are 1.005 cents over a dollar: half a cent is rounded up."""
    price = Decimal("1.005") * 180
    found = reckoned(starving(tmp_path / "run"), Asked(usd_per_hour=str(price)))
    assert found.job_usd == 1.01


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_what_is_no_number_of_hours(tmp_path: Path, wrong: float) -> None:
    with pytest.raises(UsageError, match="is no number of epochs or hours above 0"):
        reckoned(starving(tmp_path / "run"), hours=wrong)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    run = starving(tmp_path / "run")
    assert reckoned(run).damage == []
    segment = max((tmp_path / "run").rglob("spans/**/*.parquet"))
    segment.write_bytes(segment.read_bytes()[:500])
    found = cost_of_run(Run(open_run(tmp_path / "run")), AT_36)
    assert len(found.damage) == 1
    assert segment.name in found.damage[0]
