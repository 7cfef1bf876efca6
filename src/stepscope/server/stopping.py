"""Stopping a job, if its launcher allows that, and only on the launcher's machine.

The launcher looks for stop requests in its own local directory, so that looking never makes it
wait.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stepscope.errors import UsageError
from stepscope.run import Run, has_ended, is_lost
from stepscope.schema import JobState
from stepscope.server.open_runs import OpenRuns
from stepscope.server.payloads import StopAccepted
from stepscope.watch import (
    STOP_REQUEST_FILE,
    StopRequest,
    read_stop_request,
    user_name,
    write_stop_request,
)


def stop(runs: OpenRuns, *, location: str, revision: int, client: str) -> StopAccepted:
    """Send a stop request to the launcher.

    Raises:
        UsageError: the job cannot be stopped from here.
    """
    run = runs.open(location, revision)
    reason = stop_obstacle(run)
    if reason is not None:
        raise UsageError(reason)
    by = f"{user_name()} in the web UI (from {client})"
    write_stop_request(_request_path(run), StopRequest(by=by))
    return StopAccepted(by=by)


def stop_obstacle(run: Run) -> str | None:
    """Reason why the job cannot be stopped from here; None when it can."""
    if not run.reader.info.options.get("allow_stop"):
        return "the job was started without --allow-stop: `stepscope run --allow-stop -- CMD`"
    statuses = list(run.reader.statuses().values())
    if has_ended(statuses):
        return "the job has ended" if statuses else "no monitor has reported a status yet"
    if any(status.state is JobState.STOPPING for status in statuses):
        return "the job is already stopping"
    if all(is_lost(status) for status in statuses):
        return "the job has sent no heartbeat for a while"
    if not _is_own_spool(_request_path(run).parent):
        return "a job can be stopped only on the machine of its launcher, by the same user"
    if read_stop_request(_request_path(run)) is not None:
        return "the job is already stopping"
    return None


def _request_path(run: Run) -> Path:
    return Path(str(run.reader.info.options.get("spool"))) / STOP_REQUEST_FILE


def _is_own_spool(directory: Path) -> bool:
    """Check for a launcher's directory: a run from elsewhere may name any directory."""
    try:
        status = directory.lstat()
    except (OSError, ValueError):
        return False
    return (
        directory.is_absolute()
        and directory.name.startswith(f"stepscope-{os.getuid()}-")
        and stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.getuid()
        and not status.st_mode & 0o022
    )
