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


@pytest.mark.slow("trains")
def test_a_trial_reports_its_steps_and_losses(base: TrialReport) -> None:
    """Losses are the same without namespaces, and with changes of what the job does not have."""
    assert base.step_count == STEPS
    assert len(base.losses) == WARMUP_STEPS + STEPS
    assert base.applied == {}
    assert 0 < base.step_ns < 1e9
    nothing = {"prefetch_factor": "4", "anomaly_detection": "off", "debug_variables": "off"}
    again = run_job(nothing, is_isolated=False)
    assert again.losses == base.losses
    assert again.applied == {}


@pytest.mark.extended("one more job; one that ends early is shown below")
def test_a_job_that_crashes_after_some_measured_steps_is_no_measurement() -> None:
    step = str(WARMUP_STEPS + STEPS - 2)
    with pytest.raises(TrialError, match=r"The job failed in the trial with status 1: MemoryError"):
        run_job({}, "--crash-at", step)


@pytest.mark.slow("trains")
def test_a_job_that_ends_early_says_so(base: TrialReport) -> None:
    report = run_job({}, "--end-at", str(WARMUP_STEPS + STEPS - 2))
    assert base.early_end is None
    assert 10 < report.step_count < STEPS
    assert report.early_end == (
        f"The job ended after {report.step_count} measured steps: it printed nothing"
    )


@pytest.mark.slow("trains")
@pytest.mark.parametrize(
    "changes",
    [
        {
            "num_workers": ("0", "2"),
            "intra_op_threads": ("1", "2"),
            "pin_memory": ("False", "True"),
        },
        {"thread_prefetch": ("0", "3"), "cached_samples": ("off", "memory")},
    ],
    ids=["workers", "threads"],
)
def test_changes_that_keep_the_losses(
    base: TrialReport, changes: dict[str, tuple[str, str]]
) -> None:
    report = run_job({name: after for name, (_, after) in changes.items()})
    applied = {name: (entry.before, entry.after) for name, entry in report.applied.items()}
    assert applied == changes
    # Workers take random numbers from the same generator as the training thread does.
    assert report.losses == pytest.approx(base.losses, rel=1e-5)


@pytest.mark.extended("two more jobs")
@pytest.mark.parametrize(
    "value",
    ["fused", pytest.param("foreach", marks=pytest.mark.extended("fused takes the same way"))],
)
def test_kernels_of_the_optimizer_change_the_rounding(base: TrialReport, value: str) -> None:
    report = run_job({"optimizer": value})
    assert report.applied["optimizer"].after == value
    assert report.losses == pytest.approx(base.losses, rel=1e-3)


@pytest.mark.extended("two more jobs; a kernel that rounds otherwise is tried, too")
def test_precision_and_order_in_memory_change_the_rounding() -> None:
    """Without dropout, which would draw in the order of memory."""
    report = run_job({"channels_last": "True", "matmul_precision": "medium"}, "--dropout", "0")
    assert report.applied["channels_last"].after == "True"
    assert report.applied["matmul_precision"].before == "highest"
    assert report.losses == pytest.approx(run_job({}, "--dropout", "0").losses, rel=1e-3)


@pytest.mark.extended("one more job")
def test_arguments_of_workers_and_debug_switches() -> None:
    """Workers that the job has take arguments; switches of the script are turned off."""
    changes = {"prefetch_factor": "4", "persistent_workers": "True"}
    switches = {"anomaly_detection": "on", "debug_variables": "TORCH_DISTRIBUTED_DEBUG"}
    report = run_job(changes | dict.fromkeys(switches, "off"), "--workers", "1", "--debug")
    assert {name: report.applied[name].after for name in changes} == changes
    assert {name: report.applied[name].before for name in switches} == switches


@pytest.mark.extended("one more job")
def test_the_batch_size_changes_the_losses(base: TrialReport) -> None:
    report = run_job({"batch_size": "8"})
    assert (report.applied["batch_size"].before, report.applied["batch_size"].after) == ("4", "8")
    assert report.losses != base.losses


@pytest.mark.extended("three more jobs; that losses stay the same is shown above")
def test_cached_samples_keep_their_augmentation(base: TrialReport) -> None:
    augmented = run_job({}, "--augment")
    cached = run_job({"cached_samples": "memory"}, "--augment")
    # The same dropout and order of data; only the augmentation was drawn at another time.
    assert cached.losses != augmented.losses
    workers = run_job({"cached_samples": "memory"}, "--workers", "2")
    assert workers.losses == pytest.approx(base.losses, rel=1e-5)


@pytest.mark.slow("trains")
def test_an_impossible_change_is_an_error() -> None:
    with pytest.raises(TrialError, match=r"The trial failed: RuntimeError: .*no-such-mode"):
        run_job({"compile": "no-such-mode"})


@pytest.mark.extended("compiles for a minute of CPU time")
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a compiler")
def test_a_compiled_model(base: TrialReport) -> None:
    report = run_job({"compile": "default"})
    assert report.applied["compile"].before == "not compiled"
    assert report.losses == pytest.approx(base.losses, rel=1e-3)


def test_every_change_is_known_here() -> None:
    text = Path(__file__).read_text()
    missing = [name for name in CHANGES if name not in text and name != "cudnn_benchmark"]
    assert not missing
