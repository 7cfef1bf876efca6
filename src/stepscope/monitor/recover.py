"""Recovery of a spool into its run, after the end of its monitor."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from stepscope import schema, store
from stepscope.monitor import config
from stepscope.monitor.host import node_info, node_name
from stepscope.monitor.node_writer import NodeWriter
from stepscope.monitor.spool_files import SpoolLock
from stepscope.monitor.uploading import UploadEnd
from stepscope.monitor.windows.service import WindowService
from stepscope.spool import SpoolTree, is_monitor, is_suspended, process_start_ticks

NO_SPAN_LOGS = "this node has no span logs of the run"


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a recovery."""

    spool: str | None
    """The drained spool; null if there was none."""
    row_count: int
    state: schema.JobState | None
    complete: bool
    """True if the spool was emptied, and removed if it is stepscope's, or if there was none."""
    reason: str | None
    upload: UploadEnd | None = None
    """Upload of a run that was recorded for an object store; null for any other."""


def recover_run(location: str) -> Recovery:
    """Drain this machine's spools of a run, and remove them once they are empty. A second call
    changes nothing; beside a process that drains a spool, the call does nothing with it.

    Raises:
        StepscopeError: the run cannot be read.
    """
    reader = store.open_run(location)
    if reader.info.job is None:
        return _recover_node(location, reader, node_name(), None)
    launchers = [
        one for one in store.SharedRun(location).list_launchers() if one.host == node_name()
    ]
    recoveries = [_recover_node(location, reader, one.node, one) for one in launchers]
    if not recoveries:
        return _no_recovery(reader, node_name(), NO_SPAN_LOGS)
    return _sum_up(recoveries)


def _sum_up(recoveries: Sequence[Recovery]) -> Recovery:
    """Return the result for a machine with several launchers: that of the last one that had
    records, with all rows."""
    last = next((one for one in reversed(recoveries) if one.spool is not None), recoveries[-1])
    return msgspec.structs.replace(
        last,
        row_count=sum(recovery.row_count for recovery in recoveries),
        complete=all(recovery.complete for recovery in recoveries),
    )


def _recover_node(
    location: str, reader: store.RunReader, node: str, launcher: schema.LauncherInfo | None
) -> Recovery:
    """Drain the spool of one node.

    Args:
        launcher: its launcher in a run of several.
    """
    info = reader.nodes().get(node)
    spool = info.spool if info is not None else reader.info.options.get("spool")
    if spool is None or (info is None and launcher is not None):
        return _no_recovery(reader, node, NO_SPAN_LOGS)
    maker_pid = _find_maker(Path(spool), reader.info.created_ns)
    if maker_pid is not None and node not in reader.statuses():
        reason = (
            f"the job of process {maker_pid} has just started, and its monitor has stored nothing "
            "yet; there is nothing to do"
        )
        return _no_recovery(reader, node, reason, complete=False)
    lock = SpoolLock(Path(spool))
    try:
        is_free = lock.take()
    except (FileNotFoundError, NotADirectoryError):
        return _conclude_without_spool(location, reader, node, spool)
    if not is_free:
        return _no_recovery(reader, node, _describe_holder(lock.find_holder()), complete=False)
    try:
        recovery = _drain(location, reader, node, spool, launcher=launcher, maker_pid=maker_pid)
        if recovery.complete:
            _remove(Path(spool))
    finally:
        lock.release()
    return recovery


def _drain(
    location: str,
    reader: store.RunReader,
    node: str,
    spool: str,
    *,
    launcher: schema.LauncherInfo | None,
    maker_pid: int | None,
) -> Recovery:
    status, info = reader.statuses().get(node), reader.nodes().get(node)
    if info is None:
        info = node_info(sample_interval_ns=0, spool=spool)
    if status is None:
        created = reader.info.created_ns
        status = schema.JobStatus(
            state=schema.JobState.IN_PROGRESS, heartbeat_ns=created, started_ns=created
        )
    tree = SpoolTree(spool, config.DEFAULT_SPOOL_LIMIT_BYTES, None if launcher is None else node)
    writer = NodeWriter(location, info, tree, launcher=launcher, keeps_lease=False)
    writer.put_node(info)
    windows = WindowService(
        config.WindowSettings(enabled=False, keep_raw=bool(reader.info.options.get("keep_raw"))),
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
    running = [process.pid for process in writer.drain.processes.values() if not process.ended]
    if maker_pid is not None:  # it may start a monitor again
        running.append(maker_pid)
    if not running and not status.state.is_final:
        notes = dict.fromkeys([*status.notes, *windows.notes])  # of the dead monitor as well
        status = writer.final_status(status, config.Handshake(Path(spool)), notes=notes)
        writer.put_status(status)
    return Recovery(
        spool=spool,
        row_count=rows,
        state=status.state,
        complete=not running and not failed_count,
        reason=_reason(status, running[0] if running else None, failed_count),
    )


def _find_maker(spool: Path, created_ns: int) -> int | None:
    """Return the pid of the process that made a spool for a run; None if it has ended.

    The name of the spool ends with the pid. A process that has got it later has started after the
    creation of the run.
    """
    pid = spool.name.rpartition("-")[2]
    ticks = process_start_ticks(pid) if pid.isdigit() else None
    if ticks is None:
        return None
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    started_s = booted_s + ticks / os.sysconf("SC_CLK_TCK")
    return int(pid) if started_s <= created_ns / 1e9 else None


def _conclude_without_spool(
    location: str, reader: store.RunReader, node: str, spool: str
) -> Recovery:
    """Write the final status of a job whose spool was deleted after everything was killed, so that
    no reader waits for its records."""
    status = reader.statuses().get(node)
    if status is not None and status.state.is_final:
        return _no_recovery(reader, node, NO_SPAN_LOGS)
    loss = f"the spool {spool} was deleted, and with it the records that were not in the run yet"
    if status is not None and (status.pid is None or process_start_ticks(status.pid) is None):
        with store.RunWriter(location, node) as writer:
            writer.put_status(
                msgspec.structs.replace(
                    status,
                    state=schema.JobState.UNKNOWN,
                    ended_ns=status.end_ns or status.heartbeat_ns,
                    reason="the exit status is unknown: the spool was deleted",
                    losses=[*status.losses, loss],
                )
            )
    return _no_recovery(reader, node, loss)


def _reason(status: schema.JobStatus, running_pid: int | None, failed_count: int) -> str | None:
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
        config.remove_spool(spool)


def _no_recovery(
    reader: store.RunReader, node: str, reason: str, *, complete: bool = True
) -> Recovery:
    status = reader.statuses().get(node)
    return Recovery(
        spool=None,
        row_count=0,
        state=status.state if status is not None else None,
        complete=complete,
        reason=reason,
    )
