"""Spans of the job's processes as columns, and times of its phases.

A span's phase is the phase of the step that its kind is one of (`annotation` is none); of a span
that the device executed it is its name; of an imported one that is neither, what the other tool
called it. A span's step is the one of its rank in which it began, counted from 0; a worker's is
that of the process it works for. Outside steps and in evaluation there is none. Its mode is the
one of its rank at its start (`MODES`).

Times of the phases of a job:

    periods   initialization, training, finalization: they divide the job, for all ranks together
    modes     train, eval, predict of one rank; time before its first and after its last step, and
              what evaluation leaves outside of steps, has none
    phases    the phases of the steps of one rank (`analysis.PHASES`); they divide its mode train,
              or predict where nothing trains

Where a device computes, time belongs to the phase of the device; see `analysis.steps.phases`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, schema, spool, store
from stepscope.intervals import (
    EMPTY,
    Int,
    Intervals,
    contains,
    find_gaps,
    overlap,
    subtract,
    union,
    unite,
)
from stepscope.run.frames import FrameColumns, select_rows
from stepscope.run.job.times import JobStatistics
from stepscope.run.model.rank_numbers import number_ranks
from stepscope.run.model.run import Rank, Run
from stepscope.run.model.tables import read_spans, spans_of

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
    + " ".join(
        f"WHEN kind = '{kind}' THEN '{phase}'" for kind, phase in analysis.PHASE_OF_KIND.items()
    )
    + f" WHEN kind = 'device' THEN name ELSE {_LABEL} END"
)


def list_phases(reader: store.RunReader) -> list[str]:
    """List the phases of the spans of a run."""
    query = f"SELECT DISTINCT {_PHASE} AS phase FROM spans"  # noqa: S608
    return sorted(phase for phase in reader.sql(query)["phase"].tolist() if phase is not None)


def list_names(reader: store.RunReader, table: str) -> list[str]:
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
    rows |= {name: store.DictColumn.encode(rows[name].tolist()) for name in _STRINGS}
    columns = _add_rank_and_step(rows, processes, _ranks_by_process(run))
    return columns if steps is None else _select_steps(columns, *steps)


def summarize_job_spans(
    columns: FrameColumns, by: Sequence[str]
) -> dict[tuple[object, ...], analysis.DurationStatistics]:
    """Summarize the finished spans of `read_job_spans` by some of its columns.

    Spans may be nested, so totals over groups can exceed elapsed time.
    """
    duration = columns["duration_ns"]
    finished = ~np.ma.getmaskarray(duration)
    keys = [_objects(columns[name])[finished].tolist() for name in by]
    return analysis.summarize_groups(
        list(zip(*keys, strict=True)), np.ma.getdata(duration)[finished]
    )


def _objects(column: Any) -> Any:
    """Convert a column to Python objects, None where a value is missing."""
    if isinstance(column, store.DictColumn):
        return column.decode()
    objects = np.ma.getdata(column).astype(object)
    objects[np.ma.getmaskarray(column)] = None
    return objects


def _processes_of(run: Run, rank: int | None) -> dict[str, schema.ProcessInfo]:
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
    processes: dict[str, schema.ProcessInfo],
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
            steps = analysis.find_step_at(times, training.steps)
            step[spans_of_process[steps >= 0]] = steps[steps >= 0]
            mode[spans_of_process] = find_mode_at(times, training)
    roles = [processes[name].role if name in processes else None for name in process.values]
    duration = rows["end_ns"] - start
    is_aggregate = np.isin(rows["kind"].values, list(schema.AGGREGATE_KINDS))[rows["kind"].codes]
    duration[is_aggregate] = rows["value"][is_aggregate]
    threads = np.array([int((log or "0c")[:-1]) for log in rows["log"].values], dtype=np.int64)
    return {
        "rank": rank,
        "step": step,
        "mode": store.DictColumn(mode, list(MODES)),
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
        "role": store.DictColumn(process.codes, roles),
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


PERIODS = ("initialization", "training", "finalization")
MODES = ("train", "eval", "predict")
TRAINING_PHASES = (*PERIODS, *MODES, *analysis.PHASES)
"""Names of all of them."""
PARTS = ("before", "inside", "between", "after")
"""Parts of a job by the intervals of one phase."""


def find_periods(job: JobStatistics) -> dict[str, Intervals]:
    """Find the periods of a job; none without steps."""
    borders = (job.start_ns, job.training_start_ns, job.training_end_ns, job.end_ns)
    times = [time for time in borders if time is not None]
    if len(times) < len(borders):
        return {}
    return {
        period: _one_interval(start, max(start, end))
        for period, start, end in zip(PERIODS, times[:-1], times[1:], strict=True)
    }


def find_modes(rank: Rank) -> dict[str, Intervals]:
    """Find the time of a rank in each mode, as unions that share no time.

    Prediction is what the script or the framework marks as such; other evaluation is `eval`. All
    steps of a job in which nothing trains are prediction.
    """
    steps, marks = rank.steps, rank.spans.of("mode")
    rows = [row for row in range(len(marks)) if marks.name_of(row) == "PREDICT"]
    marked = union(Intervals(marks.start[rows], marks.end[rows]))
    evaluation = union(steps.evaluation)
    if steps.is_inference:
        return {"train": EMPTY, "eval": EMPTY, "predict": _find_step_time(steps)}
    return {
        "train": _find_step_time(steps),
        "eval": subtract(evaluation, marked),
        "predict": subtract(evaluation, subtract(evaluation, marked)),
    }


def _find_step_time(steps: analysis.Steps) -> Intervals:
    """Find the time of the steps without evaluation."""
    return subtract(union(Intervals(steps.start, steps.end)), union(steps.evaluation))


def find_mode_at(times: Int, rank: Rank) -> NDArray[np.int32]:
    """Find the index in `MODES` of the mode of a rank at each time, -1 for none."""
    codes = np.full(len(times), -1, dtype=np.int32)
    for code, intervals in enumerate(find_modes(rank).values()):
        codes[contains(intervals, times)] = code
    return codes


def find_step_phases(rank: Rank) -> dict[str, Intervals]:
    """Find the time of a rank in each phase of its steps, as unions that divide its mode `train`,
    or `predict` where nothing trains.

    Their lengths are those of `Steps.phase_ns`.
    """
    phases = dict.fromkeys(analysis.PHASES, EMPTY)
    remaining = _find_step_time(rank.steps)
    for phase, intervals in analysis.find_phase_intervals(rank.spans, rank.steps):
        rest = subtract(remaining, union(intervals))
        phases[phase] = unite(phases[phase], subtract(remaining, rest))
        remaining = rest
    phases["other"] = remaining
    return phases


def divide_by_phase(
    intervals: Intervals, extent: tuple[int, int]
) -> Iterator[tuple[str, int, int]]:
    """Yield the pieces of an extent in order of time: `before` the first interval of a phase,
    `inside` one, `between` two, and `after` the last; each with its start and end. Nothing for a
    phase without an interval."""
    inside = union(intervals)
    if not len(inside.start):
        return
    gaps = find_gaps(inside, extent)
    pieces = [("inside", *times) for times in _pairs(inside)]
    for start, end in _pairs(gaps):
        if end <= inside.start[0]:
            part = "before"
        else:
            part = "after" if start >= inside.end[-1] else "between"
        pieces.append((part, start, end))
    yield from sorted(pieces, key=lambda piece: piece[1:])


def _pairs(intervals: Intervals) -> list[tuple[int, int]]:
    return list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))


def _one_interval(start: int, end: int) -> Intervals:
    return Intervals(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))


def measure_callbacks(rank: Rank) -> dict[str, int]:
    """Measure the calls on the training thread in the measured steps, without evaluation.

    Returns:
        Nanoseconds by class and method, such as `ProgressBar.on_train_batch_end`.
    """
    steps, process = rank.steps, rank.process.process
    condition = f"starts_with(name, '{spool.CALLBACK_PREFIX}')"
    rows = read_spans(rank.run.reader, [process], ["annotation"], condition=condition)
    spans = spans_of(rows.get(process))
    spans = spans.on_thread(steps.thread)
    is_measured = steps.measured()
    measured = union(Intervals(steps.start[is_measured], steps.end[is_measured]))
    inside = overlap(spans.intervals, subtract(measured, steps.evaluation))
    totals = Counter[str]()
    for name in np.unique(spans.name).tolist():
        label = str(spans.names[name]).removeprefix(spool.CALLBACK_PREFIX)
        totals[label] += int(inside[spans.name == name].sum())
    return dict(totals)
