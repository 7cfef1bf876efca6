"""Many processes and many spans: everything that a job made was recorded, or is counted as dropped.

`make slow-faults` makes 10,000 processes, and ten million spans.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.announced_steps import WITHOUT_RULES, stored_steps
from tests.support.job_control import JOB_PYTHON, JOBS, STEPSCOPE, Job
from tests.support.scale import IS_FULL

Start = Callable[..., Job]
TIMEOUT_S = 3600 if IS_FULL else 120


def many_processes(*options: str) -> list[str]:
    return [JOB_PYTHON, str(JOBS / "many_processes.py"), *options]


def dropped_count(run: Path) -> int:
    """Return the number of records that the processes of the job dropped, without the monitor."""
    return sum(p.dropped_count for p in open_run(run).processes() if p.role == "main")


@pytest.mark.extended("half a million spans; test_lost_records.py counts dropped ones")
def test_a_flood_of_spans(start: Start) -> None:
    """As many spans as two processes can make, into the smallest spool."""
    span_count = 5_000_000 if IS_FULL else 100_000
    counts = ("--processes", "2", "--parallel", "2", "--spans", str(span_count))
    job = start(*many_processes(*counts), options=(*WITHOUT_RULES, "--spool-limit", "1MiB"))
    assert job.launcher.wait(TIMEOUT_S) == 0, job.errors.read_text()
    steps = stored_steps(job.run)
    assert len(steps) == len(set(steps))
    assert set(steps) <= set(range(2 * span_count))
    assert dropped_count(job.run) > 0
    assert len(steps) + dropped_count(job.run) == 2 * span_count


@pytest.mark.extended("hundreds of processes; test_processes_with_the_same_pid has a few")
def test_many_short_processes(start: Start) -> None:
    process_count = 10_000 if IS_FULL else 60
    counts = ("--processes", str(process_count), "--parallel", "4")
    job = start(*many_processes(*counts), options=WITHOUT_RULES)
    assert job.launcher.wait(TIMEOUT_S) == 0, job.errors.read_text()
    steps = stored_steps(job.run)
    assert len(steps) == len(set(steps))
    assert len(steps) + dropped_count(job.run) == process_count
    (status,) = open_run(job.run).statuses().values()
    assert status.state is JobState.COMPLETED


def test_processes_with_the_same_pid(tmp_path: Path) -> None:
    """Their records are those of different processes."""
    if shutil.which("unshare") is None:
        pytest.skip("needs to make a namespace of pids")
    run = tmp_path / "run"
    job = many_processes("--processes", "5", "--spans", "100", "--same-pid")
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    done = subprocess.run(
        [*unshare, *STEPSCOPE, "run", "--out", str(run), *WITHOUT_RULES, "--", *job],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode and ("unshare" in done.stderr or "ns_last_pid" in done.stderr):
        pytest.skip(f"pids cannot be chosen here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert stored_steps(run) == list(range(500))
    pids = Counter(process.pid for process in open_run(run).processes() if process.role == "main")
    assert sorted(pids.values())[-1] == 5
