"""Spans of the job's processes as columns, with their rank, phase, step and mode.

A span's phase is the phase of the step that its kind is one of (`annotation` is none); of a span
that the device executed it is its name; of an imported one that is neither, what the other tool
called it. A span's step is the one of its rank in which it began, counted from 0; a worker's is
that of the process it works for. Outside steps and in evaluation there is none. Its mode is the
one of its rank at its start (`phase_times.MODES`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from stepscope.analysis import (
    PHASE_OF_KIND,
    DurationStatistics,
    find_step_at,
    summarize_groups,
)
from stepscope.run.frames import FrameColumns, select_rows
from stepscope.run.phase_times import MODES, find_mode_at
from stepscope.run.rank_numbers import number_ranks
from stepscope.run.run import Rank, Run
from stepscope.schema import AGGREGATE_KINDS, ProcessInfo
from stepscope.store import DictColumn, RunReader

_STORED = (
    "node", "process", "log", "kind", "name", "labels", "start_ns", "end_ns", "depth", "flags",
    "value",
)  # fmt: skip
_STRINGS = ("node", "process", "log", "kind", "name", "labels", "phase")
Inside = Literal["any", "start", "end"]
"""Part of an event that must be in a range of time."""
_LABEL = "json_extract_string(labels, '$.phase')"
_PHASE = (
    "CASE "
    + " ".join(f"WHEN kind = '{kind}' THEN '{phase}'" for kind, phase in PHASE_OF_KIND.items())
    + f" WHEN kind = 'device' THEN name ELSE {_LABEL} END"
)


def list_phases(reader: RunReader) -> list[str]:
    """List the phases of the spans of a run."""
    query = f"SELECT DISTINCT {_PHASE} AS phase FROM spans"  # noqa: S608
    return sorted(phase for phase in reader.sql(query)["phase"].tolist() if phase is not None)


def list_names(reader: RunReader, table: str) -> list[str]:
    """List the names of the events in a table of a run."""
    query = f"SELECT DISTINCT name FROM {table} ORDER BY name"  # noqa: S608 - a table of ours
    return [str(name) for name in reader.sql(query)["name"].tolist()]


def range_condition(
    start_ns: int | None, end_ns: int | None, inside: Inside, *, end: str = "end_ns"
) -> tuple[str, list[object]]:
    """Build the SQL condition for events in the range from `start_ns` to before `end_ns`.

    An event that did not end lasts until after the range. One without duration overlaps the range
    in which it starts.

    Args:
        start_ns, end_ns: the range; None for an open one.
        inside: part of the event that must be in the range; `any` for an overlap.
        end: SQL for the end of an event.

    Returns:
        The condition with question marks, and its parameters.
    """
    conditions, parameters = ["true"], list[object]()
    if start_ns is not None:
        by_part = {
            "any": f"({end} IS NULL OR {end} > ? OR start_ns >= ?)",
            "start": "start_ns >= ?",
            "end": f"{end} >= ?",
        }
        conditions.append(by_part[inside])
        parameters += [start_ns] * by_part[inside].count("?")
    if end_ns is not None:
        conditions.append(f"{end} < ?" if inside == "end" else "start_ns < ?")
        parameters.append(end_ns)
    return " AND ".join(conditions), parameters


def read_job_spans(
    run: Run,
    *,
    kinds: Sequence[str] | None = None,
    phases: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    inside: Inside = "any",
    steps: tuple[int, int] | None = None,
    rank: int | None = None,
) -> FrameColumns:
    """Read the spans in the range from `start_ns` to before `end_ns`, in order of start.

    The duration of an aggregate (`schema.AGGREGATE_KINDS`) is its sum, not its extent. None means
    all. `steps` are the first step and the step after the last. For `inside`, see
    `range_condition`.
    """
    condition, parameters = range_condition(start_ns, end_ns, inside)
    processes = _processes_of(run, rank)
    process_names = None if rank is None else list(processes)
    for column, values in (
        ("kind", kinds),
        (_PHASE, phases),
        ("name", names),
        ("process", process_names),
    ):
        if values is not None:
            condition += f" AND list_contains(?, {column})"
            parameters.append(list(values))
    query = (
        f"SELECT {', '.join(_STORED)}, {_PHASE} AS phase FROM spans WHERE {condition} "  # noqa: S608
        "ORDER BY start_ns, depth, process, log, seq"
    )
    rows: dict[str, Any] = run.reader.sql(query, parameters)
    rows |= {name: DictColumn.encode(rows[name].tolist()) for name in _STRINGS}
    columns = _add_rank_and_step(rows, processes, _ranks_by_process(run))
    return columns if steps is None else _select_steps(columns, *steps)


def summarize_job_spans(
    columns: FrameColumns, by: Sequence[str]
) -> dict[tuple[object, ...], DurationStatistics]:
    """Summarize the finished spans of `read_job_spans` by some of its columns.

    Spans may be nested, so totals over groups can exceed elapsed time.
    """
    duration = columns["duration_ns"]
    finished = ~np.ma.getmaskarray(duration)
    keys = [_objects(columns[name])[finished].tolist() for name in by]
    return summarize_groups(list(zip(*keys, strict=True)), np.ma.getdata(duration)[finished])


def _objects(column: Any) -> Any:
    """Convert a column to Python objects, None where a value is missing."""
    if isinstance(column, DictColumn):
        return column.decode()
    objects = np.ma.getdata(column).astype(object)
    objects[np.ma.getmaskarray(column)] = None
    return objects


def _processes_of(run: Run, rank: int | None) -> dict[str, ProcessInfo]:
    """Return processes by name: all of the job, or those of a rank and its workers."""
    by_name = {process.process: process for process in run.processes}
    if rank is None:
        return by_name
    numbers = number_ranks(run).by_process
    processes_of_rank = [p for name, p in by_name.items() if numbers.get(name) == rank]
    parents = {(process.node, process.pid) for process in processes_of_rank}
    workers = [
        p for n, p in by_name.items() if n not in numbers and (p.node, p.parent_pid) in parents
    ]
    return {process.process: process for process in (*processes_of_rank, *workers)}


def _ranks_by_process(run: Run) -> dict[str, tuple[int | None, Rank | None]]:
    """Return by process its rank, and the training process if it has steps; a worker has those of
    its parent."""
    ranks_by_process: dict[str, tuple[int | None, Rank | None]] = {}
    ranks = {rank.process.process: rank for rank in run.all_ranks}
    numbers = number_ranks(run).by_process
    mains = {(p.node, p.pid): p for p in run.processes if p.role != "dataloader_worker"}
    for process in run.processes:
        parent = mains.get((process.node, process.parent_pid))
        worker = process.role == "dataloader_worker" and parent is not None
        owner = parent if worker and parent is not None else process
        ranks_by_process[process.process] = (numbers.get(owner.process), ranks.get(owner.process))
    return ranks_by_process


def _add_rank_and_step(
    rows: FrameColumns,
    processes: dict[str, ProcessInfo],
    ranks_by_process: dict[str, tuple[int | None, Rank | None]],
) -> dict[str, Any]:
    process, start = rows["process"], rows["start_ns"]
    rank, step = (_missing_numbers(len(start)) for _ in range(2))
    mode = np.full(len(start), -1, dtype=np.int32)
    for code, name in enumerate(process.values):
        number, training = ranks_by_process.get(name or "", (None, None))
        spans_of_process = np.flatnonzero(process.codes == code)
        if number is not None:
            rank[spans_of_process] = number
        if training is not None:
            times = start[spans_of_process]
            steps = find_step_at(times, training.steps)
            step[spans_of_process[steps >= 0]] = steps[steps >= 0]
            mode[spans_of_process] = find_mode_at(times, training)
    roles = [processes[name].role if name in processes else None for name in process.values]
    duration = rows["end_ns"] - start
    is_aggregate = np.isin(rows["kind"].values, list(AGGREGATE_KINDS))[rows["kind"].codes]
    duration[is_aggregate] = rows["value"][is_aggregate]
    threads = np.array([int((log or "0c")[:-1]) for log in rows["log"].values], dtype=np.int64)
    return {
        "rank": rank,
        "step": step,
        "mode": DictColumn(mode, list(MODES)),
        "phase": rows["phase"],
        "kind": rows["kind"],
        "name": rows["name"],
        "start_ns": start,
        "end_ns": rows["end_ns"],
        "duration_ns": duration,
        "depth": rows["depth"],
        "flags": rows["flags"],
        "value": rows["value"],
        "labels": rows["labels"],
        "node": rows["node"],
        "process": process,
        "role": DictColumn(process.codes, roles),
        "thread": threads[rows["log"].codes],
    }


def _missing_numbers(length: int) -> Any:
    """Make a column of missing integers."""
    return np.ma.MaskedArray(np.zeros(length, dtype=np.int64), mask=np.ones(length, dtype=np.bool_))


def _select_steps(columns: dict[str, Any], first: int, end: int) -> dict[str, Any]:
    step = columns["step"]
    number = np.ma.filled(step, -1)
    matching = (number >= first) & (number < end)
    return select_rows(columns, matching)
