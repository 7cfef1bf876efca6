"""Records that cannot be kept: they are counted, and the verdict does not blame the script."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.diagnosis import Verdict, diagnose
from stepscope.run import Run
from stepscope.schema import JobState, JobStatus, ProcessInfo
from stepscope.spool import SEGMENT_RECORDS, is_suspended
from stepscope.store import open_run
from tests.support.announced_steps import (
    WITHOUT_RULES,
    announced_command,
    announced_count,
    stored_steps,
)
from tests.support.job_control import Job
from tests.support.small_disks import mount_small_disk
from tests.support.waiting import wait_until

Start = Callable[..., Job]
BLAMES_THE_SCRIPT = ("stepscope.step()", "no process of the job recorded anything")


def training_process(run: Path) -> ProcessInfo:
    (process,) = (p for p in open_run(run).processes() if p.role == "main")
    return process


def status_of(run: Path) -> JobStatus:
    (status,) = open_run(run).statuses().values()
    return status


def verdict_of(run: Path) -> Verdict:
    verdict = diagnose(Run(open_run(run)))
    assert not any(words in verdict.headline for words in BLAMES_THE_SCRIPT)
    return verdict


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from mount_small_disk(tmp_path / "small")


def test_a_limit_on_file_sizes(start: Start, tmp_path: Path) -> None:
    """`ulimit -f`: no segment can be created, so that every record is dropped, and stack samples of
    the steps."""
    truth = tmp_path / "truth"
    command = shlex.join(announced_command(truth, "--count", "300"))
    job = start("sh", "-c", f"ulimit -f 64; exec {command}", options=WITHOUT_RULES)
    assert job.wait() == 0
    assert announced_count(truth) == 300
    (count,) = training_process(job.run).dropped_by_cause.values()
    assert count >= 300
    headline = verdict_of(job.run).headline
    assert headline == (
        f"No verdict: no training step was recorded: {count} of {count} records were dropped "
        "because the limit on file sizes (ulimit -f) is below the 128 KiB of a file of span logs; "
        "raise it."
    )
    assert "ulimit -f" in " ".join(job.errors.read_text().split())


@pytest.mark.extended("another job; test_a_limit_on_file_sizes drops records")
def test_a_spool_that_is_full_before_the_first_record(tmp_path: Path, small_disk: Path) -> None:
    """Not even the count of the dropped records has room."""
    truth, spool = tmp_path / "truth", small_disk / "spool"
    fill = f"cat /dev/zero > {small_disk / 'filler'} 2> /dev/null"
    command = shlex.join(announced_command(truth, "--count", "300"))
    job = Job(tmp_path / "run", spool, "sh", "-c", f"{fill}; exec {command}", options=WITHOUT_RULES)
    try:
        assert job.wait() == 0
        assert announced_count(truth) == 300
        assert training_process(job.run).refusal == "ENOSPC"
        assert "the file system of the spool was full" in verdict_of(job.run).headline
        assert status_of(job.run).state is JobState.COMPLETED
    finally:
        job.end()


@pytest.mark.extended("test_suspension.py suspends the monitor")
def test_a_monitor_that_is_suspended(start: Start, tmp_path: Path) -> None:
    """The spool reaches its limit meanwhile; every dropped step is counted."""
    truth, go = tmp_path / "truth", tmp_path / "go"
    count = 8 * SEGMENT_RECORDS + 500
    waiting = ("--wait-at", "100", "--wait-for", str(go))
    job = start(
        *announced_command(truth, "--count", str(count), "--pause", "0.00001", *waiting),
        options=(*WITHOUT_RULES, "--spool-limit", "1MiB"),
    )
    wait_until(lambda: list(job.run.glob("nodes/*/status.json")), waiting_for="a status")
    monitor = job.wait_monitor()
    os.kill(monitor, signal.SIGSTOP)
    go.touch()
    assert job.wait() == 0
    assert not is_suspended(monitor)
    dropped = training_process(job.run).dropped_by_cause
    steps = stored_steps(job.run)
    assert len(steps) == len(set(steps))
    assert len(steps) + dropped["spool_limit"] == announced_count(truth) == count
    headline = verdict_of(job.run).headline
    assert headline.startswith(f"No verdict: {dropped['spool_limit']:,} of ")
    assert "records were dropped because the monitor did not run for" in headline
    assert "which was suspended" in job.errors.read_text()


@pytest.mark.extended("another job; test_capture_faults.py deletes a spool")
def test_a_spool_that_is_deleted_while_the_job_runs(start: Start, tmp_path: Path) -> None:
    """The monitor reads the deleted files to their ends, and the job continues in new ones."""
    truth, go = tmp_path / "truth", tmp_path / "go"
    count = SEGMENT_RECORDS + 1000
    waiting = ("--wait-at", "100", "--wait-for", str(go))
    job = start(
        *announced_command(truth, "--count", str(count), "--pause", "0", *waiting),
        options=WITHOUT_RULES,
    )
    wait_until(lambda: list(job.run.glob("tables/spans/*/*")), waiting_for="a first flush")
    spool = job.spool
    directories = list(spool.glob("p-*"))
    for deleted in (directories, [spool]):
        for path in deleted:
            shutil.rmtree(path)
        wait_until(lambda: all(path.exists() for path in directories), waiting_for="a new spool")
    go.touch()
    assert job.wait() == 0
    assert announced_count(truth) == count
    assert stored_steps(job.run) == list(range(count))
    status = status_of(job.run)
    assert status.state is JobState.COMPLETED
    assert status.losses == [
        f"the spool {spool} was deleted while the job ran; records that were not stored yet may be "
        "missing"
    ]
    assert status.losses[0][1:] in verdict_of(job.run).headline
    assert not list(job.spool_base.glob("stepscope-*"))
