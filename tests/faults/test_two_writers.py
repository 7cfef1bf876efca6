"""Two processes that store the spool of one run: every step is in the run, once."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepscope.monitor import recover_run
from stepscope.monitor.spool_files import SpoolLock
from stepscope.schema import SCHEMA_VERSION, JobState, RunInfo
from stepscope.spool import is_suspended
from stepscope.store import create_run, open_run
from tests.support.announced_steps import (
    WITHOUT_RULES,
    announced_command,
    announced_count,
    stored_steps,
)
from tests.support.job_control import STEPSCOPE, Job
from tests.support.waiting import wait_until

Start = Callable[..., Job]
in_detail = pytest.mark.extended(
    "another job; the lock is in test_recover_names_the_process_that_stores_the_spool"
)


def start_recover(run: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*STEPSCOPE, "recover", str(run), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_everything(job: Job) -> None:
    victims = [job.launcher.pid, *job.children().values()]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in victims:
            os.kill(pid, number)
    job.launcher.wait(60)
    wait_until(lambda: not any(map(is_running, victims)), waiting_for="the end of all processes")


def is_running(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@contextmanager
def draining(spool: Path) -> Iterator[None]:
    """Hold the lock of a spool, as a process does that stores its records."""
    descriptor = os.open(spool, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@pytest.mark.extended("test_kills.py starts several recovers at once")
def test_three_recovers_at_once_after_everything_was_killed(start: Start, tmp_path: Path) -> None:
    truth = tmp_path / "truth"
    job = start(*announced_command(truth), options=WITHOUT_RULES)
    job.wait_monitor()
    wait_until((job.run / "nodes").is_dir, waiting_for="the start of the monitor")
    wait_until(lambda: announced_count(truth) >= 200, waiting_for="steps")
    kill_everything(job)
    recovers = [start_recover(job.run) for _ in range(3)]
    answers = [json.loads(recover.communicate(timeout=60)[0]) for recover in recovers]
    steps = stored_steps(job.run)
    assert steps == list(range(len(steps)))
    assert announced_count(truth) - 1 <= len(steps) <= announced_count(truth)
    assert sum(answer["row_count"] > 0 for answer in answers) == 1
    assert not list(job.spool_base.glob("stepscope-*"))


@in_detail
def test_recover_beside_a_monitor_that_the_launcher_restarts(start: Start, tmp_path: Path) -> None:
    """The new monitor must not take the records for its own that `recover` stores meanwhile."""
    truth = tmp_path / "truth"
    job = start(*announced_command(truth, "--count", "1500"), options=WITHOUT_RULES)
    monitor = job.wait_monitor()
    wait_until((job.run / "nodes").is_dir, waiting_for="the start of the monitor")
    os.kill(job.launcher.pid, signal.SIGSTOP)
    os.kill(monitor, signal.SIGKILL)
    recover = start_recover(job.run)
    os.kill(job.launcher.pid, signal.SIGCONT)
    recover.communicate(timeout=60)
    assert job.wait() == 0
    assert announced_count(truth) == 1500
    assert stored_steps(job.run) == list(range(1500))


@in_detail
def test_a_monitor_waits_for_the_process_that_stores_the_spool(
    start: Start, tmp_path: Path
) -> None:
    truth = tmp_path / "truth"
    job = start(*announced_command(truth, "--count", "300"), options=WITHOUT_RULES)
    with draining(job.spool):
        job.wait_monitor()
        wait_until(lambda: announced_count(truth) == 300, waiting_for="the last step")
        wait_until(lambda: not job.children().get("job"), waiting_for="the end of the job")
        assert not (job.run / "nodes").exists()
    assert job.wait() == 0
    assert stored_steps(job.run) == list(range(300))


def test_recover_names_the_process_that_stores_the_spool(start: Start, tmp_path: Path) -> None:
    job = start(*announced_command(tmp_path / "truth"), options=WITHOUT_RULES)
    monitor = job.wait_monitor()
    wait_until(lambda: list(job.run.glob("nodes/*/status.json")), waiting_for="a status")

    def reason() -> str | None:
        recovery = recover_run(str(job.run))
        assert recovery.row_count == 0
        return recovery.reason

    assert reason() == (
        f"the monitor of the job, process {monitor}, is still running and stores the records; "
        "there is nothing to do"
    )
    os.kill(monitor, signal.SIGSTOP)
    wait_until(lambda: is_suspended(monitor), waiting_for="the suspension")
    assert reason() == (
        f"process {monitor}, which stores the records, is suspended; resume it: "
        f"kill -CONT {monitor}"
    )
    kill_everything(job)
    spool = job.spool
    with draining(spool):
        assert reason() == f"process {os.getpid()} is storing the records; wait until it has ended"
    shutil.rmtree(spool)
    loss = f"the spool {spool} was deleted, and with it the records that were not in the run yet"
    assert reason() == loss
    (status,) = open_run(job.run).statuses().values()
    assert status.state.is_final
    assert status.losses == [loss]
    assert reason() == "this node has no span logs of the run"


def test_a_lock_of_a_spool_that_was_removed_and_made_again(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with pytest.raises(FileNotFoundError):
        SpoolLock(spool).take()
    spool.mkdir()
    lock, second = SpoolLock(spool), SpoolLock(spool)
    assert lock.is_lost()
    assert lock.take()
    assert not second.take()
    assert lock.find_holder() == os.getpid()
    spool.rmdir()
    assert lock.is_lost()
    spool.mkdir()
    assert lock.is_lost()
    assert second.take()
    second.release()
    assert lock.take()


def make_started_run(directory: Path, created_ns: int) -> tuple[Path, Path]:
    """Make the run and the spool of a job of this process that has no monitor yet."""
    run, spool = directory / "run", directory / f"stepscope-{os.getuid()}-run-{os.getpid()}"
    spool.mkdir()
    create_run(
        run,
        RunInfo(
            schema_version=SCHEMA_VERSION,
            run_id="run",
            created_ns=created_ns,
            command=["python", "train.py"],
            working_directory="/job",
            stepscope_version="0",
            options={"spool": str(spool)},
        ),
    )
    return run, spool


@in_detail
def test_recover_leaves_a_job_alone_whose_monitor_starts(tmp_path: Path) -> None:
    run, spool = make_started_run(tmp_path, time.time_ns())
    recovery = recover_run(str(run))
    assert recovery.reason == (
        f"the job of process {os.getpid()} has just started, and its monitor has stored nothing "
        "yet; there is nothing to do"
    )
    assert not recovery.complete
    assert spool.exists()
    assert not open_run(run).statuses()


@in_detail
def test_a_process_that_has_got_the_pid_of_a_launcher_is_not_waited_for(tmp_path: Path) -> None:
    run, spool = make_started_run(tmp_path, created_ns=10**18)
    assert recover_run(str(run)).state is JobState.UNKNOWN
    assert not spool.exists()
