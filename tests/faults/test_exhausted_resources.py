"""Descriptors, inodes and memory that run out: training continues, and what is lost has a cause."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stepscope.diagnosis import diagnose
from stepscope.run import Run
from stepscope.schema import JobState, ProcessInfo
from stepscope.spool import SEGMENT_RECORDS
from stepscope.store import open_run
from tests.support.announced_steps import (
    WITHOUT_RULES,
    announced_command,
    announced_count,
    stored_steps,
)
from tests.support.job_control import JOB_PYTHON, JOBS, Job
from tests.support.small_disks import mount_small_disk
from tests.support.waiting import wait_until

Start = Callable[..., Job]
V1 = Path("/sys/fs/cgroup/memory")
MEMORY_CGROUPS = V1 if V1.is_dir() else Path("/sys/fs/cgroup")
MEMORY_LIMITS = ("memory.limit_in_bytes", "memory.max")
in_detail = pytest.mark.extended(
    "another job; test_a_training_process_without_descriptors continues, too"
)


@pytest.fixture
def few_inodes(tmp_path: Path) -> Iterator[Path]:
    yield from mount_small_disk(tmp_path / "small", "nr_inodes=12")


def headline_of(run: Path) -> str:
    return diagnose(Run(open_run(run))).headline


def training_process(run: Path) -> ProcessInfo:
    (process,) = (p for p in open_run(run).processes() if p.role == "main")
    return process


def exhausted(*counts: int) -> list[str]:
    return [JOB_PYTHON, str(JOBS / "exhausted_descriptors.py"), *map(str, counts)]


def test_a_training_process_without_descriptors(start: Start) -> None:
    """Steps are dropped only while no new segment can be opened, and counted exactly."""
    count = SEGMENT_RECORDS + 1000
    job = start(*exhausted(100, count, SEGMENT_RECORDS), options=WITHOUT_RULES)
    assert job.wait() == 0
    assert job.done == 1
    dropped = training_process(job.run).dropped_by_cause
    assert set(dropped) == {"EMFILE"}
    assert dropped["EMFILE"] >= 1000
    steps = stored_steps(job.run)
    assert len(steps) == len(set(steps))
    assert len(steps) + dropped["EMFILE"] == 100 + count + SEGMENT_RECORDS
    assert (
        "because too many files were open in one process; raise the limit (ulimit -n)"
        in headline_of(job.run)
    )


@in_detail
def test_a_training_process_without_descriptors_from_its_first_record(start: Start) -> None:
    job = start(*exhausted(0, 300, 300), options=WITHOUT_RULES)
    assert job.wait() == 0
    assert job.done == 1
    assert "a process of the job could not be recorded because too many files were open" in (
        headline_of(job.run)
    )


@in_detail
def test_a_monitor_without_descriptors(start: Start, tmp_path: Path) -> None:
    """It continues when it has some again, or the next one stores everything."""
    truth, go = tmp_path / "truth", tmp_path / "go"
    waiting = ("--wait-at", "100", "--wait-for", str(go))
    job = start(*announced_command(truth, "--count", "600", *waiting), options=WITHOUT_RULES)
    wait_until(lambda: list(job.run.glob("nodes/*/status.json")), waiting_for="a status")
    monitor = job.wait_monitor()
    limits = resource.prlimit(monitor, resource.RLIMIT_NOFILE)
    resource.prlimit(monitor, resource.RLIMIT_NOFILE, (3, limits[1]))
    go.touch()
    wait_until(lambda: announced_count(truth) > 300, waiting_for="steps")
    with suppress(ProcessLookupError):
        resource.prlimit(monitor, resource.RLIMIT_NOFILE, limits)
    assert job.wait() == 0
    assert stored_steps(job.run) == list(range(600))
    (status,) = open_run(job.run).statuses().values()
    assert status.state is JobState.COMPLETED
    assert "Traceback" not in job.errors.read_text()


@pytest.fixture
def limit_memory() -> Iterator[Callable[[int], None]]:
    """Limit the memory of a process to a page: the kernel kills it when it needs more."""
    group = MEMORY_CGROUPS / f"stepscope-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = next(group / name for name in MEMORY_LIMITS if (group / name).exists())
        limit.write_text("4096")
    except (OSError, StopIteration):
        pytest.skip("memory cgroups cannot be made here")

    def move(pid: int) -> None:
        (group / "cgroup.procs").write_text(str(pid))

    yield move
    wait_until(lambda: not (group / "cgroup.procs").read_text(), waiting_for="an empty cgroup")
    group.rmdir()


@in_detail
def test_a_monitor_without_memory(
    start: Start, tmp_path: Path, limit_memory: Callable[[int], None]
) -> None:
    """It is killed, and the next one stores everything."""
    truth, go = tmp_path / "truth", tmp_path / "go"
    waiting = ("--wait-at", "100", "--wait-for", str(go))
    job = start(*announced_command(truth, "--count", "600", *waiting), options=WITHOUT_RULES)
    wait_until(lambda: list(job.run.glob("nodes/*/status.json")), waiting_for="a status")
    first = job.wait_monitor()
    limit_memory(first)
    wait_until(lambda: job.children().get("monitor", first) != first, waiting_for="a new monitor")
    go.touch()
    assert job.wait() == 0
    assert stored_steps(job.run) == list(range(600))
    (status,) = open_run(job.run).statuses().values()
    assert status.state is JobState.COMPLETED
    assert "Traceback" not in job.errors.read_text()


@in_detail
def test_a_spool_without_inodes(tmp_path: Path, few_inodes: Path) -> None:
    """The launcher and the monitor have taken most of them; the job cannot even make a name."""
    truth, spool = tmp_path / "truth", few_inodes / "spool"
    fill = f"i=0; while touch {few_inodes}/$((i += 1)) 2> /dev/null; do :; done"
    command = " ".join(announced_command(truth, "--count", "300"))
    job = Job(tmp_path / "run", spool, "sh", "-c", f"{fill}; exec {command}", options=WITHOUT_RULES)
    try:
        assert job.wait() == 0
        assert announced_count(truth) == 300
        assert "or had no inodes left" in headline_of(job.run)
        assert os.statvfs(few_inodes).f_bfree > 0
    finally:
        job.end()
