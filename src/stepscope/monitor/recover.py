"""Recovery of a spool into its run, after the end of its monitor."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stepscope.monitor.config import DEFAULT_SPOOL_LIMIT_BYTES, WindowSettings
from stepscope.monitor.handshake import Handshake
from stepscope.monitor.host import node_info, node_name
from stepscope.monitor.node_writer import NodeWriter
from stepscope.monitor.windows.service import WindowService
from stepscope.schema import JobState, JobStatus
from stepscope.spool import SpoolTree, process_start_ticks
from stepscope.store import RunWriter, open_run


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a recovery."""

    spool: str | None
    """The drained spool; null if there was none."""
    row_count: int
    state: JobState | None
    complete: bool
    """True if the spool is empty now."""
    reason: str | None


def recover_run(location: str) -> Recovery:
    """Drain this node's spool of a run. A second call changes nothing.

    Raises:
        StepscopeError: the run cannot be read.
    """
    reader = open_run(location)
    node = node_name()
    status = reader.statuses().get(node)
    info = reader.nodes().get(node)
    spool = info.spool if info is not None else reader.info.options.get("spool")
    if status is not None and _is_monitored(status, location):
        return _no_recovery(status, "its monitor is still running")
    if spool is None or not Path(spool).is_dir():
        if status is not None and not status.state.is_final and not _is_running(status):
            status = _end_without_spool(location, node, status)
        return _no_recovery(status, "this node has no span logs of the run")
    if info is None:
        info = node_info(sample_interval_ns=0, spool=spool)
    if status is None:
        created = reader.info.created_ns
        status = JobStatus(state=JobState.IN_PROGRESS, heartbeat_ns=created, started_ns=created)
    tree = SpoolTree(spool, DEFAULT_SPOOL_LIMIT_BYTES)
    writer = NodeWriter(location, info, tree)
    writer.put_node(info)
    windows = WindowService(
        WindowSettings(enabled=False, keep_raw=bool(reader.info.options.get("keep_raw"))),
        tree,
        run=location,
        node=node,
        peer=None,
        job_pid=0,
        started_ns=status.started_ns - info.epoch_offset_ns,
    )
    try:
        failed_count = windows.finish()
        rows = writer.flush()
    finally:
        writer.close()
    running = [process for process in writer.drain.processes.values() if not process.ended]
    if not running and not status.state.is_final:
        status = writer.final_status(status, Handshake(Path(spool)), notes=windows.notes)
        writer.put_status(status)
    return Recovery(
        spool=spool,
        row_count=rows,
        state=status.state,
        complete=not running and not failed_count,
        reason=_reason(status, running[0].pid if running else None, failed_count),
    )


def _is_running(status: JobStatus) -> bool:
    return status.pid is not None and process_start_ticks(status.pid) is not None


def _end_without_spool(location: str, node: str, status: JobStatus) -> JobStatus:
    """End the status of a job whose spool is gone, so that no reader waits for its records."""
    status = msgspec.structs.replace(
        status,
        state=JobState.UNKNOWN,
        ended_ns=status.end_ns or status.heartbeat_ns,
        reason="the exit status is unknown: the spool was removed with the last records in it",
    )
    with RunWriter(location, node) as writer:
        writer.put_status(status)
    return status


def _reason(status: JobStatus, running_pid: int | None, failed_count: int) -> str | None:
    if running_pid is not None:
        return f"process {running_pid} of the job is still running"
    if failed_count:
        return f"{failed_count} detailed windows could not be stored; try again"
    return status.reason


def _is_monitored(status: JobStatus, location: str) -> bool:
    """Check whether the run's monitor is alive: two writers would write the same rows twice."""
    if status.state.is_final or status.monitor_pid is None:
        return False
    try:
        words = Path(f"/proc/{status.monitor_pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"stepscope.monitor" in words and Path(location).name.encode() in words


def _no_recovery(status: JobStatus | None, reason: str) -> Recovery:
    return Recovery(
        spool=None,
        row_count=0,
        state=status.state if status is not None else None,
        complete=True,
        reason=reason,
    )
