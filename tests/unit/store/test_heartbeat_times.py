"""A node whose clock differs from that of the file system runs as long as it writes its status."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stepscope.run import job_state
from stepscope.schema import JobState, JobStatus
from stepscope.store import RunWriter, open_run
from tests.support.shared_runs import SharedJob

YEAR_S = 365 * 86400.0
ELAPSED_S = 300.0


def write(
    path: Path, *, clock_s: float, age_s: float, is_copy: bool = False, server_s: float = 0.0
) -> JobStatus:
    """Write a run whose node has sent a heartbeat some time ago, by a clock that differs, to a
    file server whose clock differs by `server_s`.

    Returns:
        The status as it is read.
    """
    SharedJob(path)
    now_s = time.time() - age_s
    status = JobStatus(
        state=JobState.IN_PROGRESS,
        heartbeat_ns=round(1e9 * (now_s + clock_s)),
        started_ns=round(1e9 * (now_s + clock_s - ELAPSED_S)),
        elapsed_ns=round(1e9 * ELAPSED_S),
    )
    with RunWriter(path, "n") as writer:
        writer.put_status(status)
    written_s = now_s + server_s if not is_copy else time.time()
    os.utime(path / "nodes/n/status.json", (written_s, written_s))
    created_s = written_s if is_copy else written_s - ELAPSED_S - 1
    os.utime(path / "run.json", (created_s, created_s))
    return open_run(path).statuses()["n"]


@pytest.mark.parametrize("clock_s", [-YEAR_S, -40.0, 0.0, 40.0, YEAR_S])
def test_a_node_runs_whatever_its_clock_says(tmp_path: Path, clock_s: float) -> None:
    assert not write(tmp_path / "run", clock_s=clock_s, age_s=1).is_silent(time.time_ns())


@pytest.mark.parametrize("clock_s", [-YEAR_S, 0.0, YEAR_S])
def test_a_node_that_writes_no_more_is_silent_whatever_its_clock_says(
    tmp_path: Path, clock_s: float
) -> None:
    status = write(tmp_path / "run", clock_s=clock_s, age_s=120)
    assert status.is_silent(time.time_ns())
    assert time.time_ns() - status.heartbeat_ns == pytest.approx(120e9, abs=30e9)


@pytest.mark.parametrize("server_s", [-YEAR_S, -120.0, 120.0, YEAR_S])
@pytest.mark.parametrize(("age_s", "is_silent"), [(1.0, False), (60.0, True)])
def test_the_clock_of_the_file_server_does_not_matter(
    tmp_path: Path, server_s: float, age_s: float, *, is_silent: bool
) -> None:
    status = write(tmp_path / "run", clock_s=0.0, age_s=age_s, server_s=server_s)
    assert status.is_silent(time.time_ns()) == is_silent


def test_a_copy_of_a_run_does_not_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert write(path, clock_s=0, age_s=YEAR_S, is_copy=True).is_silent(time.time_ns())
    assert job_state(open_run(path).statuses().values()) is JobState.IN_PROGRESS  # its last state
