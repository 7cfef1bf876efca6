"""A wall clock that is set back, or ahead, by an hour while a job runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.diagnosis import diagnose
from stepscope.run import Run, job_statistics
from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.job_control import JOB_PYTHON, Job
from tests.support.stepping_clock import SteppingClock
from tests.support.tiers import extend_all_but
from tests.support.waiting import wait_until

HOUR_S = 3600
HOUR_NS = 3_600_000_000_000


@pytest.mark.parametrize(
    "step_s", extend_all_but({-HOUR_S}, [-HOUR_S, HOUR_S], "the other direction")
)
def test_durations_do_not_depend_on_the_wall_clock(
    start: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: int
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    clock = SteppingClock(tmp_path / "step", monkeypatch)
    script = f"import stepscope; stepscope.step(1); open({str(pipe)!r}).read(); stepscope.step(2)"
    job = start(JOB_PYTHON, "-c", script)
    wait_until(lambda: list(job.run.glob("nodes/*/status.json")), waiting_for="a status")
    clock.step(wall_s=step_s)
    pipe.write_text("")
    assert job.wait() == 0
    reader = open_run(job.run)
    (status,) = reader.statuses().values()
    assert abs(status.heartbeat_ns - status.started_ns) > HOUR_NS / 2, "the clock was not stepped"
    assert status.state is JobState.COMPLETED
    assert status.max_pause_ns < HOUR_NS
    assert status.duration_ns is not None
    assert 0 < status.duration_ns < HOUR_NS
    assert status.ended_ns == status.started_ns + status.duration_ns
    for process in reader.processes():
        if process.ended_ns is not None and process.started_ns:
            assert 0 < process.ended_ns - process.started_ns < HOUR_NS
    assert 0 < job_statistics(Run(reader)).duration_ns < HOUR_NS
    assert "monitor" not in diagnose(Run(reader)).headline
