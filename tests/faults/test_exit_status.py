"""Killed launchers: the state of the job is the one that it had, or unknown."""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stepscope.monitor.control import ProcessEnd
from stepscope.run import explain_recovery
from stepscope.schema import JobState, JobStatus
from stepscope.store import open_run
from tests.support.command import run_command, run_process
from tests.support.job_control import JOB_PYTHON, Job
from tests.support.tiers import extend_all_but
from tests.support.waiting import wait_until

PR_SET_CHILD_SUBREAPER = 36
KEPT_SINCE = (6, 15)
"""First version of Linux that keeps the wait status of a process with its pidfd."""


@pytest.fixture
def adoption() -> Iterator[None]:
    """Become the parent of orphans, so that their exit statuses stay readable on every kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


class WaitingJob:
    """A job of Python that records a step, waits for `release`, and executes code."""

    def __init__(self, start: Callable[..., Job], pipe: Path, code: str) -> None:
        self._pipe = pipe
        os.mkfifo(pipe)
        script = f"import os, stepscope; stepscope.step(1); open({str(pipe)!r}).read(); {code}"
        self.job = start(JOB_PYTHON, "-c", script)
        wait_until(lambda: list(self.run.glob("nodes/*/status.json")), waiting_for="a status")
        self.command, self.monitor = int(self.status.pid or 0), int(self.status.monitor_pid or 0)
        self.pids = list(self.job.children().values())

    @property
    def run(self) -> Path:
        return self.job.run

    @property
    def status(self) -> JobStatus:
        (status,) = open_run(self.run).statuses().values()
        return status

    def release(self) -> None:
        self._pipe.write_text("")

    def kill_launcher(self) -> None:
        self.job.launcher.kill()
        self.job.launcher.wait(60)


@pytest.fixture
def start_waiting(start: Callable[..., Job], tmp_path: Path) -> Iterator[Callable[..., WaitingJob]]:
    jobs: list[WaitingJob] = []

    def start_job(code: str) -> WaitingJob:
        jobs.append(WaitingJob(start, tmp_path / f"pipe{len(jobs)}", code))
        return jobs[-1]

    yield start_job
    for pid in [pid for job in jobs for pid in job.pids]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # not adopted
            os.waitpid(pid, 0)


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.extended("test_kills.py kills the launcher")
@pytest.mark.parametrize(
    ("code", "state", "exit_code"),
    extend_all_but(
        [("os._exit(3)", JobState.FAILED, 3)],
        [("pass", JobState.COMPLETED, 0), ("os._exit(3)", JobState.FAILED, 3)],
        "another exit status",
    ),
)
def test_the_monitor_reports_the_exit_status_when_the_launcher_was_killed(
    start_waiting: Callable[..., WaitingJob],
    adoption: None,
    code: str,
    state: JobState,
    exit_code: int,
) -> None:
    job = start_waiting(code)
    job.kill_launcher()
    job.release()
    wait_until(lambda: job.status.state.is_final, waiting_for="the end of the monitor")
    assert (job.status.state, job.status.exit_code) == (state, exit_code)
    wait_until(lambda: not list(job.job.spool_base.iterdir()), waiting_for="a removed spool")


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    extend_all_but(
        [("pass", JobState.UNKNOWN, "the script ended without an uncaught exception")],
        [
            ("pass", JobState.UNKNOWN, "the script ended without an uncaught exception"),
            ("raise ValueError('on purpose')", JobState.FAILED, "an uncaught ValueError"),
        ],
        "another end of the job",
    ),
)
def test_a_job_whose_end_was_not_seen_says_so_and_how_to_recover(
    start_waiting: Callable[..., WaitingJob], code: str, state: JobState, reason: str
) -> None:
    job = start_waiting(code)
    job.kill_launcher()
    os.kill(job.monitor, signal.SIGKILL)
    wait_until(lambda: has_ended(job.monitor), waiting_for="the end of the monitor")
    assert explain_recovery(open_run(job.run)) is None  # the job is still running
    job.release()
    wait_until(lambda: has_ended(job.command), waiting_for="the end of the job")
    advice = explain_recovery(open_run(job.run))
    assert advice is not None
    _, *arguments = shlex.split(advice.partition("Store the remaining records with: ")[2])

    def recover() -> bool:
        """Follow the advice; until the kernel has cleared up after the kill, it says to wait."""
        done = run_command(job.run, *arguments)
        assert done.returncode == 0, done.stderr
        return job.status.state.is_final

    wait_until(recover, waiting_for="a final state")
    assert job.status.state is state
    assert str(job.status.reason).endswith(reason)
    assert explain_recovery(open_run(job.run)) is None


UPGRADED = """
import sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "stepscope.watch.process":
            raise ImportError("cannot import name 'rules' from 'stepscope'")
sys.meta_path.insert(0, Finder())
"""
"""A module that cannot be imported, as after an upgrade of the package while the job runs."""


@pytest.mark.parametrize("exit_code", [0, 5])
def test_a_failure_of_the_launcher_after_the_job_keeps_its_exit_status(
    tmp_path: Path, exit_code: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(UPGRADED)
    code = f"raise SystemExit({exit_code})"
    command = ("run", "--out", "RUN", "--", JOB_PYTHON, "-c", code)
    done = run_process(tmp_path, *command, PYTHONPATH=str(tmp_path))
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr
    assert "The verdict is not available: cannot import name 'rules'" in done.stderr
    assert f"diagnose {tmp_path / 'RUN'}" in done.stderr


def test_a_pidfd_keeps_the_wait_status_of_a_reaped_process() -> None:
    if tuple(map(int, platform.release().split(".")[:2])) < KEPT_SINCE:
        pytest.skip("the kernel tells the wait status to the parent only")
    process = subprocess.Popen(["sh", "-c", "read line; exit 7"], stdin=subprocess.PIPE)
    with ProcessEnd(process.pid) as end:
        assert end.read_wait_status() is None
        process.communicate(b"\n")
        assert end.read_wait_status() == 7 << 8
