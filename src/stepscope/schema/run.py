"""The small JSON manifests of a run: the job, its status, its nodes, its processes."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

SCHEMA_VERSION = 1
"""Raised when a table or manifest changes so that older code would misread it."""


class JobState(enum.StrEnum):
    """Life of a job; the names are those that users of training services know."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"

    @property
    def final(self) -> bool:
        """True when the job has ended."""
        return self in {JobState.COMPLETED, JobState.FAILED, JobState.STOPPED}


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """`run.json`: written once, when the run is made."""

    schema_version: int
    run_id: str
    created_ns: int
    """Epoch nanoseconds."""
    command: list[str]
    """Command line with secrets masked."""
    working_directory: str
    stepscope_version: str
    git_revision: str | None = None
    """Commit of the working directory, with '-dirty' when it has changes; null outside git."""
    options: dict[str, Any] = {}
    """The options of `stepscope run` that shape the recording."""


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes/<node>/status.json`: replaced by the node's monitor at every heartbeat."""

    state: JobState
    heartbeat_ns: int
    """Epoch nanoseconds of the monitor's last sign of life."""
    started_ns: int
    ended_ns: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    """Signal that ended the job, when one did."""
    pid: int | None = None
    """The command's own process."""
    monitor_pid: int | None = None
    reason: str | None = None
    """One sentence, when the state needs explaining."""
    notes: list[str] = []
    """What is missing from the recording and why, one sentence each."""


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes/<node>/node.json`: the machine, as the monitor found it."""

    node: str
    platform: str
    cpu_model: str
    cores_total: int
    cores_available: float
    """What the job may use: the least of affinity mask, cpuset and cgroup quota."""
    memory_bytes: int | None
    """Null where another tool recorded the machine and did not say."""
    memory_limit_bytes: int | None
    """The cgroup's limit, when there is one below the machine's memory."""
    sample_interval_ns: int
    spool: str
    """Local directory of the span logs; `stepscope recover` looks here."""
    clock_anchor_monotonic_ns: int
    clock_anchor_epoch_ns: int
    """All times of this node are monotonic time plus the difference of the two anchors."""
    gpus: list[dict[str, Any]] = []
    """Name, uuid, memory_bytes and driver limits of each GPU."""
    driver_version: str | None = None
    metrics_missing: dict[str, str] = {}
    """Metric groups that cannot be had here, each with the reason."""
    instance_type: str | None = None
    """What a cloud calls this type of machine, where the machine itself says so."""


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`processes/<process>.json`: what one process of the job said of itself."""

    process: str
    node: str
    pid: int
    parent_pid: int
    role: str
    """`main`, `dataloader_worker` or `monitor`."""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    started_ns: int
    ended_ns: int | None = None
    command: list[str] = []
    versions: dict[str, str] = {}
    """Python, framework and library versions that were loaded."""
    facts: list[dict[str, Any]] = []
    """Facts in the order in which they were learnt, each with a `fact` key: dataloader,
    optimizer, ddp, sampler, profiler window, …"""
    notes: list[str] = []
    """Probes that switched themselves off, with the reason."""
    dropped_count: int = 0
    """Records given up because the spool was full."""

    @property
    def title(self) -> str:
        """`rank 3`, or `process 4711` outside a distributed job."""
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank}"
