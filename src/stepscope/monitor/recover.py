"""Recovery of a spool into its run, after the end of its monitor."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from stepscope.monitor.config import DEFAULT_SPOOL_LIMIT_BYTES, WindowSettings
from stepscope.monitor.handshake import Handshake
from stepscope.monitor.host import node_info, node_name
from stepscope.monitor.launch import remove_spool
from stepscope.monitor.node_writer import NodeWriter
from stepscope.monitor.spool_lock import SpoolLock
from stepscope.monitor.windows.service import WindowService
from stepscope.schema import JobState, JobStatus
from stepscope.spool import SpoolTree, is_monitor, is_suspended, process_start_ticks
from stepscope.store import RunReader, RunWriter, open_run


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a recovery."""

    spool: str | None
    """The drained spool; null if there was none."""
    row_count: int
    state: JobState | None
    complete: bool
    """True if the spool was emptied, and removed if it is stepscope's, or if there was none."""
    reason: str | None


def recover_run(location: str) -> Recovery:
    """Drain this node's spool of a run, and remove it once it is empty. A second call changes
    nothing; beside a process that drains the spool, the call does nothing.

    Raises:
        StepscopeError: the run cannot be read.
    """
    reader = open_run(location)
    info = reader.nodes().get(node_name())
    spool = info.spool if info is not None else reader.info.options.get("spool")
    if spool is None:
        return _no_recovery(reader, "this node has no span logs of the run")
    lock = SpoolLock(Path(spool))
    try:
        is_free = lock.take()
    except (FileNotFoundError, NotADirectoryError):
        return _conclude_without_spool(location, reader, spool)
    if not is_free:
        return _no_recovery(reader, _describe_holder(lock.find_holder()))
    try:
        recovery = _drain(location, reader, spool)
        if recovery.complete:
            _remove(Path(spool))
    finally:
        lock.release()
    return recovery


def _drain(location: str, reader: RunReader, spool: str) -> Recovery:
    node = node_name()
    status, info = reader.statuses().get(node), reader.nodes().get(node)
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
        rows = writer.flush()
        failed_count = windows.finish()
    finally:
        writer.close()
    running = [process for process in writer.drain.processes.values() if not process.ended]
    if not running and not status.state.is_final:
        notes = dict.fromkeys([*status.notes, *windows.notes])  # of the dead monitor as well
        status = writer.final_status(status, Handshake(Path(spool)), notes=notes)
        writer.put_status(status)
    return Recovery(
        spool=spool,
        row_count=rows,
        state=status.state,
        complete=not running and not failed_count,
        reason=_reason(status, running[0].pid if running else None, failed_count),
    )


def _conclude_without_spool(location: str, reader: RunReader, spool: str) -> Recovery:
    """Write the final status of a job whose spool was deleted after everything was killed, so that
    no reader waits for its records."""
    status = reader.statuses().get(node_name())
    if status is not None and status.state.is_final:
        return _no_recovery(reader, "this node has no span logs of the run")
    loss = f"the spool {spool} was deleted, and with it the records that were not in the run yet"
    if status is not None and (status.pid is None or process_start_ticks(status.pid) is None):
        with RunWriter(location, node_name()) as writer:
            writer.put_status(
                msgspec.structs.replace(
                    status,
                    state=JobState.UNKNOWN,
                    ended_ns=status.end_ns or status.heartbeat_ns,
                    reason="the exit status is unknown: the spool was deleted",
                    losses=[*status.losses, loss],
                )
            )
    return _no_recovery(reader, loss)


def _reason(status: JobStatus, running_pid: int | None, failed_count: int) -> str | None:
    if running_pid is not None:
        return f"process {running_pid} of the job is still running"
    if failed_count:
        return f"{failed_count} detailed windows could not be stored; try again"
    return status.reason


def _describe_holder(pid: int | None) -> str:
    """Say which process stores the records, and what to do."""
    if pid is None:
        return "another process is storing the records; wait until it has ended"
    if is_suspended(pid):
        return f"process {pid}, which stores the records, is suspended; resume it: kill -CONT {pid}"
    if is_monitor(pid):
        return (
            f"the monitor of the job, process {pid}, is still running and stores the records; "
            "there is nothing to do"
        )
    return f"process {pid} is storing the records; wait until it has ended"


def _remove(spool: Path) -> None:
    """Remove a spool if its name and owner prove that it belongs to stepscope."""
    if spool.name.startswith("stepscope-") and spool.stat().st_uid == os.getuid():
        remove_spool(spool)


def _no_recovery(reader: RunReader, reason: str) -> Recovery:
    status = reader.statuses().get(node_name())
    return Recovery(
        spool=None,
        row_count=0,
        state=status.state if status is not None else None,
        complete=True,
        reason=reason,
    )
