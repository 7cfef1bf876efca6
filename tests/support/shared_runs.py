"""Runs of several launchers, written by hand, and a clock that only a test advances."""

from __future__ import annotations

import time
from pathlib import Path

from stepscope.schema import SCHEMA_VERSION, JobState, JobStatus, LauncherInfo, RunInfo
from stepscope.store import RunWriter, SharedRun, create_run


def describe_run(job: str | None) -> RunInfo:
    """Return the description of a run that launchers of a job share."""
    return RunInfo(
        schema_version=SCHEMA_VERSION,
        run_id="shared",
        created_ns=time.time_ns(),
        command=["true"],
        working_directory="/",
        stepscope_version="0",
        job=job,
    )


def describe_launcher(
    node: str, *, slot: str | None = None, pid: int = 1, machine: str = "elsewhere"
) -> LauncherInfo:
    """Return the description of a launcher."""
    host = node.partition("~")[0]
    return LauncherInfo(
        node=node,
        host=host,
        slot=slot or host,
        incarnation=1,
        registered_ns=time.time_ns(),
        machine=machine,
        pid=pid,
        start_ticks=1,
    )


class SteppedTime:
    """Monotonic time in seconds; `sleep` advances it, and then calls what a test has planned."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept_s += seconds
        self.on_sleep()

    def on_sleep(self) -> None:
        """Called after every pause."""


class SharedJob:
    """A run of several launchers."""

    def __init__(self, path: Path, job: str | None = "slurm 1.0") -> None:
        self.path = path
        self.run = SharedRun(path)
        create_run(path, describe_run(job))

    def add(
        self, node: str, *, slot: str | None = None, pid: int = 1, machine: str = "elsewhere"
    ) -> LauncherInfo:
        """Register a launcher."""
        return self.run.register(
            node.partition("~")[0],
            lambda name: describe_launcher(name, slot=slot, pid=pid, machine=machine),
        )

    def beat(
        self,
        node: str,
        state: JobState = JobState.IN_PROGRESS,
        *,
        age_s: float = 0.0,
        incarnation: int = 1,
    ) -> JobStatus:
        """Write the status of a node, as of some seconds ago."""
        status = JobStatus(
            state=state,
            heartbeat_ns=time.time_ns() - round(1e9 * age_s),
            started_ns=1,
            incarnation=incarnation,
        )
        with RunWriter(self.path, node) as writer:
            writer.put_status(status)
        return status
