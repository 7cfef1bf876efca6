"""Configuration of a monitor."""

from __future__ import annotations

import msgspec

from stepscope.budget import Budget
from stepscope.schema import LauncherInfo, WindowSchedule

DEFAULT_INTERVAL_MS = 500
DEFAULT_SPOOL_LIMIT_BYTES = 256 * 1024 * 1024
DEFAULT_FLUSH_S = 5.0
FIRST_FLUSH_S = 2.0
DEFAULT_STUCK_AFTER_S = 30.0
MIN_RUN_BYTES = 4 * 1024 * 1024
"""Minimum for the size limit of a run, whose files are rounded once sixteen are merged into one."""


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a run that the monitor creates for a script that profiles itself."""

    run_id: str
    command: list[str]
    """Command line with its secrets, which are masked before it is stored."""
    working_directory: str
    job: str | None = None
    """Identity of its job, if that has several processes, which share the run."""
    is_unique: bool = True
    """True if no other job has this identity."""


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for detailed windows."""

    enabled: bool = True
    automatic: bool = True
    """Record a few steps after warm-up on rank 0."""
    on_change: bool = True
    """With `automatic`, record a few steps on all ranks when the job has become slower."""
    schedules: list[WindowSchedule] = []
    keep_raw: bool = False
    """Keep the trace files of the profilers in the run's `raw/`."""
    kineto_directory: str | None = None
    """Directory in which libkineto expects the socket of its daemon, "" for an abstract socket;
    None if it looks for none."""
    by_duration: bool = False
    """libkineto itself ends windows after a duration: no code of stepscope counts steps in the
    job."""


class AttachSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for a job that was running already, and is recorded from outside."""

    py_spy: str | None
    """Path of py-spy; None if stacks cannot be sampled."""
    limits: list[str]
    """What is not recorded, and why, one sentence each."""


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of one node's monitor of one job; JSON on the monitor's command line."""

    run: str
    """Location of the run, which exists unless `create` is set."""
    create: NewRun | None = None
    """Run to create, or to join if another process of the job has created it; the monitor then also
    removes the spool at the end."""
    spool: str
    spool_limit_bytes: int = DEFAULT_SPOOL_LIMIT_BYTES
    job_pid: int
    """PID of the command."""
    launcher_pid: int | None
    """PID of `stepscope run`, which reports the exit status of the command; None in library mode,
    and for a job that was running already."""
    interval_ms: int = DEFAULT_INTERVAL_MS
    flush_s: float = DEFAULT_FLUSH_S
    """Interval at which the spool is drained into new files of the run."""
    first_flush_s: float = FIRST_FLUSH_S
    """The interval in the first seconds of the job."""
    max_run_bytes: int | None = None
    """Size of the node's recorded tables from which the oldest are rounded; None for no limit."""
    budget: Budget = Budget()
    """CPU time and memory of the monitor."""
    windows: WindowSettings = WindowSettings()
    stuck_after_s: float = DEFAULT_STUCK_AFTER_S
    """Time without progress from which the ranks of the job are asked where they are."""
    launcher: LauncherInfo | None = None
    """Launcher of this node, if the run is shared by several; see `store.SharedRun`."""
    attached: AttachSettings | None = None
    """Set for a job that was running already."""
    is_staged: bool = False
    """True if `run` is a staging directory, which is uploaded to an object store."""

    @property
    def node(self) -> str | None:
        """Node of a run that several nodes write; None for the only one."""
        return None if self.launcher is None else self.launcher.node
