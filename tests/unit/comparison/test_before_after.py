"""What a change was worth: two published cases to the cent, and runs that lack something."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from stepscope.comparison.before_after import (
    NO_FULL_RUN,
    OTHER_BATCH,
    OTHER_TIMES,
    BeforeAfter,
    Side,
    before_after,
    side_of,
)
from stepscope.comparison.compare import comparison
from stepscope.cost.job_cost import price
from stepscope.run import Run
from stepscope.schema import JobState
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS

S = 1_000_000_000
HOUR = 3600 * S


def texts(found: BeforeAfter) -> dict[str, str]:
    return {row.name: row.text for row in found.rows}


def machines(path: Path, *, count: int, seconds: int, usd: str, gpu: float, cpu: float) -> Run:
    """A job on some machines whose use is always the same, written and opened."""
    run = RunBuilder(path)
    for number in range(count):
        node = f"algo-{number + 1}"
        run.rank(number, node=node).draw("annotation 100000")
        run.metric("gpu_busy_ratio", gpu, device="0", node=node)
        run.metric("cpu_busy_ratio", cpu, node=node)
        run.status(JobState.COMPLETED, node=node, ended_ns=EPOCH_NS + seconds * S)
    return priced(run.write(), usd)


def priced(path: Path, usd: str) -> Run:
    said = msgspec.json.decode((path / "run.json").read_bytes())
    said["options"] = {"usd_per_hour": usd}
    (path / "run.json").write_bytes(msgspec.json.encode(said))
    return Run(open_run(path))


def test_fewer_and_smaller_machines(tmp_path: Path) -> None:
    """The first published case: 3 at $14.688 for 503 s, then 2 at $3.825 for 502 s."""
    base = machines(tmp_path / "a", count=3, seconds=503, usd="14.688", gpu=0.135, cpu=0.244)
    other = machines(tmp_path / "b", count=2, seconds=502, usd="3.825", gpu=0.46, cpu=0.61)
    found = comparison([base], [other]).before_after
    shown = texts(found)
    assert shown["cost"] == "$6.16 → $1.07"
    assert shown["GPU utilisation of the whole run, p95"] == "13.5 % → 46 %"
    assert shown["CPU utilisation of the whole run, p95"] == "24.4 % → 61 %"
    assert shown["run"] == "8 min 23 s → 8 min 22 s"
    assert found.saving_ratio is not None
    assert f"{found.saving_ratio:.1%}" == "82.6%"
    assert found.saved_usd == pytest.approx(5.09)
    assert found.saved_hours == pytest.approx((3 * 503 - 2 * 502) / 3600)
    assert (found.speed_up, found.speed_up_by) == (None, None)  # no step was seen
    assert found.before_price is not None
    assert found.before_price.said == "as stepscope run --usd-per-hour was told"


SLOW = Side(
    gpu_mean=0.40,
    cpu_mean=0.85,
    epoch_ns=5.9 * HOUR,
    instance_count=1,
    usd_per_hour=price("32.77"),
)
FIXED = Side(
    gpu_mean=0.88,
    cpu_mean=0.55,
    epoch_ns=2.6 * HOUR,
    instance_count=1,
    usd_per_hour=price("32.77"),
)


def test_thirty_epochs_of_a_recommender() -> None:
    """The second published case, in hours as it was: too long to draw."""
    found = before_after(SLOW, FIXED, 30)
    assert texts(found) == {
        "GPU utilisation while training": "40 % → 88 %",
        "CPU utilisation while training": "85 % → 55 %",
        "epoch": "5 h 54 min → 2 h 36 min",
        "run of 30 epochs": "177 h → 78 h",
        "instance-hours": "177 h → 78 h",
        "cost": "$5,800.29 → $2,556.06",
    }
    assert found.saved_hours == 99
    assert found.saved_usd == 3244.23
    assert found.speed_up is not None
    assert f"{found.speed_up:.2f}" == "2.27"
    assert found.speed_up_by == "epoch"
    changes = {row.name: row.change_text for row in found.rows}
    assert changes == {
        "GPU utilisation while training": "+48.0 pp",
        "CPU utilisation while training": "-30.0 pp",
        "epoch": "-55.9 %",
        "run of 30 epochs": "-55.9 %",
        "instance-hours": "-55.9 %",
        "cost": "-55.9 %",
    }


def epochs_of(path: Path, *, wait_ms: int, usd: str, gpu: float) -> Run:
    """Three epochs of 20 steps, each with a tenth of a second to start."""
    run = RunBuilder(path)
    process = run.rank(workers=1)
    for _ in range(3):
        process.draw("start 100")
        process.draw(f"wait=0 {wait_ms} | forward 30 | backward 60 | optimizer 10", 20)
        process.draw("exhausted 0")
    process.workers[0].draw(f"fetch {wait_ms + 90}", 60)
    run.metric("gpu_busy_ratio", gpu, device="0").metric("cpu_busy_ratio", 0.5)
    return priced(run.write(), usd)


def test_the_same_from_recorded_epochs(tmp_path: Path) -> None:
    """Epochs of 5.9 s and 2.6 s, at the price of an hour for a second."""
    usd = str(Decimal("32.77") * 3600)
    base = epochs_of(tmp_path / "a", wait_ms=190, usd=usd, gpu=0.4)
    other = epochs_of(tmp_path / "b", wait_ms=25, usd=usd, gpu=0.88)
    compared = comparison([base], [other], epochs=30)
    found = compared.before_after
    shown = texts(found)
    assert shown["epoch"] == "5.9 s → 2.6 s"
    assert shown["run of 30 epochs"] == "2 min 57 s → 78 s"
    assert shown["cost"] == "$5,800.29 → $2,556.06"
    assert shown["GPU utilisation while training"] == "40 % → 88 %"
    # Of 18 and 8 s, in which something was sampled every half second while the job trained.
    assert not [name for name in shown if "p95" in name]
    few = [note for note in found.notes if "a 95th percentile takes 100 samples" in note]
    assert [note.split()[-1] for note in few] == ["36", "16"]
    # Past warm-up, 2 of 54 steps have the 100 ms in them that starting the loader takes.
    assert shown["step"] == f"{290 + 200 / 54:.0f} ms → {125 + 200 / 54:.0f} ms"
    assert found.saved_usd == 3244.23
    assert found.speed_up == pytest.approx(5.9 / 2.6)
    assert found.speed_up_by == "epoch"
    assert found.epoch_count == 30
    # Without a number of epochs the runs are as they were: three epochs each.
    plain = comparison([base], [other]).before_after
    assert texts(plain)["run"] == "17.7 s → 7.8 s"
    assert texts(plain)["cost"] == "$580.03 → $255.61"


def test_a_run_that_costs_more() -> None:
    found = before_after(FIXED, SLOW, 30)
    assert found.saved_usd == -3244.23
    assert found.saved_hours == -99
    assert found.saving_ratio is not None
    assert found.saving_ratio < 0


def test_what_one_run_lacks(tmp_path: Path) -> None:
    found = before_after(SLOW, Side(instance_count=2, name="b", notes=["no price"]), 30)
    assert texts(found)["epoch"] == "5 h 54 min → n/a"
    assert texts(found)["cost"] == "$5,800.29 → n/a"
    assert (found.saved_usd, found.saved_hours, found.saving_ratio) == (None, None, None)
    assert found.speed_up is None
    assert found.notes == ["b: no price", NO_FULL_RUN.format(epochs=30, of="only one")]
    nothing = before_after(Side(), Side(), 3)
    assert nothing.rows == []
    assert nothing.notes == ["a run of 3 epochs: how long an epoch takes is known of neither run"]


def test_a_step_of_another_batch_says_nothing_of_speed() -> None:
    """A step of 32 times the samples takes twice as long: the training is 16 times as fast."""
    small = Side(step_ns=2e6, batch={"input 0": "4 x 16", "batches per step": "1"})
    large = Side(step_ns=4e6, batch={"input 0": "128 x 16", "DataLoader batch size": "128"})
    found = before_after(small, large)
    assert (found.speed_up, found.speed_up_by) == (None, None)
    assert found.notes == [OTHER_BATCH]
    assert texts(found)["step"] == "2 ms → 4 ms"
    by_epoch = before_after(replace(small, epoch_ns=16 * S), replace(large, epoch_ns=1 * S))
    assert (by_epoch.speed_up, by_epoch.speed_up_by) == (16, "epoch")
    same = before_after(replace(small, step_ns=3e6), small)
    assert (same.speed_up, same.speed_up_by) == (1.5, "step")
    assert same.notes == []
    unknown = before_after(Side(step_ns=3e6), small)  # nothing speaks against it
    assert (unknown.speed_up, unknown.speed_up_by) == (1.5, "step")


def test_what_a_run_says_of_its_batch(tmp_path: Path) -> None:
    found = side_of(epochs_of(tmp_path / "run", wait_ms=10, usd="1", gpu=0.5))
    assert found.batch == {"DataLoader batch size": "32", "batches per step": "1"}


@pytest.mark.parametrize(("count", "p95"), [(99, None), (100, 0.5)])
def test_a_percentile_takes_a_hundred_samples(
    tmp_path: Path, count: int, p95: float | None
) -> None:
    """One every half second."""
    run = RunBuilder(tmp_path / "run")
    run.rank().draw(f"annotation {500 * count}")
    run.metric("cpu_busy_ratio", 0.5)
    found = side_of(run.open())
    assert (found.cpu_mean, found.cpu_p95, found.trained) == (0.5, p95, False)
    said = f"a 95th percentile takes 100 samples; of use it has {count}"
    assert (said in found.notes) == (p95 is None)


def test_use_of_different_times_is_no_common_row() -> None:
    found = before_after(Side(cpu_mean=0.5), Side(cpu_mean=0.25, trained=False))
    assert texts(found) == {"CPU utilisation": "50 % → 25 %"}
    assert found.notes == [OTHER_TIMES.format(before="while training", after="of the whole run")]


def test_notes_name_their_run(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path / "run")
    run.rank().draw("forward 30 | backward 40 | optimizer 30", 20)
    found = side_of(run.open())
    assert len(found.notes) == 2
    assert [note.partition(": ")[0] for note in before_after(found, Side()).notes[:2]] == [
        "drawn",
        "drawn",
    ]
    both = before_after(found, found).notes
    assert [note.partition(": ")[0] for note in both] == ["both runs", "both runs"]
    assert found.usd_per_hour is None
    assert found.step_ns == 100_000_000


def test_a_run_without_cost_has_no_saving() -> None:
    free = Side(instance_count=1, usd_per_hour=Decimal(0), job_ns=HOUR)
    found = before_after(free, free)
    assert texts(found)["cost"] == "$0.00 → $0.00"
    assert found.saving_ratio is None
    assert found.saved_usd == 0
