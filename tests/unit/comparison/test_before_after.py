"""Before and after a change: two published cases to the cent, and runs with missing data."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from stepscope.comparison.before_after import (
    NO_FULL_RUN,
    OTHER_BATCH,
    OTHER_TIMES,
    BeforeAfter,
    Side,
    compare_before_after,
    measure_side,
)
from stepscope.comparison.compare import compare_runs
from stepscope.cost.prices import JobCost, parse_usd_per_hour
from stepscope.run import Run
from stepscope.schema import JobState
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS

S = 1_000_000_000
HOUR = 3600 * S


def get_texts(table: BeforeAfter) -> dict[str, str]:
    return {row.name: row.text for row in table.rows}


def record_machines(
    path: Path, *, count: int, seconds: int, usd: str, gpu: float, cpu: float
) -> Run:
    """Record a job on machines with constant utilization."""
    run = RunBuilder(path)
    for number in range(count):
        node = f"algo-{number + 1}"
        run.rank(number, node=node).draw("annotation 100000")
        run.metric("gpu_busy_ratio", gpu, device="0", node=node)
        run.metric("cpu_busy_ratio", cpu, node=node)
        run.status(JobState.COMPLETED, node=node, ended_ns=EPOCH_NS + seconds * S)
    return set_price(run.write(), usd)


def set_price(path: Path, usd: str) -> Run:
    document = msgspec.json.decode((path / "run.json").read_bytes())
    document["options"] = {"usd_per_hour": usd}
    (path / "run.json").write_bytes(msgspec.json.encode(document))
    return Run(open_run(path))


@pytest.mark.seed("DIAG-07")
def test_fewer_and_smaller_machines(tmp_path: Path) -> None:
    """The first published case: 3 at $14.688 for 503 s, then 2 at $3.825 for 502 s."""
    base = record_machines(tmp_path / "a", count=3, seconds=503, usd="14.688", gpu=0.135, cpu=0.244)
    candidate = record_machines(
        tmp_path / "b", count=2, seconds=502, usd="3.825", gpu=0.46, cpu=0.61
    )
    table = compare_runs([base], [candidate]).before_after
    texts = get_texts(table)
    assert texts["cost"] == "$6.16 → $1.07"
    assert texts["GPU utilisation of the whole run, p95"] == "13.5% → 46%"
    assert texts["CPU utilisation of the whole run, p95"] == "24.4% → 61%"
    assert texts["run"] == "8 min 23 s → 8 min 22 s"
    assert table.saving_ratio is not None
    assert f"{table.saving_ratio:.1%}" == "82.6%"
    assert table.saved_usd == pytest.approx(5.09)
    assert table.saved_hours == pytest.approx((3 * 503 - 2 * 502) / 3600)
    assert (table.speed_up, table.speed_up_by) == (None, None)  # no step was recorded
    assert table.before_price is not None
    assert table.before_price.origin == "set with --usd-per-hour when the job was started"


AT_32_77 = JobCost(instance_count=1, usd_per_hour=parse_usd_per_hour("32.77"), duration_ns=0)
SLOW = Side(gpu_mean=0.40, cpu_mean=0.85, epoch_ns=5.9 * HOUR, instance_count=1, cost=AT_32_77)
FIXED = Side(gpu_mean=0.88, cpu_mean=0.55, epoch_ns=2.6 * HOUR, instance_count=1, cost=AT_32_77)


@pytest.mark.seed("DIAG-07")
def test_thirty_epochs_of_a_recommender() -> None:
    """The second published case, in hours: too long to draw."""
    table = compare_before_after(SLOW, FIXED, 30)
    assert get_texts(table) == {
        "GPU utilisation while training": "40% → 88%",
        "CPU utilisation while training": "85% → 55%",
        "epoch": "5 h 54 min → 2 h 36 min",
        "run of 30 epochs": "177 h → 78 h",
        "instance-hours": "177 h → 78 h",
        "cost": "$5,800.29 → $2,556.06",
    }
    assert table.saved_hours == 99
    assert table.saved_usd == 3244.23
    assert table.speed_up is not None
    assert f"{table.speed_up:.2f}" == "2.27"
    assert table.speed_up_by == "epoch"
    changes = {row.name: row.change_text for row in table.rows}
    assert changes == {
        "GPU utilisation while training": "+48.0 pp",
        "CPU utilisation while training": "-30.0 pp",
        "epoch": "-55.9%",
        "run of 30 epochs": "-55.9%",
        "instance-hours": "-55.9%",
        "cost": "-55.9%",
    }


def record_epochs(path: Path, *, wait_ms: int, usd: str, gpu: float) -> Run:
    """Record three epochs of 20 steps, each with a tenth of a second to start."""
    run = RunBuilder(path)
    process = run.rank(workers=1)
    for _ in range(3):
        process.draw("start 100")
        process.draw(f"wait=0 {wait_ms} | forward 30 | backward 60 | optimizer 10", 20)
        process.draw("exhausted 0")
    process.workers[0].draw(f"fetch {wait_ms + 90}", 60)
    run.metric("gpu_busy_ratio", gpu, device="0").metric("cpu_busy_ratio", 0.5)
    return set_price(run.write(), usd)


@pytest.mark.seed("DIAG-07")
def test_the_same_from_recorded_epochs(tmp_path: Path) -> None:
    """Epochs of 5.9 s and 2.6 s, each second at the price of an hour."""
    usd = str(Decimal("32.77") * 3600)
    base = record_epochs(tmp_path / "a", wait_ms=190, usd=usd, gpu=0.4)
    candidate = record_epochs(tmp_path / "b", wait_ms=25, usd=usd, gpu=0.88)
    table = compare_runs([base], [candidate], epochs=30).before_after
    texts = get_texts(table)
    assert texts["epoch"] == "5.9 s → 2.6 s"
    assert texts["run of 30 epochs"] == "2 min 57 s → 78 s"
    assert texts["cost"] == "$5,800.29 → $2,556.06"
    assert texts["GPU utilisation while training"] == "40% → 88%"
    # 18 s and 8 s of training with a sample every half second.
    assert not [name for name in texts if "p95" in name]
    notes = [note for note in table.notes if "a 95th percentile needs 100 samples" in note]
    assert [note.split()[-1] for note in notes] == ["36", "16"]
    # After warm-up, 2 of 54 steps contain the 100 ms of starting the loader.
    assert texts["step"] == f"{290 + 200 / 54:.0f} ms → {125 + 200 / 54:.0f} ms"
    assert table.saved_usd == 3244.23
    assert table.speed_up == pytest.approx(5.9 / 2.6)
    assert table.speed_up_by == "epoch"
    assert table.epoch_count == 30
    # Without a number of epochs the runs count as recorded: three epochs each.
    plain = compare_runs([base], [candidate]).before_after
    assert get_texts(plain)["run"] == "17.7 s → 7.8 s"
    assert get_texts(plain)["cost"] == "$580.03 → $255.61"


def test_a_run_that_costs_more() -> None:
    table = compare_before_after(FIXED, SLOW, 30)
    assert table.saved_usd == -3244.23
    assert table.saved_hours == -99
    assert table.saving_ratio is not None
    assert table.saving_ratio < 0


def test_missing_data_of_one_run(tmp_path: Path) -> None:
    table = compare_before_after(SLOW, Side(instance_count=2, name="b", notes=["no price"]), 30)
    assert get_texts(table)["epoch"] == "5 h 54 min → n/a"
    assert get_texts(table)["cost"] == "$5,800.29 → n/a"
    assert (table.saved_usd, table.saved_hours, table.saving_ratio) == (None, None, None)
    assert table.speed_up is None
    assert table.notes == ["b: no price", NO_FULL_RUN.format(epochs=30, known="only one")]
    empty = compare_before_after(Side(), Side(), 3)
    assert empty.rows == []
    assert empty.notes == [NO_FULL_RUN.format(epochs=3, known="neither")]


def test_steps_with_different_batches_give_no_speed_up() -> None:
    """A step with 32 times the samples takes twice as long: training is 16 times as fast."""
    small = Side(step_ns=2e6, batch={"input 0": "4 x 16", "batches per step": "1"})
    large = Side(step_ns=4e6, batch={"input 0": "128 x 16", "DataLoader batch size": "128"})
    table = compare_before_after(small, large)
    assert (table.speed_up, table.speed_up_by) == (None, None)
    assert table.notes == [OTHER_BATCH]
    assert get_texts(table)["step"] == "2 ms → 4 ms"
    by_epoch = compare_before_after(replace(small, epoch_ns=16 * S), replace(large, epoch_ns=1 * S))
    assert (by_epoch.speed_up, by_epoch.speed_up_by) == (16, "epoch")
    same = compare_before_after(replace(small, step_ns=3e6), small)
    assert (same.speed_up, same.speed_up_by) == (1.5, "step")
    assert same.notes == []
    unknown = compare_before_after(Side(step_ns=3e6), small)  # no difference is known
    assert (unknown.speed_up, unknown.speed_up_by) == (1.5, "step")


def test_batch_of_a_recorded_run(tmp_path: Path) -> None:
    side = measure_side(record_epochs(tmp_path / "run", wait_ms=10, usd="1", gpu=0.5))
    assert side.batch == {"DataLoader batch size": "32", "batches per step": "1"}


@pytest.mark.parametrize(("count", "p95"), [(99, None), (100, 0.5)])
def test_a_percentile_needs_a_hundred_samples(
    tmp_path: Path, count: int, p95: float | None
) -> None:
    """One sample every half second."""
    run = RunBuilder(tmp_path / "run")
    run.rank().draw(f"annotation {500 * count}")
    run.metric("cpu_busy_ratio", 0.5)
    side = measure_side(run.open())
    assert (side.cpu_mean, side.cpu_p95, side.is_training) == (0.5, p95, False)
    note = f"a 95th percentile needs 100 samples; utilization has {count}"
    assert (note in side.notes) == (p95 is None)


def test_utilization_of_different_periods_has_a_note() -> None:
    table = compare_before_after(Side(cpu_mean=0.5), Side(cpu_mean=0.25, is_training=False))
    assert get_texts(table) == {"CPU utilisation": "50% → 25%"}
    assert table.notes == [OTHER_TIMES.format(before="while training", after="of the whole run")]


def test_notes_name_their_run(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("forward 30 | backward 40 | optimizer 30", 20)
    side = measure_side(run.open())
    assert len(side.notes) == 2
    assert [note.partition(": ")[0] for note in compare_before_after(side, Side()).notes[:2]] == [
        "run",
        "run",
    ]
    both = compare_before_after(side, side).notes
    assert [note.partition(": ")[0] for note in both] == ["both runs", "both runs"]
    assert side.cost is None
    assert side.step_ns == 100_000_000


def test_a_run_without_cost_has_no_saving() -> None:
    cost = JobCost(instance_count=1, usd_per_hour=Decimal(0), duration_ns=0)
    free = Side(instance_count=1, cost=cost, job_ns=HOUR)
    table = compare_before_after(free, free)
    assert get_texts(table)["cost"] == "$0.00 → $0.00"
    assert table.saving_ratio is None
    assert table.saved_usd == 0
