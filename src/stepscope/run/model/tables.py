"""Spans, stack samples and profiled compute phases of processes as typed arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema, store
from stepscope.analysis import (
    COMPUTE_PHASES,
    PHASE_OF_KIND,
    ComputeProfile,
    SpanGroup,
    Spans,
    Steps,
    find_losses,
    profile_compute,
)
from stepscope.run.model.clock import ALWAYS, Period
from stepscope.run.model.traces import Trace

SpanRows = dict[str, Any]
"""The spans of one process: each row has those of one log, kind, name and flags, as lists; all of
one `value`, or `values` as a list."""


MAX_GROUPED_VALUES = 16
"""Limit of distinct values by which spans are grouped."""
LARGE_READ = 250_000
"""Spans of which the database keeps more memory than they take."""


def read_spans(
    reader: store.RunReader,
    processes: Sequence[str],
    kinds: Sequence[str],
    *,
    valued: Sequence[str] | None = None,
    condition: str = "true",
    parameters: Sequence[object] = (),
    within: tuple[int, int] | None = None,
    node: str | None = None,
) -> dict[str, SpanRows]:
    """Read spans of some kinds by process; processes without any are omitted.

    Args:
        reader: the run.
        processes: names.
        kinds: of `schema.tables.spans.SPAN_KINDS`.
        valued: kinds whose values are read, None for all; values of the others are 0. Leave out
            kinds whose values are identities: they cost as much as all other columns.
        condition, parameters: SQL condition and the values of its question marks.
        within: see `RunReader.sql`.
        node: the node of the processes, so that files of others are skipped; None for several.
    """
    if not processes:
        return {}
    groups, values = "process, log, kind, name, flags", "list(value) AS values"
    if valued is not None:
        values = f"CAST(kind IN ({_listed(valued)}) AS BIGINT) * value AS value"
        groups += ", 6"
    columns = reader.sql(
        # Numbers alone come out of DuckDB row by row; a string per row would cost far more.
        f"SELECT process, log, kind, name, flags, {values}, list(start_ns) AS start_ns, "  # noqa: S608 - quoted literals
        "list(coalesce(end_ns, start_ns - 1)) AS end_ns FROM spans "
        f"WHERE process IN ({_listed(processes)}) AND kind IN ({_listed(kinds)}) AND {condition} "
        f"GROUP BY {groups}",
        parameters,
        within=within,
        node=node,
    )
    if sum(map(len, columns["start_ns"])) > LARGE_READ:
        reader.release_memory()
    process = columns["process"]
    return {
        name: {column: rows[process == name] for column, rows in columns.items()}
        for name in processes
        if (process == name).any()
    }


class EndedSpans(NamedTuple):
    """Spans of one process and name that ended in a range of time, in no particular order."""

    node: str
    process: str
    name: str
    start_ns: intervals.Int
    duration_ns: intervals.Int


def read_ended_spans(
    reader: store.RunReader, kind: str, period: Period, *, max_ns: int
) -> list[EndedSpans]:
    """Read the spans of one kind that ended in a range of time, by node, process and name.

    Args:
        reader: the run.
        kind: of `schema.tables.spans.SPAN_KINDS`.
        period: the range.
        max_ns: spans that started earlier before the range are not found.
    """
    started = Period(period.start_ns - max_ns, period.end_ns)
    rows = reader.sql(
        "SELECT node, process, name, list(start_ns) AS start_ns, "  # noqa: S608 - only numbers are inserted
        "list(end_ns - start_ns) AS duration_ns FROM spans "
        f"WHERE kind = ? AND {started.condition('start_ns')} AND {period.condition('end_ns')} "
        "GROUP BY node, process, name ORDER BY node, process, name",
        (kind,),
        within=started,
    )
    groups = [rows[column].tolist() for column in ("node", "process", "name")]
    times = [
        [np.asarray(values, dtype=np.int64) for values in rows[column]]
        for column in ("start_ns", "duration_ns")
    ]
    return list(map(EndedSpans, *groups, *times))


def find_processes(
    reader: store.RunReader, kinds: Sequence[str], period: Period, *, flag: int | None = None
) -> set[str]:
    """Find the processes with spans of some kinds, and a flag, that start in a range of time."""
    condition = "true" if flag is None else f"flags & {flag} != 0"
    rows = reader.sql(
        f"SELECT DISTINCT process FROM spans WHERE kind IN ({_listed(kinds)}) "  # noqa: S608 - quoted literals
        f"AND {condition} AND {period.condition('start_ns')}",
        within=period,
    )
    return set(rows["process"].tolist())


def _listed(strings: Sequence[str]) -> str:
    return ", ".join(map(store.literal, strings))


def spans_of(rows: SpanRows | None, last_ns: int | None = None) -> Spans:
    """Build the spans of one process, empty for None.

    Args:
        rows: the rows.
        last_ns: end of unfinished spans; by default that of the last span.
    """
    if rows is None:
        return NO_SPANS
    # DuckDB would carry the lists along while it sorts.
    order = np.lexsort([rows[column] for column in ("flags", "name", "kind", "log")])
    rows = {column: values[order] for column, values in rows.items()}
    start, end = np.concatenate(rows["start_ns"]), np.concatenate(rows["end_ns"])
    unfinished = end < start
    if unfinished.any():
        end[unfinished] = max(start.max(), end.max()) if last_ns is None else last_ns
    order = intervals.nesting_order(start, end)
    groups, group, values = _group_spans(rows, unfinished)
    return Spans(
        start=start[order],
        length=analysis.narrow((end - start)[order]),
        group=group[order],
        groups=groups,
        values=None if values is None else values[order],
    )


def _group_spans(
    rows: SpanRows, unfinished: intervals.Mask
) -> tuple[list[SpanGroup], NDArray[Any], intervals.Int | None]:
    """Group spans by their columns, and by their values where those are few.

    Returns:
        The groups, the group of each span, and the values of the spans if they are many.
    """
    sizes = list(map(len, rows["start_ns"]))
    of_rows = rows.get("values", [])
    groups: list[SpanGroup] = []
    codes, has_many = [], False
    for row, of_row in enumerate(np.split(unfinished, np.cumsum(sizes)[:-1])):
        values = of_rows[row] if len(of_rows) else rows["value"][row : row + 1]
        numbers, code = _number_values(values)
        has_many |= not len(numbers)
        states = (False, True) if of_row.any() else (False,)
        code = np.broadcast_to(code, len(of_row)) + len(groups) + max(1, len(numbers)) * of_row
        codes.append(code.astype(np.min_scalar_type(len(groups) + 2 * MAX_GROUPED_VALUES)))
        groups += [
            SpanGroup(
                thread=int(rows["log"][row][:-1]),
                kind=str(rows["kind"][row]),
                name=str(rows["name"][row]),
                flags=int(rows["flags"][row]),
                unfinished=state,
                value=number,
            )
            for state in states
            for number in numbers.tolist() or [0]
        ]
    return groups, np.concatenate(codes), np.concatenate(of_rows) if has_many else None


def _number_values(values: intervals.Int) -> tuple[intervals.Int, NDArray[Any]]:
    """Return the distinct values, and the number of each; none, and zeros, where they are many."""
    if (values == values[0]).all():
        return values[:1], np.zeros(1, dtype=np.int64)
    if len(np.unique(values[: 2 * MAX_GROUPED_VALUES])) <= MAX_GROUPED_VALUES:
        numbers, code = np.unique(values, return_inverse=True)
        if len(numbers) <= MAX_GROUPED_VALUES:
            return numbers, code
    return values[:0], np.zeros(1, dtype=np.int64)


_NO_TIMES = np.empty(0, dtype=np.int64)
NO_SPANS = Spans(start=_NO_TIMES, length=_NO_TIMES, group=_NO_TIMES, groups=[])
_NEVER = np.iinfo(np.int64).max


def count_spans(reader: store.RunReader, node: str, condition: str = "true") -> int:
    """Count the spans of a node: without a condition, in the footers of its files."""
    query = f"SELECT count(*) AS n FROM spans WHERE {condition}"  # noqa: S608 - quoted literals
    return int(reader.sql(query, node=node)["n"][0])


def load_spans(
    reader: store.RunReader,
    processes: Sequence[str],
    kinds: Sequence[str],
    *,
    node: str,
    period: Period = ALWAYS,
) -> dict[str, Spans]:
    """Load all spans of some kinds of processes of a node that reach into a range of time;
    processes without any are omitted.

    Those of a long run are loaded in ranges of time: one query takes several times the memory of
    its result.
    """
    of_processes = f"process IN ({_listed(processes)}) AND kind IN ({_listed(kinds)})"
    reaching = _reaching_into(period)
    count = count_spans(reader, node)
    if count > LARGE_READ:
        count = count_spans(reader, node, f"{of_processes} AND {reaching}")
    borders: list[int] = []
    if count > LARGE_READ:
        first, last = reader.times("spans")[node]["start_ns"]
        extent = max(first, period.start_ns), min(last, period.end_ns)
        borders = np.linspace(*extent, 2 + count // LARGE_READ).astype(np.int64)[1:-1].tolist()
    parts: dict[str, list[Spans]] = {}
    for part in map(Period, [ALWAYS.start_ns, *borders], [*borders, period.end_ns]):
        rows_by_process = read_spans(
            reader,
            processes,
            kinds,
            condition=f"{part.condition('start_ns')} AND {reaching}",
            within=part,
            node=node,
        )
        for process, rows in rows_by_process.items():
            parts.setdefault(process, []).append(spans_of(rows, last_ns=_NEVER))
    if borders:
        reader.release_memory()
    spans = {process: _join_parts(parts.pop(process)) for process in list(parts)}
    for process, joined in spans.items():
        if any(group.unfinished for group in joined.groups):
            last_ns = None if period == ALWAYS else _find_last(reader, process, kinds)
            spans[process] = _end_with_last(joined, last_ns)
    return spans


def _reaching_into(period: Period) -> str:
    """Build the condition of the spans that reach into a range of time."""
    if period == ALWAYS:
        return "true"
    start_ns, end_ns = period
    return f"start_ns < {end_ns} AND (end_ns > {start_ns} OR end_ns IS NULL)"


def _find_last(reader: store.RunReader, process: str, kinds: Sequence[str]) -> int:
    """Find the end of the last span of some kinds of a process."""
    query = (
        "SELECT max(coalesce(end_ns, start_ns)) AS last_ns FROM spans "  # noqa: S608 - quoted literals
        f"WHERE process = {store.literal(process)} AND kind IN ({_listed(kinds)})"
    )
    return int(reader.sql(query)["last_ns"][0])


def _join_parts(parts: list[Spans]) -> Spans:
    """Join the spans of ranges of time. The list is empty afterwards."""
    return Spans.join(parts.pop(0) for _ in range(len(parts)))


def _end_with_last(spans: Spans, last_ns: int | None) -> Spans:
    """Let unfinished spans end at a time, by default with the last of the spans."""
    unfinished = spans.unfinished
    if last_ns is None:
        last_ns = max(spans.start[-1], spans.end[~unfinished].max(initial=0))
    length = spans.duration
    length[unfinished] = last_ns - spans.start[unfinished]
    return replace(spans, length=analysis.narrow(length))


def sampling_period_ns(process: schema.ProcessInfo) -> int | None:
    """Return the period of the stack sampler of a process; None where unknown."""
    periods = [sampler.period_ns for sampler in process.facts_of(schema.StackSamplerFact)]
    return periods[0] if periods else None


OF_STEP_SAMPLER = "NOT regexp_full_match(log, '[0-9]+[se]')"
"""Condition of stack samples that are not of the start of a process, nor entries of a thread."""


def of_thread(thread: int | None) -> str:
    """Build the condition of all stack samples of a training thread: those of the start and of the
    steps, and its entries; without entries for None."""
    entries = "false" if thread is None else f"log = '{thread}e'"
    return f"NOT regexp_full_match(log, '[0-9]+e') OR {entries}"


def read_stack_samples(
    reader: store.RunReader,
    process: schema.ProcessInfo,
    condition: str = OF_STEP_SAMPLER,
    period: Period = ALWAYS,
) -> analysis.StackSamples:
    """Read the stack samples of one process in a range of time; by default those of its sampler of
    steps, or of work for the job."""
    sampling_ns = sampling_period_ns(process) or 0
    # The weight of a sample depends on the one before it.
    near = Period(period.start_ns - analysis.MAX_WEIGHT_PERIODS * sampling_ns, period.end_ns)
    rows = reader.table(
        "stacks",
        columns=["t_ns", "stack", "user_line"],
        condition=f"process = ? AND ({condition}) AND {near.condition('t_ns')}",
        parameters=(process.process,),
        order_by="t_ns",
        encoded=("stack",),
    )
    samples = analysis.StackSamples(
        t_ns=rows["t_ns"],
        weight_ns=analysis.weigh_samples(rows["t_ns"], sampling_ns),
        stack=rows["stack"].codes,
        stacks=[value or "" for value in rows["stack"].values],
        user_line=rows["user_line"],
        sources={
            (source.file, source.line, source.call): source.text
            for source in process.facts_of(schema.SourceLineFact)
        },
        functions={
            (function.file, function.name): frozenset(function.uses)
            for function in process.facts_of(schema.FunctionFact)
        },
        definitions={
            (function.file, function.name): function.line
            for function in process.facts_of(schema.FunctionFact)
            if function.line
        },
    )
    return samples if period == ALWAYS else samples.take(period.contains(samples.t_ns))


def find_stack_samples(
    reader: store.RunReader, patterns: Sequence[str], period: Period
) -> dict[str, intervals.Int]:
    """Find the times of the samples in a range whose stack matches a pattern, by process.

    A process that was sampled in the range is present even if no sample matches.

    Args:
        reader: the run.
        patterns: of SQL's LIKE.
        period: the range of time.
    """
    matches = " OR ".join("stack LIKE ?" for _ in patterns)
    rows = reader.sql(
        f"SELECT process, coalesce(list(t_ns) FILTER ({matches}), []) AS t_ns FROM stacks "  # noqa: S608 - only question marks and numbers are inserted
        f"WHERE {period.condition('t_ns')} AND {OF_STEP_SAMPLER} GROUP BY process",
        patterns,
        within=period,
    )
    return {
        process: np.asarray(rows["t_ns"][row], dtype=np.int64)
        for row, process in enumerate(rows["process"].tolist())
    }


_PROFILED = ("name", "start_ns", "duration_ns", "host_self_ns", "parent")


def profile_window(
    trace: Trace, spans: Spans, steps: Steps, windows: intervals.Intervals
) -> ComputeProfile | None:
    """Profile the compute phases of a process inside its windows; None without device work.

    Args:
        trace: trace of a window.
        spans, steps: those of the process.
        windows: when the windows were open.
    """
    kinds = [kind for kind, phase in PHASE_OF_KIND.items() if phase in COMPUTE_PHASES]
    # The profiler starts and stops between steps, so a window holds whole phases.
    inside = spans.take(intervals.contains(windows, spans.start))
    phases = {PHASE_OF_KIND[kind]: inside.of(kind).intervals for kind in kinds}
    loss = find_losses(spans, steps)
    recorded = intervals.contains(windows, loss.start)
    phases["loss"] = intervals.Intervals(loss.start[recorded], loss.end[recorded])
    step_count = int(intervals.contains(windows, steps.end - 1).sum())
    return profile_compute(
        trace.columns("operators", _PROFILED),
        trace.device_intervals(),
        phases,
        step_count=max(1, step_count),
    )
