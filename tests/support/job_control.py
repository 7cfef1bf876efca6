"""Jobs under `stepscope run`: start, observation, and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.waiting import wait_until

JOBS = Path(__file__).parents[1] / "faults" / "jobs"
STEPSCOPE = [sys.executable, "-m", "stepscope"]
JOB_PYTHON = os.environ.get("JOB_PYTHON", sys.executable)
"""Interpreter of the jobs, which may be another one than that of stepscope: `make faults`."""


class Job:
    """A process of `stepscope run`, with the standard output of its job in a file.

    Args:
        run: run to create: a directory, or a URL.
        spool: base of the spool.
        arguments: command line of the job.
        options: options of `stepscope run`.
        stepscope: command line of stepscope.
        environment: variables of stepscope and the job; None for those of this process.
    """

    def __init__(
        self,
        run: Path | str,
        spool: Path,
        *arguments: str,
        options: tuple[str, ...] = (),
        stepscope: Sequence[str] = STEPSCOPE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.location = str(run)
        self.run = Path(run)
        self.spool_base = spool
        self.output = spool.with_suffix(".out")
        self.errors = spool.with_suffix(".err")
        command = [*stepscope, "run", "--out", self.location, "--spool", str(spool), *options, "--"]
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.launcher = subprocess.Popen(
                [*command, *arguments],
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=environment,
            )

    @property
    def done(self) -> int:
        """Number of steps that the job has reported."""
        return self.output.read_bytes().count(b"done ")

    @property
    def spool(self) -> Path:
        """The directory of the span logs."""
        return wait_until(lambda: list(self.spool_base.glob("stepscope-*")), waiting_for="a spool")[
            0
        ]

    def wait_done(self, count: int) -> None:
        """Wait until the job has reported this many steps."""
        wait_until(
            lambda: self.done >= count or self.launcher.poll() is not None, waiting_for="steps"
        )
        assert self.done >= count, self.errors.read_text()

    def wait(self) -> int:
        """Wait for the launcher; returns its exit status, as in subprocess."""
        return self.launcher.wait(60)

    def children(self) -> dict[str, int]:
        """Return the pids of the launcher's children by role: `job`, `monitor`, `watch`."""
        pids = {}
        for pid in map(int, _children(self.launcher.pid)):
            words = _command_line(pid)
            if not words:  # the process has ended
                continue
            roles = {b"stepscope.monitor": "monitor", b"stepscope.watch": "watch"}
            # The job is the first: one that was just forked has the launcher's words for a moment.
            pids.setdefault(next((roles[word] for word in words if word in roles), "job"), pid)
        return pids

    def wait_child(self, role: str) -> int:
        """Wait for the start of a child; returns its pid."""
        return wait_until(lambda: self.children().get(role), waiting_for=f"a {role}") or 0

    def wait_monitor(self) -> int:
        """Wait for the start of the monitor; returns its pid."""
        return self.wait_child("monitor")

    def end(self) -> None:
        """Kill the launcher and its descendants."""
        for pid in [*_descendants(self.launcher.pid), self.launcher.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.launcher.wait(10)


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def _descendants(pid: int) -> list[int]:
    pids = []
    for child in map(int, _children(pid)):
        pids += [*_descendants(child), child]
    return pids


def steps_command(*arguments: str) -> list[str]:
    """Return the command line of a job that reports its steps."""
    return [JOB_PYTHON, str(JOBS / "steps.py"), *arguments]
