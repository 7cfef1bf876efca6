"""Cost report of a run: cost per step, epoch, hour and sample."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from stepscope.cost.cost_report import NO_BATCH_SIZE, NO_BOTTLENECK, Cost, report_cost
from stepscope.cost.pricing import NO_MACHINES, NO_PRICE, SET_BY_COMMAND, PriceRequest
from stepscope.diagnosis.verdict import LOOP_SHARE, STEP_SHARE
from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.run.job.times import NO_LOADER
from stepscope.store import open_run
from stepscope.testing import RunBuilder

STEP = "wait=0 60 | forward 12 | backward 20 | optimizer 8"
AT_36 = PriceRequest(usd_per_hour="36")
"""A cent a second."""


def draw_starved_run(path: Path, *, ranks: int = 1) -> RunBuilder:
    """Draw two epochs of a hundred steps of a tenth of a second."""
    run = RunBuilder(path)
    for rank in range(ranks):
        process = run.rank(rank if ranks > 1 else None, workers=1)
        for _ in range(2):
            process.draw("start 0").draw(STEP, 100).draw("exhausted 0")
        process.workers[0].draw("fetch 95", 200)
    return run


def report(run: RunBuilder, request: PriceRequest = AT_36, **options: float) -> Cost:
    return report_cost(run.open(), request, **options)


def test_a_run_that_waits_for_its_data(tmp_path: Path) -> None:
    cost = report(draw_starved_run(tmp_path / "run"), epochs=30, hours=12)
    assert cost.duration_ns == 20_000_000_000
    assert cost.job_usd == 0.2
    assert cost.machine_hours == pytest.approx(20 / 3600)
    assert cost.hour_usd == 36
    assert cost.step_usd == pytest.approx(0.001)
    assert (cost.epoch.count, cost.epoch.step_count) == (2, 100)
    assert cost.epoch.usd == pytest.approx(0.1)
    assert cost.samples_per_step == 32
    assert cost.million_samples_usd == pytest.approx(0.001 / 32 * 1e6)
    assert cost.suspect.suspect == "data_pipeline"
    assert cost.suspect.share_ratio == pytest.approx(0.6, abs=0.01)
    assert (cost.suspect.share_of, cost.evaluation_ratio) == (STEP_SHARE, 0)
    assert cost.evaluated_step_ns is None
    assert cost.suspect.hour_usd == pytest.approx(36 * cost.suspect.share_ratio)
    assert cost.suspect.training_usd == pytest.approx(0.2 * cost.suspect.share_ratio)
    assert cost.fixes
    for fix in cost.fixes:
        assert fix.hour_usd == pytest.approx(36 * fix.saving_ratio)
        assert fix.step_usd == pytest.approx(0.001 * fix.saving_ratio)
    epochs, hours = cost.projections
    assert (epochs.name, epochs.usd) == ("30 epochs", pytest.approx(3))
    assert (hours.name, hours.usd, hours.machine_hours) == ("12 hours", 36 * 12, 12)
    assert cost.price.origin == SET_BY_COMMAND


def test_evaluation_is_in_no_step(tmp_path: Path) -> None:
    """Steps of 100 ms, 55 ms of them copies, each followed by 400 ms of evaluation, at a cent a
    second: of an hour and of the training, the copies are 55% of a fifth."""
    run = RunBuilder(tmp_path / "run")
    process = run.rank(workers=0)
    for _ in range(100):
        process.draw("wait 5 | h2d 55 | forward 12 | backward 20 | optimizer 8 | predict 400")
    cost = report(run)
    training_usd = 0.01 * (99 * 0.5 + 0.1)  # training ends with the last step
    assert cost.evaluation_ratio == pytest.approx(0.8)
    assert (cost.step_ns, cost.evaluated_step_ns) == (100_000_000, pytest.approx(500_000_000))
    assert (cost.step_usd, cost.evaluated_step_usd) == (0.001, 0.005)
    assert cost.suspect.share_of == LOOP_SHARE
    assert cost.suspect.step_usd == pytest.approx(0.8 * 0.005)
    assert cost.suspect.hour_usd == pytest.approx(0.8 * 36)
    assert cost.suspect.training_usd == pytest.approx(0.8 * training_usd)
    fixes = {fix.share_of: fix for fix in cost.fixes}
    less = fixes[LOOP_SHARE]
    assert less.saving_ratio == pytest.approx(0.9 * 0.8)  # a tenth remains
    assert less.step_usd == pytest.approx(0.72 * 0.005)
    assert less.hour_usd == pytest.approx(0.72 * 36)
    assert less.training_usd == pytest.approx(0.72 * training_usd)
    copies = fixes[STEP_SHARE]
    assert copies.saving_ratio == pytest.approx(0.55)
    assert copies.step_usd == pytest.approx(0.55 * 0.001)
    assert copies.hour_usd == pytest.approx(0.55 * 0.2 * 36)
    assert copies.training_usd == pytest.approx(0.55 * 0.2 * training_usd)


def test_ranks_and_machines_multiply(tmp_path: Path) -> None:
    cost = report(draw_starved_run(tmp_path / "ranks", ranks=4))
    assert cost.samples_per_step == 4 * 32
    run = RunBuilder(tmp_path / "run")
    for rank in range(2):
        run.rank(rank, node=f"n{rank}", workers=0).draw("wait 60 | forward 20 | optimizer 20", 100)
    cost = report(run)
    assert (cost.instance_count, cost.hour_usd, cost.job_usd) == (2, 72, 0.2)


def test_times_without_a_price(tmp_path: Path) -> None:
    cost = report(draw_starved_run(tmp_path / "run"), PriceRequest(), epochs=2)
    assert cost.price_missing == NO_PRICE
    assert (cost.price, cost.job_usd, cost.hour_usd, cost.step_usd) == (None,) * 4
    assert cost.epoch.mean_ns == 10_000_000_000
    assert cost.epoch.usd is None
    assert cost.million_samples_usd is None
    assert cost.right_sizing is None
    assert cost.fixes == []
    assert [projection.usd for projection in cost.projections] == [None]


def test_a_recorded_price(tmp_path: Path) -> None:
    path = draw_starved_run(tmp_path / "run").write()
    document = msgspec.json.decode((path / "run.json").read_bytes())
    document["options"] = {"instance_type": "p3.2xlarge"}
    (path / "run.json").write_bytes(msgspec.json.encode(document))
    cost = report_cost(Run(open_run(path)))
    assert cost.hour_usd == 3.06
    assert cost.price.as_of == "2026-01-19"
    assert "no GPU was sampled" in cost.right_sizing.headline


def test_reasons_for_missing_figures(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("forward 30 | backward 40 | optimizer 30", 100)
    cost = report(run, epochs=3)
    assert cost.epoch_missing == NO_LOADER
    assert cost.samples_missing == NO_BATCH_SIZE
    assert (cost.epoch, cost.million_samples_usd, cost.projections) == (None, None, [])
    assert cost.suspect is not None or cost.suspect_missing == NO_BOTTLENECK


def test_a_run_without_a_monitor(tmp_path: Path) -> None:
    path = draw_starved_run(tmp_path / "run").write()
    for status in path.rglob("status.json"):
        status.unlink()
    imported = report_cost(Run(open_run(path)), AT_36)
    assert imported.instance_count == 1  # the node is known without a monitor
    for node in path.rglob("node.json"):
        node.unlink()
    cost = report_cost(Run(open_run(path)), AT_36)
    assert cost.price_missing == NO_MACHINES
    assert cost.job_usd is None


def test_half_a_cent_is_rounded_up(tmp_path: Path) -> None:
    """20 s at this price cost $1.005."""
    run = draw_starved_run(tmp_path / "run").open()
    request = PriceRequest(usd_per_hour=str(Decimal("1.005") * 180))
    assert report_cost(run, request).job_usd == 1.01
    for amount in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="is not a positive number of epochs or hours"):
            report_cost(run, request, hours=amount)


def test_damaged_files_are_listed(tmp_path: Path) -> None:
    run = draw_starved_run(tmp_path / "run")
    assert report(run).damage == []
    segment = max((tmp_path / "run").rglob("spans/**/*.parquet"))
    segment.write_bytes(segment.read_bytes()[:500])
    cost = report_cost(Run(open_run(tmp_path / "run")), AT_36)
    assert len(cost.damage) == 1
    assert segment.name in cost.damage[0]
