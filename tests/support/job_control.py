"""Starting jobs under the profiler, watching them, and ending them the hard way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

JOBS = Path(__file__).parents[1] / "faults" / "jobs"
STEPSCOPE = [sys.executable, "-m", "stepscope"]


def wait_for(condition: Callable[[], object], *, limit_s: float = 30.0, what: str = "") -> None:
    """Wait until a condition holds; fail when it does not in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s} s in vain: {what or condition}"
        time.sleep(0.01)


class Job:
    """One `stepscope run`, with the job's standard output at hand."""

    def __init__(self, run: Path, spool: Path, *arguments: str, options: tuple[str, ...] = ()):
        self.run = run
        self.spool_base = spool
        self.output = spool.with_suffix(".out")
        self.errors = spool.with_suffix(".err")
        command = [*STEPSCOPE, "run", "--out", str(run), "--spool", str(spool), *options, "--"]
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self.launcher = subprocess.Popen(
                [*command, *arguments],
                stdout=output,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def done(self) -> int:
        """Steps that the job has said are over."""
        return self.output.read_bytes().count(b"done ")

    @property
    def spool(self) -> Path:
        """The directory of the span logs."""
        wait_for(lambda: list(self.spool_base.glob("stepscope-*")), what="a spool")
        return next(iter(self.spool_base.glob("stepscope-*")))

    def wait_done(self, count: int) -> None:
        """Wait until the job has said so of this many steps."""
        wait_for(lambda: self.done >= count or self.launcher.poll() is not None, what="steps")
        assert self.done >= count, self.errors.read_text()

    def wait(self) -> int:
        """Wait for the launcher; its exit status as subprocess gives it."""
        return self.launcher.wait(60)

    def children(self) -> dict[str, int]:
        """Pids of the launcher's children by role: `job`, `monitor`, `watch`."""
        found = {}
        for pid in map(int, _children(self.launcher.pid)):
            words = _command_line(pid)
            if not words:  # it has ended
                continue
            roles = {b"stepscope.monitor": "monitor", b"stepscope.watch": "watch"}
            found[next((roles[word] for word in words if word in roles), "job")] = pid
        return found

    def wait_child(self, role: str) -> int:
        """Pid of a child, once it is there."""
        wait_for(lambda: role in self.children(), what=f"a {role}")
        return self.children()[role]

    def wait_monitor(self) -> int:
        """Pid of the monitor, once it is there."""
        return self.wait_child("monitor")

    def end(self) -> None:
        """Kill what is left of it."""
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
    found = []
    for child in map(int, _children(pid)):
        found += [*_descendants(child), child]
    return found


def steps_command(*arguments: str) -> list[str]:
    """Command line of the job that counts its steps."""
    return [sys.executable, str(JOBS / "steps.py"), *arguments]
