"""What a monitor is told when it is started."""

from __future__ import annotations

import msgspec

INTERVALS_MS = (100, 200, 500, 1000, 5000, 60000)
"""Sampling intervals that may be asked for, in milliseconds."""
DEFAULT_INTERVAL_MS = 500
DEFAULT_SPOOL_LIMIT_BYTES = 256 * 1024 * 1024
DEFAULT_FLUSH_S = 5.0


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a script that records itself knows of the run that its monitor is to make."""

    run_id: str
    command: list[str]
    """With its secrets; they are masked before anything is stored."""
    working_directory: str


class WindowSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Windows that are planned when the job is started: by steps, or by time."""

    first_step: int | None = None
    """Steps that end before the first window."""
    step_count: int | None = None
    start_s: float | None = None
    """Seconds from the start of the job to the first window, where it goes by time."""
    duration_s: float | None = None
    every: float | None = None
    """Steps, or seconds, from one beginning to the next; None for a single window."""
    depth: str = "full"
    options: list[str] = []


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a monitor does about detailed windows."""

    enabled: bool = True
    automatic: bool = True
    """A few steps past warm-up on rank 0."""
    on_change: bool = True
    """A few steps on all ranks when the job has become slower."""
    schedule: WindowSchedule | None = None
    keep_raw: bool = False
    """Keep the recorders' files in the run's `raw/`."""
    kineto_directory: str | None = None
    """Where libkineto looks for us; None where it does not."""


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One node's monitoring of one job; travels on the monitor's command line as JSON."""

    run: str
    """Location of the run, which exists unless `create` is given."""
    create: NewRun | None = None
    """The run is to be made, and the spool to be removed at the end: nobody else does it."""
    spool: str
    spool_limit_bytes: int = DEFAULT_SPOOL_LIMIT_BYTES
    job_pid: int
    """The command's own process."""
    launcher_pid: int | None
    """`stepscope run`, which reports how the command ended; None in library mode."""
    interval_ms: int = DEFAULT_INTERVAL_MS
    flush_s: float = DEFAULT_FLUSH_S
    """How often what is in the spool is brought into the run."""
    windows: WindowSettings = WindowSettings()
