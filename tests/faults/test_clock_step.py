"""A wall clock that is set back by an hour while a job runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.run import Run, job_statistics
from stepscope.store import open_run
from tests.support.job_control import JOB_PYTHON, Job
from tests.support.waiting import wait_until

CLOCK = Path(__file__).parents[1] / "support" / "stepped_clock"
HOUR_NS = 3_600_000_000_000


def test_durations_do_not_depend_on_the_wall_clock(
    start: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, step = tmp_path / "pipe", tmp_path / "step"
    os.mkfifo(pipe)
    monkeypatch.setenv("CLOCK_STEP", str(step))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(CLOCK), os.environ.get("PYTHONPATH", "")])
    )
    script = f"import stepscope; stepscope.step(1); open({str(pipe)!r}).read(); stepscope.step(2)"
    job = start(JOB_PYTHON, "-c", script)
    wait_until(lambda: list(job.run.glob("nodes/*/status.json")), waiting_for="a status")
    step.touch()
    pipe.write_text("")
    assert job.wait() == 0
    reader = open_run(job.run)
    (status,) = reader.statuses().values()
    assert status.heartbeat_ns < status.started_ns, "the clock of the monitor was not set back"
    assert status.duration_ns is not None
    assert 0 < status.duration_ns < HOUR_NS
    assert status.ended_ns == status.started_ns + status.duration_ns
    for process in reader.processes():
        if process.ended_ns is not None and process.started_ns:
            assert 0 < process.ended_ns - process.started_ns < HOUR_NS
    assert 0 < job_statistics(Run(reader)).duration_ns < HOUR_NS
