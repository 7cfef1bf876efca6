"""Processes that are suspended for longer than any time limit, and then continue.

The limits expire because the clocks of all processes are stepped; `make slow-faults` lets the time
pass instead.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.schema import JobState, JobStatus
from stepscope.store import open_run
from tests.support.announced_steps import announced_command, announced_count, stored_steps
from tests.support.job_control import Job
from tests.support.scale import IS_FULL
from tests.support.stepping_clock import SteppingClock
from tests.support.tiers import extend_all_but
from tests.support.waiting import wait_until

STEP_COUNT = 400
PAUSE_S = 75
"""Longer than a launcher waits for the monitor, and than a monitor may be silent."""


def status_of(run: Path) -> JobStatus:
    (status,) = open_run(run).statuses().values()
    return status


@pytest.mark.parametrize(
    "role", extend_all_but({"monitor"}, ["job", "monitor", "watch", "launcher"], "another process")
)
def test_a_suspended_process(
    start: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """Nothing is lost, and the job completes, even if it ends while its launcher is suspended."""
    clock = SteppingClock(tmp_path / "step", monkeypatch)
    truth, go = tmp_path / "truth", tmp_path / "go"
    waiting = ("--wait-at", "200", "--wait-for", str(go))
    job = start(*announced_command(truth, "--count", str(STEP_COUNT), *waiting))
    wait_until(lambda: list(job.run.glob("nodes/*/status.json")), waiting_for="a status")
    wait_until(lambda: announced_count(truth) == 200, waiting_for="steps")
    children = {name: job.wait_child(name) for name in ("job", "monitor", "watch")}
    victim = children.get(role, job.launcher.pid)
    os.kill(victim, signal.SIGSTOP)
    try:
        if IS_FULL:
            time.sleep(PAUSE_S)
        else:
            clock.step(wall_s=PAUSE_S, monotonic_s=PAUSE_S)
        if role != "job":
            go.touch()
            wait_until(lambda: announced_count(truth) == STEP_COUNT, waiting_for="the last step")
        if role == "launcher":
            wait_until(lambda: status_of(job.run).state.is_final, waiting_for="the end of the job")
    finally:
        os.kill(victim, signal.SIGCONT)
        go.touch()
    assert job.wait() == 0
    errors = job.errors.read_text()
    # A monitor that was suspended until a moment ago may go on for another one.
    wait_until(lambda: status_of(job.run).state.is_final, waiting_for="the end of the recording")
    assert stored_steps(job.run) == list(range(STEP_COUNT)), errors
    assert status_of(job.run).state is JobState.COMPLETED
    assert job.children() == {}
    assert not list(job.spool_base.glob("stepscope-*"))
    assert "Traceback" not in errors
    assert "recover" not in errors
    notes = " ".join(diagnose(Run(open_run(job.run))).notes)
    if role == "monitor" or IS_FULL:  # a stepped clock is a pause for every process
        assert ("the monitor did not run for" in notes) == (role == "monitor"), notes
