"""Stopping a job: only where its launcher has allowed it, and only on the launcher's machine.

The launcher looks for wishes in a directory of its own beside the span logs, so that looking never
makes it wait.
"""

from __future__ import annotations

import getpass
import os
import stat
from pathlib import Path

from stepscope.errors import UsageError
from stepscope.run import is_lost
from stepscope.schema import JobState
from stepscope.server.open_runs import OpenRuns
from stepscope.server.payloads import StopRequested
from stepscope.store import RunReader
from stepscope.watch.stop_request import (
    FILE_NAME,
    StopRequest,
    read_stop_request,
    write_stop_request,
)


def stop(runs: OpenRuns, *, location: str, revision: int, client: str) -> StopRequested:
    """Tell the launcher.

    Raises:
        UsageError: it would not listen.
    """
    reader = runs.open(location, revision).reader
    reason = why_no_stop(reader)
    if reason is not None:
        raise UsageError(reason)
    by = f"{_user()} in the web UI (from {client})"
    write_stop_request(_wish(reader), StopRequest(by=by))
    return StopRequested(by=by)


def why_no_stop(reader: RunReader) -> str | None:
    """Why the job cannot be stopped from here; None when it can."""
    if not reader.info.options.get("allow_stop"):
        return "the job's launcher does not allow it: start it with stepscope run --allow-stop"
    statuses = list(reader.statuses().values())
    if not statuses or all(status.state.final for status in statuses):
        return "the job is over" if statuses else "no monitor has said yet how the job stands"
    if any(status.state is JobState.STOPPING for status in statuses):
        return "the job has been asked to stop already"
    if all(is_lost(status) for status in statuses):
        return "nothing has been heard of the job for a while"
    if not _is_spool_of_ours(_wish(reader).parent):
        return "a job can be stopped only on the machine of its launcher, by the same user"
    if read_stop_request(_wish(reader)) is not None:
        return "the job has been asked to stop already"
    return None


def _wish(reader: RunReader) -> Path:
    return Path(str(reader.info.options.get("spool"))) / FILE_NAME


def _is_spool_of_ours(directory: Path) -> bool:
    """Whether this is a launcher's directory: a run may come from anywhere and name any place."""
    try:
        found = directory.lstat()
    except (OSError, ValueError):
        return False
    return (
        directory.is_absolute()
        and directory.name.startswith(f"stepscope-{os.getuid()}-")
        and stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & 0o022
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"
