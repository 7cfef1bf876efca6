"""Jobs of Keras that fail or never train: they end as without stepscope."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.framework_environments import find_python
from tests.support.under_stepscope import JOB_TIMEOUT_S, FinishedJob, run_under

pytestmark = pytest.mark.extended("jobs that fail; test_keras_contracts.py has a job")

SCRIPT = Path(__file__).parent / "scripts" / "keras_faults.py"
OPTIONS = ("--quiet", "--no-rules", "--window", "off")


@pytest.fixture(scope="module")
def python() -> str:
    return find_python("keras")


def run_both(
    python: str, directory: Path, fault: str, backend: str = "tensorflow"
) -> tuple[FinishedJob, subprocess.CompletedProcess[str]]:
    """Run the script with and without stepscope."""
    command = [python, str(SCRIPT), fault]
    job = run_under(directory / "run", *command, options=OPTIONS, KERAS_BACKEND=backend)
    bare = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        env={**os.environ, "KERAS_BACKEND": backend},
    )
    return job, bare


def test_a_callback_that_raises(python: str, tmp_path: Path) -> None:
    job, bare = run_both(python, tmp_path, "callback")
    assert (job.code, job.stdout) == (bare.returncode, bare.stdout) == (1, "")
    error = "RuntimeError: the callback fails on purpose"
    assert error in bare.stderr
    assert error in job.stderr
    assert job.steps()["step_count"] == 5


def test_a_backend_that_is_not_installed(python: str, tmp_path: Path) -> None:
    job, bare = run_both(python, tmp_path, "callback", backend="openvino")
    assert job.code == bare.returncode == 1
    error = bare.stderr.strip().splitlines()[-1]
    assert error.startswith("ModuleNotFoundError: No module named 'openvino'")
    assert error in job.stderr


def test_a_job_that_never_trains(python: str, tmp_path: Path) -> None:
    job, bare = run_both(python, tmp_path, "evaluation")
    assert (job.code, job.stdout) == (bare.returncode, bare.stdout)
    assert job.code == 0
    assert "no optimizer stepped and no backward pass ran" in job.verdict["headline"]
