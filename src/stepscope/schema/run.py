"""JSON manifests of a run: the job, its status, its nodes, its processes."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from stepscope.schema.facts import FactT, decode_facts

SCHEMA_VERSION = 1
"""Incremented when a table or manifest changes so that older code would misread it."""
SILENT_NS = 30_000_000_000
"""A running job without a heartbeat for this long counts as lost."""


class JobState(enum.StrEnum):
    """State of a job, named as in training services."""

    IN_PROGRESS = "InProgress"
    STOPPING = "Stopping"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPED = "Stopped"
    UNKNOWN = "Unknown"
    """The job has ended, but its exit status was not seen."""

    @property
    def is_final(self) -> bool:
        """True if the job has ended."""
        return self not in {JobState.IN_PROGRESS, JobState.STOPPING}

    @property
    def words(self) -> str:
        """State as text for readers."""
        return "in progress" if self is JobState.IN_PROGRESS else self.lower()


TRAINING_PROBES = ("optimizer steps", "backward passes")
"""Beginnings of the notes of a process about what it failed to record of a training."""


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """File that was imported into a run, as it was then."""

    path: str
    """Absolute, without links."""
    size_bytes: int
    changed_ns: int
    """Modification time, epoch nanoseconds."""


class RunInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """`run.json`: written once, when the run is created."""

    schema_version: int
    run_id: str
    created_ns: int
    """Epoch nanoseconds."""
    command: list[str]
    """Command line with secrets masked."""
    working_directory: str
    stepscope_version: str
    git_revision: str | None = None
    """Commit of the working directory, with '-dirty' if it has changes; null outside git."""
    options: dict[str, Any] = {}
    """Options of `stepscope run` that affect the recording."""
    job: str | None = None
    """Job of several launchers that share the run, such as `slurm 4711.0`; null for one."""
    sources: list[SourceFile] = []
    """Trace files that were imported; empty for a recorded run."""

    @property
    def attached_pid(self) -> int | None:
        """Process to which `stepscope attach` attached; None for any other run."""
        return self.options.get("attached_pid")


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes/<node>/status.json`: replaced by the node's monitor at every heartbeat."""

    state: JobState
    heartbeat_ns: int
    """Last heartbeat of the monitor by the wall clock, epoch nanoseconds."""
    started_ns: int
    """Start of the monitor, a moment after that of the command."""
    launched_ns: int | None = None
    """Time at which the kernel created the process of the command, epoch nanoseconds, with a
    precision of 10 ms; null where unknown."""
    ended_ns: int | None = None
    elapsed_ns: int | None = None
    """Time from the start to the last heartbeat or to the end, by the monotonic clock of the node,
    whatever its wall clock did; null in runs of earlier versions."""
    exit_code: int | None = None
    signal: int | None = None
    """Signal that ended the job, if any."""
    pid: int | None = None
    """Process of the command."""
    monitor_pid: int | None = None
    reason: str | None = None
    """One sentence, if the state needs an explanation."""
    notes: list[str] = []
    """Missing data and the reasons, one sentence each."""
    losses: list[str] = []
    """Reasons for which records of the job may be missing, one sentence each."""
    unrecorded: list[str] = []
    """Reasons for which processes that loaded a framework were not recorded, one sentence each."""
    refusals: list[str] = []
    """Errors, such as ENOSPC, because of which processes of the job could not be recorded and are
    not among the processes of the run."""
    max_pause_ns: int = 0
    """Longest time for which the monitor did not run."""
    incarnation: int = 1
    """Latest incarnation of the job with a process on this node."""

    @property
    def duration_ns(self) -> int | None:
        """Time from the start to the last heartbeat or to the end; None if the wall clock, which
        earlier versions used, was set back meanwhile."""
        if self.elapsed_ns is not None:
            return self.elapsed_ns
        last_ns = self.heartbeat_ns if self.ended_ns is None else self.ended_ns
        return last_ns - self.started_ns if last_ns >= self.started_ns else None

    @property
    def end_ns(self) -> int | None:
        """End of the job, or its last heartbeat, on the clock of the node's records, epoch
        nanoseconds; None if unknown."""
        return None if self.duration_ns is None else self.started_ns + self.duration_ns

    def is_silent(self, now_ns: int) -> bool:
        """Return True for a running job whose last heartbeat is too old.

        Args:
            now_ns: epoch nanoseconds.
        """
        return not self.state.is_final and now_ns - self.heartbeat_ns > SILENT_NS


class IntervalChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of the sampling interval of a node."""

    t_ns: int
    """Time from which samples have the new interval, epoch nanoseconds."""
    interval_ns: int
    reason: str | None = None
    """Why the monitor changed it; null if the configuration did."""


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`nodes/<node>/node.json`: the machine."""

    node: str
    host: str | None = None
    """Name of the machine, of which several launchers of a job have a node each; null if it is
    `node`."""
    platform: str
    cpu_model: str
    cores_total: int
    cores_available: float
    """Cores that the job may use: the minimum of affinity mask, cpuset and cgroup quota."""
    memory_bytes: int | None
    """Null if the run was imported and the size is unknown."""
    memory_limit_bytes: int | None
    """Limit of the cgroup, if it is below the machine's memory."""
    sample_interval_ns: int
    """Sampling interval at the start of the job."""
    spool: str
    """Local directory of the span logs, read by `stepscope recover`."""
    clock_anchor_monotonic_ns: int
    clock_anchor_epoch_ns: int
    """Times of this node are monotonic time plus the difference of the two anchors."""
    recording_end_ns: int | None = None
    """End of the recording of the job's processes on this node, epoch nanoseconds: spans, scalars
    and stack samples that start later are not in the run. Null without a limit."""
    gpus: list[dict[str, Any]] = []
    """Name, uuid, memory_bytes and driver limits of each GPU."""
    driver_version: str | None = None
    metrics_missing: dict[str, str] = {}
    """Metric groups that are unavailable here, with the reason."""
    instance_type: str | None = None
    """Cloud instance type, if the machine reports it."""
    interval_changes: list[IntervalChange] = []
    """Changes of the sampling interval while the job ran, in the order of time."""

    @classmethod
    def of_import(
        cls,
        node: str,
        *,
        sample_interval_ns: int,
        gpus: list[dict[str, Any]],
        metrics_missing: dict[str, str],
        core_count: int = 0,
    ) -> NodeInfo:
        """Describe a machine of which only samples are known, with times since the epoch."""
        return cls(
            node=node,
            platform="unknown",
            cpu_model="unknown processor",
            cores_total=core_count,
            cores_available=float(core_count),
            memory_bytes=None,
            memory_limit_bytes=None,
            sample_interval_ns=sample_interval_ns,
            spool="",
            clock_anchor_monotonic_ns=0,
            clock_anchor_epoch_ns=0,
            gpus=gpus,
            metrics_missing=metrics_missing,
        )

    @property
    def intervals_ns(self) -> list[int]:
        """Sampling intervals in the order of time."""
        return [self.sample_interval_ns, *(change.interval_ns for change in self.interval_changes)]

    @property
    def epoch_offset_ns(self) -> int:
        """Epoch time minus monotonic time of the records of this node."""
        return self.clock_anchor_epoch_ns - self.clock_anchor_monotonic_ns

    @property
    def configured_interval_ns(self) -> int:
        """Sampling interval of the last configuration."""
        changes = self.interval_changes
        configured = [change.interval_ns for change in changes if change.reason is None]
        return configured[-1] if configured else self.sample_interval_ns

    def interval_ns_at(self, t_ns: int) -> int:
        """Return the sampling interval at a time, epoch nanoseconds."""
        earlier = [change.interval_ns for change in self.interval_changes if change.t_ns <= t_ns]
        return earlier[-1] if earlier else self.sample_interval_ns

    def max_interval_ns(self, start_ns: int, end_ns: int) -> int:
        """Return the longest sampling interval that applies in a range of time."""
        inside = (c.interval_ns for c in self.interval_changes if start_ns < c.t_ns < end_ns)
        return max(self.interval_ns_at(start_ns), *inside, 0)


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`processes/<process>.json`: one process of the job."""

    process: str
    node: str
    pid: int
    parent_pid: int
    role: str
    """`main`, `dataloader_worker`, `worker` of a pool or another input pipeline, `monitor`, or
    `program`: one that ran for a second or longer and recorded nothing but its stacks, such as a
    launcher."""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    incarnation: int = 1
    """Start of the training processes that it belongs to, counted from 1: a restart begins the
    next."""
    started_ns: int
    """Its first record, epoch nanoseconds."""
    launched_ns: int | None = None
    """Time at which the kernel created it, epoch nanoseconds, with a precision of 10 ms; null where
    unknown."""
    ready_ns: int | None = None
    """Time at which its interpreter had started and ran the start-up hook, epoch nanoseconds; of a
    fork, that of the fork. Null without the hook."""
    ended_ns: int | None = None
    """Time at which its interpreter ended by itself, or at which the monitor saw that it had ended;
    null while it runs."""
    command: list[str] = []
    versions: dict[str, str] = {}
    """Versions of Python, the framework and loaded libraries."""
    facts: list[dict[str, Any]] = []
    """Facts about the job in the order of their recording, each with a `fact` key; see
    `stepscope.schema.facts`."""
    notes: list[str] = []
    """Disabled probes, with the reason."""
    dropped_count: int = 0
    """Records that could not be kept."""
    dropped_by_cause: dict[str, int] = {}
    """The same by cause: `spool_limit`, or the name of an error of errno(3), such as ENOSPC."""
    refusal: str | None = None
    """Cause for which nothing of the process could be recorded, such as ENOSPC; null otherwise."""

    def facts_of(self, kind: type[FactT]) -> list[FactT]:
        """Return the facts of one kind, in the order of their recording."""
        return decode_facts(self.facts, kind)

    @property
    def may_hide_training(self) -> bool:
        """True if the recording of optimizer steps or backward passes failed."""
        return any(note.startswith(TRAINING_PROBES) for note in self.notes)
