"""Runs whose last records are still in a spool."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from stepscope.quantities import duration
from stepscope.run.job_times import is_lost
from stepscope.schema import SILENT_NS, JobStatus
from stepscope.spool import is_monitor, is_suspended, process_start_ticks
from stepscope.store import RunReader


def explain_recovery(reader: RunReader) -> str | None:
    """Explain that the last records of a run are still in a spool, with the command that stores
    them; None if they are in the run, or a monitor can be expected to store them."""
    statuses = reader.statuses()
    if not statuses:
        spool = reader.info.options.get("spool")
        is_starting = time.time_ns() - reader.info.created_ns <= SILENT_NS
        if spool is None or is_starting:
            return None
        return _explain_end(reader, "its monitor", is_here=_is_here(spool))
    nodes = reader.nodes()
    sentences = (
        _explain_node(reader, name, status, nodes[name].spool if name in nodes else None)
        for name, status in statuses.items()
        if not status.state.is_final
    )
    return next((sentence for sentence in sentences if sentence is not None), None)


def _explain_node(reader: RunReader, node: str, status: JobStatus, spool: str | None) -> str | None:
    is_here = _is_here(spool)
    pid = status.monitor_pid
    if is_here and (pid is None or not is_monitor(pid)):
        # While the job runs, its launcher starts another monitor.
        if is_lost(status) or not _is_alive(status.pid):
            return _explain_end(reader, f"the monitor on {node}", is_here=True)
        return None
    if not is_lost(status):
        return None
    silence = duration(time.time_ns() - status.heartbeat_ns)
    start = f"The run is incomplete: the monitor on {node} has been silent for {silence}."
    if not is_here:
        return f"{start} If it has ended, {_recover(reader, is_here=False)}"
    if pid is not None and is_suspended(pid):
        return f"{start} It is suspended; resume it with: kill -CONT {pid}"
    return (
        f"{start} If process {pid} does not continue, end it, and {_recover(reader, is_here=True)}"
    )


def _is_here(spool: str | None) -> bool:
    """Check whether a spool is on this machine, whose process ids are then those of the job."""
    return spool is not None and Path(spool).is_dir()


def _is_alive(pid: int | None) -> bool:
    return pid is not None and process_start_ticks(pid) is not None


def _explain_end(reader: RunReader, monitor: str, *, is_here: bool) -> str:
    action = _recover(reader, is_here=is_here)
    return (
        f"The run is incomplete: {monitor} stopped before it recorded the end of the job. "
        f"{action[0].upper()}{action[1:]}"
    )


def _recover(reader: RunReader, *, is_here: bool) -> str:
    if reader.directory is None:
        return (
            "store the remaining records with stepscope recover and the run directory on the "
            "machine that recorded it."
        )
    command = shlex.join(["stepscope", "recover", str(reader.directory)])
    return f"store the remaining records{'' if is_here else ' on that machine'} with: {command}"
