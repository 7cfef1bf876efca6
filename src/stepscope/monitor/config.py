"""What a monitor is told when it is started."""

from __future__ import annotations

import msgspec

INTERVALS_MS = (100, 200, 500, 1000, 5000, 60000)
"""Sampling intervals that may be asked for, in milliseconds."""
DEFAULT_INTERVAL_MS = 500
DEFAULT_SPOOL_LIMIT_BYTES = 256 * 1024 * 1024


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a script that records itself knows of the run that its monitor is to make."""

    run_id: str
    command: list[str]
    """With its secrets; they are masked before anything is stored."""
    working_directory: str


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
