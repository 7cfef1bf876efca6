"""Jobs under `stepscope run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.job_control import Job


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start jobs in the directory of the test; they are killed after it."""
    jobs: list[Job] = []

    def start_job(*arguments: str, options: tuple[str, ...] = ()) -> Job:
        number = len(jobs)
        job = Job(
            tmp_path / f"run{number}", tmp_path / f"spool{number}", *arguments, options=options
        )
        jobs.append(job)
        return job

    yield start_job
    for job in jobs:
        job.end()
