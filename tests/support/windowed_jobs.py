"""Jobs under `stepscope run` that train at a steady pace until a test ends them."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stepscope.store import open_run
from tests.support import waiting
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, STEPSCOPE

PACED = str(E2E / "windows" / "paced.py")
wait_until = functools.partial(waiting.wait_until, timeout_s=90.0)


class WindowedJob:
    """A paced job under `stepscope run`, which ends on request."""

    def __init__(
        self, directory: Path, options: tuple[str, ...], arguments: tuple[str, ...]
    ) -> None:
        self.run = directory / "run"
        self.stop = directory / "stop"
        self.slower = directory / "slower"
        with (directory / "errors").open("wb") as errors:
            self.launcher = subprocess.Popen(
                [
                    *(*STEPSCOPE, "run", "--quiet", "--out", str(self.run), *options, "--"),
                    *(*arguments, "--until", str(self.stop), "--slower", str(self.slower)),
                ],
                stderr=errors,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def facts(self, name: str = "window") -> list[dict[str, Any]]:
        """Return what the processes have recorded so far, windows by default."""
        if not (self.run / "run.json").exists():
            return []
        return [
            fact
            for process in open_run(self.run).processes()
            for fact in process.facts
            if fact["fact"] == name
        ]

    def capture(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `stepscope capture RUN` after the job has started to work."""
        wait_until(lambda: open_run(self.run).has("spans"))
        timeout = ("--timeout", str(JOB_TIMEOUT_S * 0.8))  # ends first, with a message
        return subprocess.run(
            [*STEPSCOPE, "capture", str(self.run), *arguments, *timeout],
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
        )

    def step_count(self) -> int:
        """Return the number of optimizer steps in the run."""
        if not open_run(self.run).has("spans"):
            return 0
        steps = open_run(self.run).table("spans", ["start_ns"], condition="kind = 'optimizer'")
        return len(steps["start_ns"])

    def recorded_ns(self) -> int:
        """Return the latest start of an optimizer step in the run."""
        steps = open_run(self.run).table("spans", ["start_ns"], condition="kind = 'optimizer'")
        return int(steps["start_ns"].max())

    def monitor(self) -> int:
        """Return the pid of its monitor."""
        (status,) = open_run(self.run).statuses().values()
        assert status.monitor_pid is not None
        return status.monitor_pid

    def end(self) -> int:
        """End the job; returns the exit status of `stepscope run`."""
        self.stop.touch()
        return self.launcher.wait(JOB_TIMEOUT_S)


@contextmanager
def starting(directory: Path) -> Iterator[Callable[..., WindowedJob]]:
    """Yield a function that starts jobs; they are killed at the end."""
    started: list[WindowedJob] = []

    def start_job(
        *options: str, command: tuple[str, ...] = (sys.executable,), arguments: tuple[str, ...] = ()
    ) -> WindowedJob:
        job = WindowedJob(directory, options, (*command, PACED, *arguments))
        started.append(job)
        wait_until(lambda: (job.run / "nodes").exists() and open_run(job.run).statuses())
        return job

    yield start_job
    for job in started:
        job.stop.touch()  # ranks are in separate sessions
        if job.launcher.poll() is None:
            os.killpg(job.launcher.pid, signal.SIGKILL)
            job.launcher.wait()


def stored(run: Path) -> dict[tuple[str, int], str]:
    """Return the names of the traces in the run by process and window number."""
    rows = open_run(run).table("traces", columns=["process", "window", "name"])
    return dict(zip(zip(rows["process"], rows["window"], strict=True), rows["name"], strict=True))
