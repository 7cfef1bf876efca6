"""Changes inside a job: each takes effect, and only some change its losses."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from stepscope.capture.trial import CHANGES
from stepscope.errors import TrialError
from stepscope.trials import JobSource, Schedule, find_real_directories
from stepscope.trials.processes import TrialReport, run_trial

SCRIPT = Path(__file__).with_name("small_training.py")
WARMUP_STEPS, STEPS = 5, 20
SCHEDULE = Schedule(warmup_step_count=WARMUP_STEPS, step_count=STEPS, timeout_s=300)


def run_job(changes: dict[str, str], *options: str, is_isolated: bool | None = None) -> TrialReport:
    """Run one trial of the small job."""
    source = JobSource(
        command=[sys.executable, str(SCRIPT), *options],
        directory=str(SCRIPT.parent),
        environment={**os.environ, "OMP_NUM_THREADS": "1", "STEPSCOPE_STRICT": "1"},
        notes=[],
    )
    if is_isolated is None:
        is_isolated = find_real_directories() is not None
    return run_trial(source, SCHEDULE, changes=changes, batch_size=4, is_isolated=is_isolated)


@pytest.fixture(scope="module")
def base() -> TrialReport:
    return run_job({})


def test_a_trial_reports_its_steps_and_losses(base: TrialReport) -> None:
    assert base.step_count == STEPS
    assert len(base.losses) == WARMUP_STEPS + STEPS
    assert base.applied == {}
    assert 0 < base.step_ns < 1e9
    again = run_job({}, is_isolated=False)
    assert again.losses == base.losses


def test_a_job_that_crashes_after_some_measured_steps_is_no_measurement() -> None:
    step = str(WARMUP_STEPS + STEPS - 2)
    with pytest.raises(TrialError, match=r"The job failed in the trial with status 1: MemoryError"):
        run_job({}, "--crash-at", step)


def test_a_job_that_ends_early_says_so(base: TrialReport) -> None:
    report = run_job({}, "--end-at", str(WARMUP_STEPS + STEPS - 2))
    assert base.early_end is None
    assert 10 < report.step_count < STEPS
    assert report.early_end == (
        f"The job ended after {report.step_count} measured steps: it printed nothing"
    )


@pytest.mark.parametrize(
    ("name", "value", "before"),
    [
        ("num_workers", "2", "0"),
        ("intra_op_threads", "2", "1"),
        ("thread_prefetch", "3", "0"),
        ("cached_samples", "memory", "off"),
        ("pin_memory", "True", "False"),
    ],
)
def test_changes_that_keep_the_losses(
    base: TrialReport, name: str, value: str, before: str
) -> None:
    report = run_job({name: value})
    applied = report.applied[name]
    assert (applied.before, applied.after) == (before, value)
    # Workers take random numbers from the same generator as the training thread does.
    assert report.losses == pytest.approx(base.losses, rel=1e-5)


@pytest.mark.parametrize("value", ["fused", "foreach"])
def test_kernels_of_the_optimizer_change_the_rounding(base: TrialReport, value: str) -> None:
    report = run_job({"optimizer": value})
    assert report.applied["optimizer"].after == value
    assert report.losses == pytest.approx(base.losses, rel=1e-3)


def test_channels_last_changes_the_rounding() -> None:
    """Dropout would draw in the order of memory."""
    report = run_job({"channels_last": "True"}, "--dropout", "0")
    assert report.applied["channels_last"].after == "True"
    assert report.losses == pytest.approx(run_job({}, "--dropout", "0").losses, rel=1e-3)


def test_arguments_of_workers_need_workers() -> None:
    report = run_job({"prefetch_factor": "4", "persistent_workers": "True"}, "--workers", "1")
    assert {name: entry.after for name, entry in report.applied.items()} == {
        "prefetch_factor": "4",
        "persistent_workers": "True",
    }
    assert run_job({"prefetch_factor": "4"}).applied == {}


def test_the_batch_size_changes_the_losses(base: TrialReport) -> None:
    report = run_job({"batch_size": "8"})
    assert (report.applied["batch_size"].before, report.applied["batch_size"].after) == ("4", "8")
    assert report.losses != base.losses


def test_cached_samples_keep_their_augmentation(base: TrialReport) -> None:
    augmented = run_job({}, "--augment")
    cached = run_job({"cached_samples": "memory"}, "--augment")
    # The same dropout and order of data; only the augmentation was drawn at another time.
    assert cached.losses != augmented.losses
    workers = run_job({"cached_samples": "memory"}, "--workers", "2")
    assert workers.losses == pytest.approx(base.losses, rel=1e-5)


def test_debug_switches_of_the_script_are_turned_off() -> None:
    report = run_job({"anomaly_detection": "off", "debug_variables": "off"}, "--debug")
    assert report.applied["anomaly_detection"].before == "on"
    assert report.applied["debug_variables"].before == "TORCH_DISTRIBUTED_DEBUG"
    assert run_job({"anomaly_detection": "off", "debug_variables": "off"}).applied == {}


def test_an_impossible_change_is_an_error() -> None:
    with pytest.raises(TrialError, match=r"The trial failed: RuntimeError: .*no-such-mode"):
        run_job({"compile": "no-such-mode"})


@pytest.mark.slow("compiles a model")
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a compiler")
def test_a_compiled_model(base: TrialReport) -> None:
    report = run_job({"compile": "default"})
    assert report.applied["compile"].before == "not compiled"
    assert report.losses == pytest.approx(base.losses, rel=1e-3)


def test_the_precision_of_matrix_products() -> None:
    report = run_job({"matmul_precision": "medium"})
    assert report.applied["matmul_precision"].before == "highest"


def test_every_change_is_known_here() -> None:
    text = Path(__file__).read_text()
    missing = [name for name in CHANGES if name not in text and name != "cudnn_benchmark"]
    assert not missing
