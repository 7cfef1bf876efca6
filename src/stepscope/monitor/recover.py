"""Bringing a spool into its run after the fact."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope.monitor.config import DEFAULT_SPOOL_LIMIT_BYTES, WindowSettings
from stepscope.monitor.exchange import Exchange
from stepscope.monitor.host import node_info, node_name
from stepscope.monitor.recording import NodeRecording, final_status
from stepscope.monitor.windows.service import WindowService
from stepscope.schema import JobState, JobStatus
from stepscope.spool import SpoolTree
from stepscope.store import open_run


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """What a recovery did."""

    spool: str | None
    """The spool that was drained, null when there was none."""
    row_count: int
    state: JobState | None
    complete: bool
    """True when nothing is left in the spool."""
    reason: str | None


def recover_run(location: str) -> Recovery:
    """Drain this node's spool of a run. Doing it again changes nothing.

    Raises:
        StepscopeError: the run cannot be read.
    """
    reader = open_run(location)
    node = node_name()
    status = reader.statuses().get(node)
    info = reader.nodes().get(node)
    spool = info.spool if info is not None else reader.info.options.get("spool")
    if status is not None and _at_work(status, location):
        return _nothing(status, "its monitor is still at work")
    if spool is None or not Path(spool).is_dir():
        return _nothing(status, "no span logs of it are left on this node")
    if info is None:
        info = node_info(sample_interval_ns=0, spool=spool)
    if status is None:
        created = reader.info.created_ns
        status = JobStatus(state=JobState.IN_PROGRESS, heartbeat_ns=created, started_ns=created)
    tree = SpoolTree(spool, DEFAULT_SPOOL_LIMIT_BYTES)
    recording = NodeRecording(location, info, tree)
    recording.put_node()
    windows = WindowService(
        WindowSettings(enabled=False, keep_raw=bool(reader.info.options.get("keep_raw"))),
        tree,
        run=location,
        node=node,
        peer=None,
        job_pid=0,
        started_ns=status.started_ns,
    )
    try:
        left = windows.finish()
        rows = recording.flush()
    finally:
        recording.close()
    running = [p for p in recording.drain.processes.values() if not p.over]
    if not running and not status.state.final:
        status = final_status(status, Exchange(Path(spool)), notes=windows.notes)
        recording.put_status(status)
    return Recovery(
        spool=spool,
        row_count=rows,
        state=status.state,
        complete=not running and not left,
        reason=_reason(status, running[0].pid if running else None, left),
    )


def _reason(status: JobStatus, running: int | None, left: int) -> str | None:
    if running is not None:
        return f"process {running} of the job is still running"
    if left:
        return f"{left} detailed windows could not be stored; try again"
    return status.reason


def _at_work(status: JobStatus, location: str) -> bool:
    """Whether the run's monitor lives; two that write the same rows would write them twice."""
    if status.state.final or status.monitor_pid is None:
        return False
    try:
        words = Path(f"/proc/{status.monitor_pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"stepscope.monitor" in words and Path(location).name.encode() in words


def _nothing(status: JobStatus | None, reason: str) -> Recovery:
    return Recovery(
        spool=None,
        row_count=0,
        state=status.state if status is not None else None,
        complete=True,
        reason=reason,
    )
