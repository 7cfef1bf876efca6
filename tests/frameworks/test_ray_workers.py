"""Workers of Ray Train: ranks, steps and samples."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from stepscope.store import open_run
from tests.support.framework_environments import find_python
from tests.support.under_stepscope import FinishedJob, run_under

pytestmark = pytest.mark.extended("Ray's environment has 2 GB")

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "ray_training.py"


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    python = find_python("ray")
    directory = tmp_path_factory.mktemp("ray")
    with tempfile.TemporaryDirectory(prefix="ray") as sockets:  # their paths have to be short
        done = run_under(
            directory / "run",
            *(python, str(SCRIPT), str(directory / "results"), sockets),
            options=("--window", "off", "--no-rules"),
            RAY_AUTH_MODE="disabled",
        )
    assert done.code == 0, done.stderr
    return done


def test_workers_are_ranks(job: FinishedJob) -> None:
    workers = [process for process in open_run(job.run).processes() if process.rank is not None]
    assert sorted((worker.rank, worker.world_size) for worker in workers) == [(0, 2), (1, 2)]


def test_steps_of_every_worker_are_counted(job: FinishedJob) -> None:
    counts = {job.steps(rank)["rank"]: job.steps(rank)["step_count"] for rank in range(2)}
    # The end of the first step is the first that is known of a script without phases.
    assert counts == {"rank 0": 29, "rank 1": 29}


def test_the_verdict_names_the_line(job: FinishedJob) -> None:
    verdict = job.verdict
    assert verdict["cause"] == "python_overhead"
    assert any("ray_training.py" in evidence["text"] for evidence in verdict["evidence"])
