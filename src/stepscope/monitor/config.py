"""Configuration of a monitor."""

from __future__ import annotations

import msgspec

from stepscope.spool import ScheduledWindows

INTERVALS_MS = (100, 200, 500, 1000, 5000, 60000)
"""Allowed sampling intervals, in milliseconds."""
DEFAULT_INTERVAL_MS = 500
DEFAULT_SPOOL_LIMIT_BYTES = 256 * 1024 * 1024
DEFAULT_FLUSH_S = 5.0
FIRST_FLUSH_S = 2.0


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a run that the monitor creates for a script that profiles itself."""

    run_id: str
    command: list[str]
    """Command line with its secrets, which are masked before it is stored."""
    working_directory: str


class WindowSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Schedule of windows from the start of the job, in steps or in time."""

    first_step: int | None = None
    """Number of steps before the first window."""
    step_count: int | None = None
    start_s: float | None = None
    """Seconds from the start of the job to the first window, for a schedule in time."""
    duration_s: float | None = None
    interval: float | None = None
    """Steps, or seconds, from one start to the next; None for a single window."""
    warmup_count: int = 0
    """Steps before each window for which the profiler runs and its records are discarded."""
    repeat_count: int | None = None
    """Number of windows of a schedule with an interval; None for no end."""
    depth: str = "full"
    options: list[str] = []

    @property
    def by_steps(self) -> ScheduledWindows | None:
        """The windows of a schedule in steps; None for a schedule in time."""
        if self.first_step is None or self.step_count is None:
            return None
        return ScheduledWindows(
            first_step=self.first_step,
            step_count=self.step_count,
            interval=self.interval,
            repeat_count=self.repeat_count,
            warmup_count=self.warmup_count,
            depth=self.depth,
            options=tuple(self.options),
        )


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for detailed windows."""

    enabled: bool = True
    automatic: bool = True
    """Record a few steps after warm-up on rank 0."""
    on_change: bool = True
    """Record a few steps on all ranks when the job has become slower."""
    schedule: WindowSchedule | None = None
    keep_raw: bool = False
    """Keep the trace files of the profilers in the run's `raw/`."""
    kineto_directory: str | None = None
    """Directory in which libkineto expects the socket of its daemon; None if it looks for none."""


class MonitorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of one node's monitor of one job; JSON on the monitor's command line."""

    run: str
    """Location of the run, which exists unless `create` is set."""
    create: NewRun | None = None
    """Run to create; the monitor then also removes the spool at the end."""
    spool: str
    spool_limit_bytes: int = DEFAULT_SPOOL_LIMIT_BYTES
    job_pid: int
    """PID of the command."""
    launcher_pid: int | None
    """PID of `stepscope run`, which reports the exit status of the command; None in library mode.
    """
    interval_ms: int = DEFAULT_INTERVAL_MS
    flush_s: float = DEFAULT_FLUSH_S
    """Interval at which the spool is drained into new files of the run."""
    first_flush_s: float = FIRST_FLUSH_S
    """The interval in the first seconds of the job."""
    windows: WindowSettings = WindowSettings()
