"""Commands on a run that needs `stepscope recover`, and the command itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stepscope.monitor.spool_files import SpoolLock
from stepscope.run import explain_recovery
from stepscope.schema import JobState
from stepscope.spool import is_suspended
from stepscope.store import open_run
from stepscope.testing import RunBuilder
from stepscope.testing.runs import EPOCH_NS
from tests.support.buckets import TestBucket
from tests.support.command import run_command
from tests.support.staged_runs import INFO, Staged
from tests.support.waiting import wait_until

ADVICE = (
    r"The run is incomplete: the monitor on n0 has been silent for [\d,]+ d\. If it has ended, "
    r"store the remaining records on that machine with: stepscope recover "
)


def draw_lost(directory: Path) -> Path:
    """Write a run whose monitor has sent no heartbeat for years."""
    builder = RunBuilder(directory / "the run")
    builder.rank(0).draw("wait 60 | forward 12 | backward 20 | optimizer 8", 20)
    return builder.status(JobState.IN_PROGRESS, heartbeat_ns=EPOCH_NS).write()


@pytest.mark.parametrize(
    "arguments", [["diagnose"], ["diagnose", "--json"], ["rules", "check"], ["watch"]]
)
def test_a_command_gives_the_advice_on_stderr(tmp_path: Path, arguments: list[str]) -> None:
    run = draw_lost(tmp_path)
    name, *options = arguments
    words = [name, *options] if name == "rules" else [name, str(run), *options]
    done = run_command(tmp_path, *words, *([str(run)] if name == "rules" else []))
    assert re.match(f"stepscope: {ADVICE}'{run}'", done.stderr)


def test_every_view_gives_the_advice(tmp_path: Path) -> None:
    run = draw_lost(tmp_path)
    for view in ("overview", "steps", "system"):
        text = " ".join(run_command(tmp_path, "show", str(run), view).stdout.split())
        assert re.match(f"! {ADVICE}'{run}'", text), view
    payload = json.loads(run_command(tmp_path, "show", str(run), "steps", "--json").stdout)
    assert re.fullmatch(f"{ADVICE}'{run}'", payload["recording_end"])


def test_the_report_gives_the_advice(tmp_path: Path) -> None:
    run = draw_lost(tmp_path)
    done = run_command(tmp_path, "report", str(run), "-o", "report.html")
    assert done.returncode == 0, done.stderr
    assert re.search(ADVICE, (tmp_path / "report.html").read_text())


@pytest.fixture
def monitor() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process with the command line of a monitor."""
    command = [sys.executable, "-S", "-c", "input()", "-m", "stepscope.monitor"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("runs", "silence_s", "advice"),
    [
        ("nothing", 0, r"stopped before .* job\. Store the remaining records with: stepscope rec"),
        ("job", 3600, r"stopped before .* job\. Store the remaining records with: stepscope rec"),
        ("job", 0, None),  # the launcher starts another monitor
        ("monitor", 0, None),
        ("monitor", 3600, r"silent for 1 h\. If process \d+ does not continue, end it, and store"),
        ("suspended", 3600, r"silent for 1 h\. It is suspended; resume it with: kill -CONT \d+$"),
        ("reused pid", 3600, r"stopped before .* Store the remaining records with: stepscope rec"),
    ],
)
def test_a_monitor_on_this_machine_is_looked_at(
    tmp_path: Path, monitor: subprocess.Popen[bytes], runs: str, silence_s: int, advice: str | None
) -> None:
    builder = RunBuilder(tmp_path / "run", spool=str(tmp_path))
    builder.rank(0).draw("forward 12", 1)
    if runs == "suspended":
        os.kill(monitor.pid, signal.SIGSTOP)
        wait_until(lambda: is_suspended(monitor.pid))
    is_monitor = runs in {"monitor", "suspended"}
    run = builder.status(
        JobState.IN_PROGRESS,
        heartbeat_ns=time.time_ns() - silence_s * 10**9,
        monitor_pid=monitor.pid if is_monitor else os.getpid() if runs == "reused pid" else None,
        pid=os.getpid() if runs == "job" else None,
    ).write()
    sentence = explain_recovery(open_run(run))
    if advice is None:
        assert sentence is None
    else:
        assert re.search(advice, str(sentence))


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.UNKNOWN])
def test_a_run_that_has_ended_needs_no_recovery(tmp_path: Path, state: JobState) -> None:
    run = RunBuilder(tmp_path / "run").status(state, heartbeat_ns=EPOCH_NS).write()
    assert explain_recovery(open_run(run)) is None


def test_a_run_whose_spool_is_gone_ends_as_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its status must not say forever that the job is in progress."""
    monkeypatch.setenv("STEPSCOPE_NODE", "n0")
    run = draw_lost(tmp_path)
    done = run_command(tmp_path, "recover", str(run))
    assert done.stdout == (
        "Nothing to recover: the spool /spool was deleted, and with it the records that were not "
        "in the run yet.\n"
    )
    status = open_run(run).statuses()["n0"]
    assert status.state is JobState.UNKNOWN
    assert status.ended_ns == EPOCH_NS  # the last heartbeat
    assert "the spool was deleted" in str(status.reason)


def test_the_recording_of_a_job_that_is_starting_stays(tmp_path: Path, bucket: TestBucket) -> None:
    """Its monitor has the spool, and has written no status yet."""
    spool = tmp_path / "stepscope-spool"
    info = msgspec.structs.replace(INFO, options={"spool": str(spool)})
    staged = Staged(tmp_path / "staging", bucket.url("runs/a"), info)

    def recover() -> dict[str, Any]:
        done = run_command(tmp_path, "recover", str(staged.directory), "--json")
        recovery: dict[str, Any] = json.loads(done.stdout)
        assert recovery["upload"]["complete"], done.stderr
        return recovery

    lock = SpoolLock(spool)
    lock.create_directory()
    assert lock.take()
    recovery = recover()
    assert (recovery["state"], recovery["complete"]) == (None, False)
    assert "is storing the records; wait until it has ended" in recovery["reason"]
    assert staged.directory.exists()
    assert spool.exists()
    lock.release()
    assert recover()["complete"]
    assert not staged.directory.exists()
