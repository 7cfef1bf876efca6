"""Opening of runs, and what they lack: damaged, rounded and unread records."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from stepscope import quantities, schema, store
from stepscope.quantities import duration
from stepscope.run.job.times import is_lost
from stepscope.run.model.clock import Period
from stepscope.run.model.run import Run
from stepscope.spool import is_monitor, is_suspended, process_start_ticks
from stepscope.store import RunReader


def open_run(location: str | Path) -> Run:
    """Open a run at a path or URL.

    Raises:
        StepscopeError: see `stepscope.store.open_run`.
    """
    return Run(store.open_run(location))


def reopen_run(run: Run) -> Run:
    """Create a read model of the current state of a growing run; its reader keeps the old segments.

    Raises:
        StepscopeError: see `stepscope.store.open_run`.
    """
    run.reader.refresh()
    return Run(run.reader)


T = TypeVar("T")


def make_with_damage(run: Run, make: Callable[[Run], T]) -> tuple[T, list[str]]:
    """Make something of a run, and list the unreadable files of the tables that this reads.

    Only reading a file shows that it is damaged, and a run reads a table once for all figures. So
    where a run has damage, this is made of a run that has read nothing yet.
    """
    if not run.reader.damage:
        result = make(run)
        if not run.reader.damage:
            return result, []
    with run.reader.trace_use() as reader:
        return make(run.reread(reader)), reader.damage_used


def explain_rounding(run: Run) -> str | None:
    """Explain in one sentence which records of a run or range are rounded; None if none are."""
    limit_bytes = run.reader.info.options.get("max_run_size_bytes")
    if limit_bytes is None:
        return None
    times = run.reader.rounded_times()
    if times is None or times[1] < run.period.start_ns or times[0] >= run.period.end_ns:
        return None
    start_ns, end_ns = times
    return (
        f"Spans and samples of the first {duration(end_ns - start_ns)} of the recording are "
        f"rounded to keep the run within {quantities.memory(limit_bytes)} (--max-run-size): their "
        "counts and the total time of each kind of span are exact, single times and samples are "
        "not; detailed windows are as they were recorded."
    )


def explain_damage(damage: Sequence[str]) -> str | None:
    """Explain in one sentence that files of a run cannot be read.

    Args:
        damage: one sentence per file, as of `RunReader.damage`.
    """
    if not damage:
        return None
    more = len(damage) - 1
    rest = f" (and {quantities.count_of(more, 'more file')})" if more else ""
    return f"A part of the run is damaged: {damage[0].removesuffix('.')}{rest}."


def explain_recovery(reader: RunReader) -> str | None:
    """Explain that the last records of a run are still in a spool, with the command that stores
    them; None if they are in the run, or a monitor can be expected to store them."""
    statuses = reader.statuses()
    if not statuses:
        spool = reader.info.options.get("spool")
        is_starting = time.time_ns() - reader.info.created_ns <= schema.SILENT_NS
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


def _explain_node(
    reader: RunReader, node: str, status: schema.JobStatus, spool: str | None
) -> str | None:
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


_TIMES = (("metrics", "t_ns"), ("spans", "start_ns"))


def has_records(reader: RunReader, period: Period) -> bool:
    """Return True if there is a sample in a range of time, or a span that starts in it."""
    return any(
        len(
            reader.sql(
                f"SELECT 1 AS one FROM {table} WHERE {period.condition(column)} LIMIT 1",  # noqa: S608 - fixed names and numbers
                within=period,
            )["one"]
        )
        for table, column in _TIMES
    )


def find_next_record(reader: RunReader, period: Period) -> int | None:
    """Find the earliest sample or start of a span in a range of time; None without any."""
    earliest = ", ".join(
        f"(SELECT min({column}) FROM {table} WHERE {period.condition(column)})"  # noqa: S608 - fixed names and numbers
        for table, column in _TIMES
    )
    times = reader.sql(f"SELECT least({earliest}) AS t_ns", within=period)["t_ns"]
    return None if np.ma.getmaskarray(times)[0] else int(times[0])
