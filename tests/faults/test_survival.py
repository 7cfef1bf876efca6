"""Whatever is killed, and however: what was recorded is in the run, and the status is right."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.job_control import STEPSCOPE, Job, steps_command, wait_for

Start = Callable[..., Job]


def recorded_steps(run: Path) -> list[int]:
    """Numbers of the steps in the run, as the job gave them."""
    rows = open_run(run).table("spans", ["value"], condition="kind = 'step'")
    return sorted(rows["value"].tolist())


def status(run: Path):
    (found,) = open_run(run).statuses().values()
    return found


def recover(run: Path) -> dict:
    done = subprocess.run(
        [*STEPSCOPE, "recover", str(run), "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def assert_whole(run: Path, said: int) -> None:
    """Every step that the job said was over is there, once, and none is torn."""
    steps = recorded_steps(run)
    assert steps == list(range(len(steps)))
    assert len(steps) >= said
    work = open_run(run).table("spans", ["start_ns", "end_ns"], condition="name = 'work'")
    ended = ~np.ma.getmaskarray(work["end_ns"])
    assert ended.sum() >= said
    assert (work["end_ns"].data[ended] > work["start_ns"][ended]).all()


def test_a_job_that_ends_is_completed(start: Start) -> None:
    job = start(*steps_command("--count", "50"))
    assert job.wait() == 0
    assert recorded_steps(job.run) == list(range(50))
    assert status(job.run).state is JobState.COMPLETED
    assert status(job.run).exit_code == 0
    assert not list(job.spool_base.glob("stepscope-*"))


def test_the_exit_status_is_the_jobs(start: Start) -> None:
    job = start("sh", "-c", "exit 7")
    assert job.wait() == 7
    assert status(job.run).state is JobState.FAILED
    assert status(job.run).exit_code == 7


@pytest.mark.parametrize("redirection", [">&- 2>&-", "2>&-", "2>/dev/full", ">/dev/full"])
def test_output_that_cannot_be_written_does_not_change_the_exit_status(
    tmp_path: Path, redirection: str
) -> None:
    run = tmp_path / "run"
    command = shlex.join([*STEPSCOPE, "run", "--out", str(run), "--", "sh", "-c", "exit 7"])
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(["sh", "-c", f"{command} {redirection}"], env=environment, timeout=60)
    assert done.returncode == 7
    assert status(run).exit_code == 7


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_signal_death_is_passed_on(start: Start, number: signal.Signals) -> None:
    job = start("sh", "-c", f"kill -{int(number)} $$")
    assert job.wait() == -number
    assert status(job.run).state is JobState.FAILED
    assert status(job.run).signal == number


def test_kill_9_of_the_job(start: Start) -> None:
    job = start(*steps_command())
    job.wait_done(100)
    os.kill(job.children()["job"], signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    assert_whole(job.run, job.done)
    assert status(job.run).state is JobState.FAILED
    assert status(job.run).signal == signal.SIGKILL


def test_kill_9_of_a_child_of_the_job(start: Start) -> None:
    """As of one rank below torchrun: the launcher's command lives and fails by itself."""
    job = start(*steps_command("--child"))
    job.wait_done(100)
    parent = job.children()["job"]
    (rank,) = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    os.kill(int(rank), signal.SIGKILL)
    assert job.wait() != 0
    assert_whole(job.run, job.done)
    assert status(job.run).state is JobState.FAILED


def test_kill_9_of_the_monitor(start: Start) -> None:
    job = start(*steps_command("--count", "3000"))
    job.wait_done(100)
    first = job.wait_monitor()
    wait_for(lambda: recorded_or_none(job.run), what="a first flush")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: job.children().get("monitor", first) != first, what="a new monitor")
    assert job.wait() == 0
    assert_whole(job.run, 3000)
    assert len(recorded_steps(job.run)) == 3000
    assert status(job.run).state is JobState.COMPLETED
    metrics = open_run(job.run).table("metrics", ["process"])
    assert len(set(metrics["process"].tolist())) == 2  # both monitors' samples are there


def recorded_or_none(run: Path) -> list[int]:
    return recorded_steps(run) if (run / "tables" / "spans").is_dir() else []


def test_kill_9_of_everything(start: Start) -> None:
    job = start(*steps_command())
    monitor = job.wait_monitor()
    wait_for((job.run / "nodes").is_dir, what="the monitor's first word")
    job.wait_done(100)
    victims = [job.launcher.pid, monitor, job.children()["job"]]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    job.launcher.wait(10)
    wait_for(
        lambda: (
            not Path(f"/proc/{victims[2]}/cmdline").exists()
            or not Path(f"/proc/{victims[2]}/cmdline").read_bytes()
        ),
        what="the job's end",
    )
    said = job.done
    first = recover(job.run)
    assert first["complete"]
    assert first["state"] == "Failed"
    assert_whole(job.run, said)
    before = recorded_steps(job.run)
    second = recover(job.run)
    assert second["row_count"] == 0
    assert recorded_steps(job.run) == before
    assert status(job.run).state is JobState.FAILED
    assert "the exit status is unknown" in status(job.run).reason


def test_everything_killed_before_the_monitor_said_a_word(start: Start) -> None:
    job = start(*steps_command())
    job.wait_done(5)
    children = job.children()
    for pid in (job.launcher.pid, *children.values()):
        os.kill(pid, signal.SIGKILL)
    job.launcher.wait(10)
    said = job.done
    recover(job.run)
    assert_whole(job.run, said)
    assert status(job.run).state is JobState.FAILED


def test_sigterm_reaches_the_job_and_ends_in_stopped(start: Start) -> None:
    job = start(*steps_command("--on-stop", "exit-0"))
    job.wait_done(50)
    os.kill(job.launcher.pid, signal.SIGTERM)
    assert job.wait() == 0
    assert status(job.run).state is JobState.STOPPED
    assert_whole(job.run, job.done)


def test_sigterm_kills_a_job_that_does_not_handle_it(start: Start) -> None:
    job = start(*steps_command())
    job.wait_done(50)
    os.kill(job.launcher.pid, signal.SIGTERM)
    assert job.wait() == -signal.SIGTERM
    assert status(job.run).state is JobState.STOPPED
    assert status(job.run).signal == signal.SIGTERM


def test_ctrl_c_in_a_terminal_reaches_the_job_once(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the whole group: the job must not get a second one from us."""
    script = tmp_path / "count.py"
    script.write_text(
        "import signal, sys, time\n"
        "got = []\n"
        "signal.signal(signal.SIGINT, lambda *a: got.append(1))\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 30\n"
        "while not got and time.monotonic() < end: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"  # the time in which a second one would arrive
        "print('interrupts', len(got), flush=True)\n"
    )
    import pty
    import sys

    run = tmp_path / "run"
    command = [*STEPSCOPE, "run", "--out", str(run), "--", sys.executable, str(script)]
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
        except OSError:  # the terminal's other end is closed
            break
        if not part:
            break
        output += part
    _, code = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(code) == 0
    assert b"interrupts 1" in output
    assert status(run).state is JobState.STOPPED


def test_status_while_it_runs_and_while_it_stops(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "slow_stop.py"
    script.write_text(
        "import signal, sys, time, pathlib\n"
        "go = pathlib.Path(sys.argv[1])\n"
        "stop = []\n"
        "signal.signal(signal.SIGTERM, lambda *a: stop.append(1))\n"
        "print('done 0', flush=True)\n"
        "while not (stop and go.exists()): time.sleep(0.01)\n"
    )
    go = tmp_path / "go"
    import sys

    job = start(sys.executable, str(script), str(go))
    job.wait_done(1)
    wait_for((job.run / "nodes").is_dir, what="a status")
    wait_for(lambda: list((job.run / "nodes").glob("*/status.json")), what="a status")
    assert status(job.run).state is JobState.IN_PROGRESS
    heartbeat = status(job.run).heartbeat_ns
    os.kill(job.launcher.pid, signal.SIGTERM)
    wait_for(lambda: status(job.run).state is JobState.STOPPING, what="Stopping")
    assert status(job.run).heartbeat_ns > heartbeat
    go.touch()
    assert job.wait() == 0
    assert status(job.run).state is JobState.STOPPED


def test_recover_leaves_a_running_job_alone(start: Start) -> None:
    job = start(*steps_command())
    job.wait_monitor()
    wait_for(lambda: list((job.run / "nodes").glob("*/status.json")), what="a status")
    answer = recover(job.run)
    assert answer["spool"] is None
    assert "still running" in answer["reason"]


def test_recover_again_long_after(start: Start) -> None:
    job = start(*steps_command("--count", "20"))
    assert job.wait() == 0
    began = time.monotonic()
    answer = recover(job.run)
    assert answer["row_count"] == 0
    assert answer["state"] == "Completed"
    assert time.monotonic() > began
