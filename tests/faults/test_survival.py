"""Killed processes: the records are in the run, and its status is correct."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.job_control import JOB_PYTHON, JOBS, STEPSCOPE, Job, steps_command
from tests.support.tiers import extend_all_but
from tests.support.waiting import wait_until

Start = Callable[..., Job]
in_detail = pytest.mark.extended("test_kills.py kills these processes")


def recorded_steps(run: Path) -> list[int]:
    """Return the step numbers in the run, as reported by the job."""
    rows = open_run(run).table("spans", ["value"], condition="kind = 'step'")
    return sorted(rows["value"].tolist())


def status(run: Path):
    (node_status,) = open_run(run).statuses().values()
    return node_status


def recover(run: Path) -> dict:
    done = subprocess.run(
        [*STEPSCOPE, "recover", str(run), "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def assert_complete(run: Path, reported_count: int) -> None:
    """Check that every step reported by the job is in the run, once and intact."""
    steps = recorded_steps(run)
    assert steps == list(range(len(steps)))
    assert len(steps) >= reported_count
    work = open_run(run).table("spans", ["start_ns", "end_ns"], condition="name = 'work'")
    ended = ~np.ma.getmaskarray(work["end_ns"])
    assert ended.sum() >= reported_count
    assert (work["end_ns"].data[ended] > work["start_ns"][ended]).all()


@pytest.mark.extended("every other job ends, too")
def test_a_job_that_ends_is_completed(start: Start) -> None:
    job = start(*steps_command("--count", "50"))
    assert job.wait() == 0
    assert recorded_steps(job.run) == list(range(50))
    assert status(job.run).state is JobState.COMPLETED
    assert status(job.run).exit_code == 0
    assert not list(job.spool_base.glob("stepscope-*"))


def test_the_exit_status_of_the_job_is_returned(start: Start) -> None:
    job = start("sh", "-c", "exit 7")
    assert job.wait() == 7
    assert status(job.run).state is JobState.FAILED
    assert status(job.run).exit_code == 7


@pytest.mark.parametrize(
    "redirection",
    extend_all_but(
        {">&- 2>&-"}, [">&- 2>&-", "2>&-", "2>/dev/full", ">/dev/full"], "another stream"
    ),
)
def test_output_that_cannot_be_written_does_not_change_the_exit_status(
    tmp_path: Path, redirection: str
) -> None:
    run = tmp_path / "run"
    command = shlex.join([*STEPSCOPE, "run", "--out", str(run), "--", "sh", "-c", "exit 7"])
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(["sh", "-c", f"{command} {redirection}"], env=environment, timeout=60)
    assert done.returncode == 7
    assert status(run).exit_code == 7


@pytest.mark.parametrize(
    "number",
    extend_all_but(
        {signal.SIGKILL}, [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT], "another signal"
    ),
)
def test_a_signal_death_is_passed_on(start: Start, number: signal.Signals) -> None:
    job = start("sh", "-c", f"kill -{int(number)} $$")
    assert job.wait() == -number
    assert status(job.run).state is JobState.FAILED
    assert status(job.run).signal == number


@in_detail
def test_kill_9_of_the_job(start: Start) -> None:
    job = start(*steps_command())
    job.wait_done(100)
    os.kill(job.children()["job"], signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    assert_complete(job.run, job.done)
    assert status(job.run).state is JobState.FAILED
    assert status(job.run).signal == signal.SIGKILL


@in_detail
def test_kill_9_of_a_child_of_the_job(start: Start) -> None:
    """Kill a child, like a rank of torchrun: the command itself continues, and fails."""
    job = start(*steps_command("--child"))
    job.wait_done(100)
    parent = job.children()["job"]
    (rank,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(rank), signal.SIGKILL)
    assert job.wait() != 0
    assert_complete(job.run, job.done)
    assert status(job.run).state is JobState.FAILED


@in_detail
def test_kill_9_of_the_monitor(start: Start) -> None:
    job = start(*steps_command("--count", "3000"))
    job.wait_done(100)
    first = job.wait_monitor()
    wait_until(lambda: recorded_or_none(job.run), waiting_for="a first flush")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: job.children().get("monitor", first) != first, waiting_for="a new monitor")
    assert job.wait() == 0
    assert_complete(job.run, 3000)
    assert len(recorded_steps(job.run)) == 3000
    assert status(job.run).state is JobState.COMPLETED
    metrics = open_run(job.run).table("metrics", ["process"])
    assert len(set(metrics["process"].tolist())) == 2  # both monitors' samples are there


def recorded_or_none(run: Path) -> list[int]:
    return recorded_steps(run) if (run / "tables" / "spans").is_dir() else []


@in_detail
def test_kill_9_of_everything(start: Start) -> None:
    job = start(*steps_command())
    monitor = job.wait_monitor()
    wait_until((job.run / "nodes").is_dir, waiting_for="the start of the monitor")
    job.wait_done(100)
    victims = [job.launcher.pid, monitor, job.children()["job"]]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    job.launcher.wait(60)
    wait_until(
        lambda: (
            not Path(f"/proc/{victims[2]}/cmdline").exists()
            or not Path(f"/proc/{victims[2]}/cmdline").read_bytes()
        ),
        waiting_for="the job's end",
    )
    reported = job.done
    first = recover(job.run)
    assert first["complete"]
    assert first["state"] == "Unknown"
    assert_complete(job.run, reported)
    before = recorded_steps(job.run)
    second = recover(job.run)
    assert second["row_count"] == 0
    assert recorded_steps(job.run) == before
    assert status(job.run).state is JobState.UNKNOWN
    assert "the exit status is unknown" in status(job.run).reason


@in_detail
def test_kill_9_of_everything_before_the_first_flush(start: Start) -> None:
    job = start(*steps_command())
    job.wait_done(5)
    children = job.children()
    for pid in (job.launcher.pid, *children.values()):
        os.kill(pid, signal.SIGKILL)
    job.launcher.wait(60)
    reported = job.done
    recover(job.run)
    assert_complete(job.run, reported)
    assert status(job.run).state is JobState.UNKNOWN


@pytest.mark.extended("test_ctrl_c_in_a_terminal_reaches_the_job_once stops a job, too")
def test_sigterm_is_passed_to_the_job_and_ends_in_stopped(start: Start) -> None:
    job = start(*steps_command("--on-stop", "exit-0"))
    job.wait_done(50)
    os.kill(job.launcher.pid, signal.SIGTERM)
    assert job.wait() == 0
    assert status(job.run).state is JobState.STOPPED
    assert_complete(job.run, job.done)


@pytest.mark.extended("another job; the signal is passed to one in the test above")
def test_sigterm_kills_a_job_that_does_not_handle_it(start: Start) -> None:
    job = start(*steps_command())
    job.wait_done(50)
    os.kill(job.launcher.pid, signal.SIGTERM)
    assert job.wait() == -signal.SIGTERM
    assert status(job.run).state is JobState.STOPPED
    assert status(job.run).signal == signal.SIGTERM


def test_ctrl_c_in_a_terminal_reaches_the_job_once(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the process group: the launcher must not send a second one."""
    run = tmp_path / "run"
    job = [JOB_PYTHON, str(JOBS / "count_interrupts.py")]
    command = [*STEPSCOPE, "run", "--out", str(run), "--", *job]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(command[0], command)  # noqa: S606
    output = b""
    while b"ready" not in output:
        output += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other end of the terminal is closed
            break
        if not part:
            break
        output += part
    _, code = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(code) == 0
    assert b"interrupts 1" in output
    assert status(run).state is JobState.STOPPED


@pytest.mark.extended("another job; states are in tests/unit/monitor")
def test_status_of_a_running_and_of_a_stopping_job(start: Start, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    job = start(JOB_PYTHON, str(JOBS / "slow_stop.py"), str(pipe))
    job.wait_done(1)
    wait_until((job.run / "nodes").is_dir, waiting_for="a status")
    wait_until(lambda: list((job.run / "nodes").glob("*/status.json")), waiting_for="a status")
    assert status(job.run).state is JobState.IN_PROGRESS
    heartbeat = status(job.run).heartbeat_ns
    os.kill(job.launcher.pid, signal.SIGTERM)
    wait_until(lambda: status(job.run).state is JobState.STOPPING, waiting_for="Stopping")
    assert status(job.run).heartbeat_ns > heartbeat
    pipe.write_text("")
    assert job.wait() == 0
    assert status(job.run).state is JobState.STOPPED


@pytest.mark.extended("another job; refusals of recover are in tests/unit/cli")
def test_recover_leaves_a_running_job_alone(start: Start) -> None:
    job = start(*steps_command())
    job.wait_monitor()
    wait_until(lambda: list((job.run / "nodes").glob("*/status.json")), waiting_for="a status")
    answer = recover(job.run)
    assert answer["spool"] is None
    assert "still running" in answer["reason"]


@pytest.mark.extended("another job; refusals of recover are in tests/unit/cli")
def test_recover_of_a_complete_run(start: Start) -> None:
    job = start(*steps_command("--count", "20"))
    assert job.wait() == 0
    answer = recover(job.run)
    assert answer["row_count"] == 0
    assert answer["state"] == "Completed"
