"""Runs whose last records are still in a spool."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from stepscope.run.job_times import SILENT_NS, is_lost
from stepscope.schema import JobStatus
from stepscope.spool import process_start_ticks
from stepscope.store import RunReader


def explain_recovery(reader: RunReader) -> str | None:
    """Explain that the last records of a run are still in a spool, with the command that stores
    them; None if they are in the run, or a monitor can be expected to store them."""
    statuses = reader.statuses()
    if not statuses:
        spool = reader.info.options.get("spool")
        is_starting = time.time_ns() - reader.info.created_ns <= SILENT_NS
        return None if spool is None or is_starting else _explain(reader, "its monitor", [spool])
    growing = {node: status for node, status in statuses.items() if not status.state.is_final}
    if not growing:
        return None
    nodes = reader.nodes()
    spools = {name: nodes[name].spool if name in nodes else None for name in growing}
    lost = [
        name
        for name, status in growing.items()
        if is_lost(status) or (_is_here(spools[name]) and _is_dead(status))
    ]
    if not lost:
        return None
    return _explain(reader, f"the monitor on {', '.join(lost)}", [spools[name] for name in lost])


def _is_here(spool: str | None) -> bool:
    """Check whether a spool is on this machine, whose process ids are then those of the job."""
    return spool is not None and Path(spool).is_dir()


def _is_dead(status: JobStatus) -> bool:
    return not any(
        pid is not None and process_start_ticks(pid) is not None
        for pid in (status.monitor_pid, status.pid)
    )


def _explain(reader: RunReader, monitor: str, spools: list[str | None]) -> str:
    start = f"The run is incomplete: {monitor} stopped before it recorded the end of the job."
    if reader.directory is None:
        return (
            f"{start} Store the remaining records with stepscope recover and the run directory on "
            "the machine that recorded it."
        )
    there = "" if any(map(_is_here, spools)) else " on that machine"
    command = shlex.join(["stepscope", "recover", str(reader.directory)])
    return f"{start} Store the remaining records{there} with: {command}"
