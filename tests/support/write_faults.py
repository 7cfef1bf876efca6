"""Writes that fail in one process of a profiled job, and what was wrong afterwards.

The faults are those of `failing_writes.c`, preloaded into every process of the job. The truth is
the result of the job, which it prints at its end (`faults/jobs/checked_steps.py`).
"""

from __future__ import annotations

import atexit
import errno
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from stepscope.diagnosis import diagnose
from stepscope.errors import StepscopeError
from stepscope.monitor import recover_run
from stepscope.run import Run
from stepscope.store import open_run
from tests.faults.jobs.checked_steps import EXIT_STATUS
from tests.support.job_control import JOB_PYTHON, JOBS, STEPSCOPE

SOURCE = Path(__file__).with_name("failing_writes") / "failing_writes.c"
STEP_COUNT = 200
ANNOTATION_COUNT = 25
"""Annotations of each step: together a little more than one segment of the spool."""
SENTENCES = {
    "ENOSPC": "full",
    "EDQUOT": "quota",
    "EIO": os.strerror(errno.EIO),
    "EROFS": os.strerror(errno.EROFS),
}
"""Words by which a sentence names the cause."""
PROCESSES = {
    "trainer": "checked_steps.py",
    "monitor": "stepscope.monitor",
    "watcher": "stepscope.watch",
    "launcher": "stepscope",
}
"""End of a word of the command line by process; not "run", with which the path of the run ends."""
TARGETS = (
    ("trainer", "spool"),
    ("monitor", "spool"),
    ("launcher", "spool"),
    ("launcher", "run"),
    ("watcher", "run"),
    ("monitor", "run"),
)
"""Processes, and the directories that they write to."""
ALWAYS = 2**31
Wrong = Literal["job", "traceback", "unreadable", "double", "unexplained"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one process that fail."""

    process: str
    directory: str
    error: str
    first: int
    last: int

    @property
    def title(self) -> str:
        """Description for messages."""
        calls = f"call {self.first}" + ("" if self.last == self.first else " and all later ones")
        return f"{self.process}, {self.directory}, {self.error}, {calls}"


class FaultOutcome(msgspec.Struct, kw_only=True):
    """Outcome of one job."""

    failed_calls: list[str]
    messages: str = ""
    """Standard error of `stepscope run`."""
    lost: int = 0
    """Steps that are not in the run."""
    is_refused: bool = False
    """True if `stepscope run` refused to start the job, because the run could not be created."""
    is_recovered: bool = False
    """True if `stepscope recover` stored the rest of the run."""
    wrong: dict[Wrong, str] = {}
    """Descriptions of what must not happen."""


class FaultCounts(msgspec.Struct, kw_only=True):
    """Jobs with failed calls of one process in one directory."""

    call_count: int = 0
    """Number of the last call that has failed."""
    jobs: int = 0
    """Jobs in which a call failed."""
    refused: int = 0
    """Jobs that `stepscope run` refused to start."""
    recovered: int = 0
    """Runs that `stepscope recover` completed."""
    incomplete: int = 0
    """Runs without all steps, because they could not be written to the spool."""
    wrong: dict[Wrong, int] = {}
    """Jobs by what must not happen."""

    def add(self, fault: Fault, outcome: FaultOutcome) -> None:
        """Count one job."""
        if outcome.failed_calls:
            self.call_count = max(self.call_count, fault.first)
            self.jobs += 1
            self.refused += outcome.is_refused
            self.recovered += outcome.is_recovered
            self.incomplete += outcome.lost > 0
        for kind in outcome.wrong:
            self.wrong[kind] = self.wrong.get(kind, 0) + 1


@functools.cache
def failing_writes() -> Path:
    """Compile the library; skip the test without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    directory = tempfile.mkdtemp(prefix="stepscope-faults-")
    atexit.register(shutil.rmtree, directory)
    library = Path(directory) / "failing_writes.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


def job_command() -> list[str]:
    """Return the command line of the job."""
    counts = ("--count", str(STEP_COUNT), "--annotations", str(ANNOTATION_COUNT))
    return [JOB_PYTHON, str(JOBS / "checked_steps.py"), *counts]


@functools.cache
def expected_result() -> bytes:
    """Return the output of the job without stepscope's launcher."""
    done = subprocess.run(job_command(), stdout=subprocess.PIPE, timeout=60)
    assert done.returncode == EXIT_STATUS
    return done.stdout


def run_with_fault(fault: Fault, directory: Path) -> FaultOutcome:
    """Run the job in an empty directory, and compare the run with the truth."""
    run, spool, record = directory / "run", directory / "spool", directory / "calls"
    record.write_bytes(bytes(8))
    environment = {
        **os.environ,
        "LD_PRELOAD": str(failing_writes()),
        "FAILING_PROCESS": PROCESSES[fault.process],
        "FAILING_BELOW": str(directory / fault.directory),
        "FAILING_ERROR": str(getattr(errno, fault.error)),
        "FAILING_FIRST": str(fault.first),
        "FAILING_LAST": str(fault.last),
        "FAILING_RECORD": str(record),
    }
    options = ["--out", str(run), "--spool", str(spool), "--file-rotation", "1"]
    if fault.process != "watcher":
        options.append("--no-rules")
    done = subprocess.run(
        [*STEPSCOPE, "run", *options, "--", *job_command()],
        capture_output=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )
    calls = record.read_bytes()
    errors = done.stderr.decode()
    outcome = FaultOutcome(failed_calls=calls[8:].decode().splitlines(), messages=errors)
    if "Traceback" in errors or "[Errno" in errors:
        outcome.wrong["traceback"] = errors
    if done.returncode == 2 and "Cannot create the run directory" in errors and not done.stdout:
        outcome.is_refused = True
        return outcome
    if done.returncode != EXIT_STATUS:
        outcome.wrong["job"] = f"the exit status is {done.returncode}: {errors}"
    if not done.stdout.startswith(expected_result()):
        outcome.wrong["job"] = f"the result differs: {done.stdout!r} {errors}"
    if (run / "run.json").exists():
        _check_run(run, fault, outcome)
    elif "The job is not recorded" not in errors:
        outcome.wrong["unexplained"] = f"there is no run: {errors}"
    return outcome


def _check_run(run: Path, fault: Fault, outcome: FaultOutcome) -> None:
    try:
        recovery = recover_run(str(run))
        reader = open_run(run)
        verdict = diagnose(Run(reader))
        steps = reader.table("spans", ["value"], condition="kind = 'step'")["value"].tolist()
        damage = reader.damage
    except (StepscopeError, OSError) as error:
        outcome.wrong["unreadable"] = repr(error)
        return
    outcome.is_recovered = recovery.spool is not None
    if not recovery.complete:
        outcome.wrong["unreadable"] = f"the recovery is not complete: {recovery.reason}"
    if damage:
        outcome.wrong["unreadable"] = f"the run is damaged: {damage}"
    if len(set(steps)) != len(steps) or set(steps) - set(range(STEP_COUNT)):
        outcome.wrong["double"] = str(sorted(steps))
    outcome.lost = STEP_COUNT - len(steps)
    if outcome.lost and not _names_cause(verdict.headline, fault):
        outcome.wrong["unexplained"] = f"{outcome.lost} steps are missing: {verdict.headline}"


def _names_cause(headline: str, fault: Fault) -> bool:
    """Return True if a headline says why steps are missing. Where a broken or read-only disk takes
    nothing at all from a process, it cannot say more than that."""
    is_broken = fault.error in {"EIO", "EROFS"}
    return SENTENCES[fault.error] in headline or (is_broken and "write to the spool" in headline)
