"""Steps, their exposed exchange, and rows of tensors of a growing run, each returned once.

Steps of a growing run until their exposed exchange is known. Collectives are written some seconds
later than spans: a process dumps its recorder every few seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec
import numpy as np
from msgspec.structs import replace

from stepscope import analysis, intervals, rules, schema, store
from stepscope.run import (
    Period,
    Run,
    SpanRows,
    find_processes,
    measure_step_exchange,
    read_calls,
    read_spans,
    select_scalars,
    select_tensor_values,
    select_tensors,
    spans_of,
)

KINDS = (*analysis.PHASE_OF_KIND, "step", "device")
LONG_KINDS = ("mode", "window")
"""Kinds that may start long before the step and are recorded at their end."""
LOOK_BACK_NS = 600_000_000_000
MAX_GROUP_SPREAD_NS = 30_000_000_000
"""One query reads processes whose last steps ended within this time."""
_FIRST = -(1 << 62)


class _Position(msgspec.Struct):
    """Position up to which a process has been read."""

    boundary_ns: int = _FIRST
    """End of its last step."""
    count: int = 0
    marked: bool = False
    """True if the script marks its steps: without a mark there is no step."""
    stepping: bool = False
    """True if a step ended in the previous range."""
    first_predictions: frozenset[analysis.ModuleMode] | None = None
    """Modules that predicted in its first step; None before that."""


class StepRows(msgspec.Struct, frozen=True):
    """Rows of one range of a run."""

    spans: dict[str, SpanRows]
    """Rows by process."""
    processes: dict[str, schema.ProcessInfo]
    end_ns: int
    final: bool


class StepFinder:
    """Incremental search for the steps of every training process, range by range."""

    def __init__(self, reader: store.RunReader) -> None:
        self._reader = reader
        self._positions: dict[str, _Position] = {}
        self._read_until = _FIRST
        self.unsettled = UnsettledSteps(reader)
        """Steps that were found, until their exchange is known."""
        self._source = len(analysis.STEP_SOURCES) - 1
        """Index in `STEP_SOURCES` of what ends steps: the first that any process has had."""

    def read(
        self, processes: Iterable[schema.ProcessInfo], end_ns: int, *, final: bool
    ) -> StepRows:
        """Read the next range.

        Args:
            processes: training processes.
            end_ns: end of the range.
            final: nothing follows. Otherwise the last optimizer step is held back: only later spans
                tell if a training step ended there.
        """
        by_name = {process.process: process for process in processes}
        since = min(max(self._read_until - LOOK_BACK_NS, _FIRST), end_ns)
        stepping = {name for name, position in self._positions.items() if position.stepping}
        if self._only_predicts or by_name.keys() - stepping:
            stepping |= self._find_stepping(Period(since, end_ns), final=final)
        if final:  # steps that were held back are complete now
            stepping |= self._positions.keys()
        if self._only_predicts:
            stepping = {n for n in stepping & by_name.keys() if not by_name[n].may_hide_training}
        spans = self._read(sorted(stepping & by_name.keys()), end_ns)
        return StepRows(spans, by_name, end_ns, final)

    @property
    def _only_predicts(self) -> bool:
        """True while no process has trained."""
        return "forward" in analysis.STEP_SOURCES[self._source]

    def _find_stepping(self, period: Period, *, final: bool) -> set[str]:
        """Find the processes with spans that may end steps, of the first source that has any."""
        for index, kinds in enumerate(analysis.STEP_SOURCES[: self._source + 1]):
            # Where an optimizer exists, a growing job that has only predicted may yet train.
            is_open = "backward" in kinds or ("forward" in kinds and not final)
            flag = analysis.FLAG_NO_OPTIMIZER if is_open else None
            ending = analysis.PREDICTION_KINDS if "forward" in kinds else kinds
            ended = find_processes(self._reader, ending, period, flag=flag)
            if ended:
                if self._only_predicts and index < self._source:
                    self._positions.clear()  # the predictions were no steps of the training
                self._source = index
                return ended
        return set()

    def find(self, rows: StepRows) -> list[rules.RankStepTimes]:
        """Find the steps that ended in a range and were not found before, by rank."""
        self.unsettled.discard(self._read_until)
        self._read_until = max(self._read_until, rows.end_ns)
        steps_by_rank = []
        titles = schema.name_processes(rows.processes.values())
        for name, read in rows.spans.items():
            position = self._positions.setdefault(name, _Position())
            spans = spans_of(read)
            steps = self._find(position, spans, rows.end_ns, final=rows.final)
            position.stepping = steps is not None
            if steps is not None:
                times = _rank_steps(
                    rows.processes[name], titles[name], steps, position.count - len(steps)
                )
                steps_by_rank.append(times)
                self.unsettled.add(times, spans, steps)
        return sorted(steps_by_rank, key=lambda times: (times.process.rank or 0, times.process.pid))

    def _find(
        self, position: _Position, spans: analysis.Spans, end_ns: int, *, final: bool
    ) -> analysis.Steps | None:
        is_long = spans.is_kind(*LONG_KINDS)
        is_recent = spans.start >= position.boundary_ns
        is_new_mark = spans.is_kind("step") & (spans.start > position.boundary_ns)
        if position.marked and not is_new_mark.any():
            return None
        spans = spans.take(is_recent | (is_long & (spans.end > position.boundary_ns)))
        follows_steps = position.boundary_ns != _FIRST
        steps = analysis.find_steps(
            spans, analysis.STEP_SOURCES[self._source], first_predictions=position.first_predictions
        )
        if steps is None:
            return None
        if steps.is_inference and not (follows_steps or final) and steps.fetches.sum() == 1:
            return None  # the only batch, or the first of many
        position.marked = steps.source == "marked"
        count = int(np.searchsorted(steps.end, end_ns))
        if not final and not position.marked:
            count = min(count, len(steps) - 1)
        if count <= 0:
            return None
        steps = _first_ones(steps, count)
        if position.boundary_ns != _FIRST and not _starts_model(spans, steps):
            _start_at(steps, position.boundary_ns)
        if not follows_steps:
            position.first_predictions = analysis.find_first_predictions(
                spans, steps.thread, int(steps.end[0])
            )
        position.boundary_ns = int(steps.end[-1])
        position.count += count
        return steps

    def _read(self, processes: list[str], end_ns: int) -> dict[str, SpanRows]:
        """Read the spans of processes since their last steps that start before a time."""
        if not processes:
            return {}
        ends = {
            n: self._positions[n].boundary_ns if n in self._positions else _FIRST for n in processes
        }
        span_rows: dict[str, SpanRows] = {}
        for group in _group_by_position(ends):
            since = min(ends[name] for name in group)
            span_rows |= self._spans(group, KINDS, since, end_ns)
        back = max(min(ends.values()) - LOOK_BACK_NS, _FIRST)
        for name, rows in self._spans(processes, LONG_KINDS, back, end_ns).items():
            short = span_rows.get(name, {})
            span_rows[name] = {c: np.concatenate([short.get(c, v[:0]), v]) for c, v in rows.items()}
        return span_rows

    def _spans(
        self, processes: list[str], kinds: tuple[str, ...], since: int, end_ns: int
    ) -> dict[str, SpanRows]:
        return read_spans(
            self._reader,
            processes,
            kinds,
            valued=analysis.VALUED_KINDS,
            condition="start_ns >= ? AND start_ns < ?",
            parameters=(since, end_ns),
            within=(since, end_ns),
        )


def _group_by_position(ends: dict[str, int]) -> list[list[str]]:
    """Group processes whose last steps ended at about the same time.

    A process that started late or ended early is far behind; the others are not read from there.
    """
    groups: list[list[str]] = []
    first = 0
    for name in sorted(ends, key=ends.__getitem__):
        if not groups or ends[name] > first + MAX_GROUP_SPREAD_NS:
            groups.append([])
            first = ends[name]
        groups[-1].append(name)
    return groups


def _first_ones(steps: analysis.Steps, count: int) -> analysis.Steps:
    return analysis.Steps(
        source=steps.source,
        clock=steps.clock,
        thread=steps.thread,
        start=steps.start[:count].copy(),
        end=steps.end[:count],
        wall_ns=steps.wall_ns[:count].copy(),
        phase_ns={p: ns[:count].copy() for p, ns in steps.phase_ns.items()},
        fetches=steps.fetches[:count],
        profiled=steps.profiled[:count],
        evaluation=steps.evaluation,
        range_ns=None if steps.range_ns is None else steps.range_ns[:count],
    )


def _starts_model(spans: analysis.Spans, steps: analysis.Steps) -> bool:
    """Return True if the first step is the first one of a further model."""
    is_new = spans.is_kind("optimizer") & spans.has_flag(analysis.FLAG_NEW_MODEL)
    return bool((spans.start[is_new] == steps.start[0]).any())


def _start_at(steps: analysis.Steps, boundary_ns: int) -> None:
    """Extend the first step to the end of the previous one."""
    missed = int(steps.start[0]) - boundary_ns
    steps.start[0] = boundary_ns
    steps.wall_ns[0] += missed
    steps.phase_ns["other"][0] += missed


def _rank_steps(
    process: schema.ProcessInfo, rank: str, steps: analysis.Steps, first: int
) -> rules.RankStepTimes:
    return rules.RankStepTimes(
        rank=rank,
        node=process.node,
        process=process,
        first=first,
        start_ns=steps.start,
        end_ns=steps.end,
        wall_ns=steps.wall_ns,
        phase_ns=steps.phase_ns,
        profiled=steps.profiled,
        range_ns=steps.range_ns,
    )


def read_modes(
    reader: store.RunReader, processes: Iterable[schema.ProcessInfo], period: Period
) -> list[rules.ModeTimes]:
    """Read the steps that imported files record as ranges and that start in a range of time."""
    imported = {process.process for process in processes if process.facts_of(schema.ImportedFact)}
    if not imported:
        return []
    rows = reader.sql(
        "SELECT process, name, min(start_ns) AS start_ns, max(end_ns) AS end_ns, "  # noqa: S608 - only numbers are inserted
        "sum(end_ns - start_ns) AS total_ns FROM spans "
        f"WHERE kind = 'mode' AND end_ns IS NOT NULL AND {period.condition('start_ns')} "
        "GROUP BY process, name ORDER BY process, name",
        within=period,
    )
    return [
        rules.ModeTimes(
            process=process,
            mode=name,
            start_ns=int(start_ns),
            end_ns=int(end_ns),
            total_ns=int(total_ns),
        )
        for process, name, start_ns, end_ns, total_ns in zip(*rows.values(), strict=True)
        if process in imported
    ]


MAX_WAIT_NS = 20_000_000_000
"""Collectives that were not written so long after a step were not recorded."""
CALL_LOOK_BACK_NS = 1_000_000_000
"""The call before a step tells whether its first one is missing."""


class _Chunk(msgspec.Struct, frozen=True):
    """Steps of one rank that were found together."""

    times: rules.RankStepTimes
    spans: analysis.Spans
    """Backward passes and collectives of the training thread."""
    is_on_host: bool
    """True if phases were timed by the clock of the host."""


class UnsettledSteps:
    """Steps that were found, of which each is returned once."""

    def __init__(self, reader: store.RunReader) -> None:
        self._reader = reader
        self._chunks: dict[str, list[_Chunk]] = defaultdict(list)

    def add(self, times: rules.RankStepTimes, spans: analysis.Spans, steps: analysis.Steps) -> None:
        """Add steps of a rank, with the spans of its process."""
        on_thread = spans.on_thread(steps.thread).of("backward", "communication")
        chunk = _Chunk(times, on_thread, steps.clock == "host")
        self._chunks[times.process.process].append(chunk)

    def discard(self, end_ns: int) -> None:
        """Discard the steps that `settle` would have returned for a range with this end.

        No rule reads settled steps then.
        """
        for name, chunks in self._chunks.items():
            self._chunks[name] = [
                chunk for chunk in chunks if chunk.times.end_ns[-1] >= end_ns - MAX_WAIT_NS
            ]

    def settle(self, end_ns: int, *, final: bool) -> list[rules.RankStepTimes]:
        """Return the steps whose exchange is known or will not be, in the order of their numbers.

        Args:
            end_ns: end of the range of time that was read.
            final: nothing follows.
        """
        waiting = {name: chunks for name, chunks in self._chunks.items() if chunks}
        recorded = [name for name, chunks in waiting.items() if _has_recorder(chunks[0])]
        starts = [int(waiting[name][0].times.start_ns[0]) for name in recorded]
        calls = read_calls(self._reader, recorded, min(starts, default=0) - CALL_LOOK_BACK_NS)
        settled = []
        for name, chunks in waiting.items():
            of_process = calls.get(name)
            until_ns = end_ns - MAX_WAIT_NS
            if final or name not in recorded:
                until_ns = np.iinfo(np.int64).max
            elif of_process is not None:
                until_ns = max(until_ns, int(of_process.t_ns[-1]))
            rest = []
            for chunk in chunks:
                count = int(np.searchsorted(chunk.times.end_ns, until_ns))
                if count:
                    settled.append(_settle(chunk, count, of_process))
                if count < len(chunk.times):
                    rest.append(replace(chunk, times=chunk.times.between(count, len(chunk.times))))
            self._chunks[name] = rest
        return settled


def _has_recorder(chunk: _Chunk) -> bool:
    facts = chunk.times.process.facts_of(schema.FlightRecorderFact)
    return chunk.is_on_host and any(fact.is_available for fact in facts)


def _settle(chunk: _Chunk, count: int, calls: analysis.RecordedCalls | None) -> rules.RankStepTimes:
    times = chunk.times.between(0, count)
    exchange = np.full(count, np.nan)
    if calls is not None:
        exchange = measure_step_exchange(
            chunk.spans, intervals.Intervals(times.start_ns, times.end_ns), calls
        )
    return replace(times, exchange_ns=exchange)


class NewRows:
    """Rows of `tensor_statistics`, `tensor_values` and `scalars`, each returned once.

    A row can be written long after its time: statistics on a GPU are read at a later recorded step.
    So the rows of a range of time are not enough: the last number of each log says which rows
    before the range are new.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[tuple[str, str], int]] = {}
        """Last number by table or collection of values, process and log."""
        self._until_ns: dict[str, int] = {}
        """By table or collection of values, end of the time whose rows were returned."""

    def tensors(self, run: Run, *, final: bool) -> list[analysis.TensorSeries]:
        """Return the new rows before the end of the run's period, or all new rows if `final`."""
        if not run.reader.has("tensor_statistics"):
            return []
        condition = self._condition("tensor_statistics", run, final=final)
        return select_tensors(run, *condition)

    def values(self, run: Run, collection: str, *, final: bool) -> list[analysis.TensorValues]:
        """Return the new small matrices of a collection, as `tensors` does."""
        if not run.reader.has("tensor_values"):
            return []
        condition = self._condition("tensor_values", run, final=final, collection=collection)
        return select_tensor_values(run, *condition)

    def scalars(self, run: Run, *, final: bool) -> list[analysis.LoggedScalars]:
        """Return the new values, as `tensors` does."""
        if not run.reader.has("scalars"):
            return []
        return select_scalars(run, *self._condition("scalars", run, final=final))

    def _condition(
        self, table: str, run: Run, *, final: bool, collection: str | None = None
    ) -> tuple[str, tuple[object, ...]]:
        """Return the SQL condition of the new rows, and count them as returned.

        Args:
            collection: only rows of this one, which are counted by themselves.
        """
        source = table if collection is None else f"{table} {collection}"
        last = self._last.setdefault(source, {})
        until_ns, end_ns = self._until_ns.get(source), run.period.end_ns
        conditions = [] if final else [f"t_ns < {end_ns}"]
        parameters: tuple[object, ...] = ()
        if collection is not None:
            conditions.append("collection = ?")
            parameters = (collection,)
        if until_ns is not None:
            returned, limits = _up_to(last)
            parameters += limits
            conditions.append(f"NOT (t_ns < {until_ns} AND {returned})")
        condition = " AND ".join(conditions) or "TRUE"
        rows = run.reader.sql(
            f"SELECT process, log, min(seq) AS first, max(seq) AS seq FROM {table} "  # noqa: S608 - names of ours
            f"WHERE {condition} GROUP BY process, log",
            parameters,
        )
        new = {
            (process, log): int(number)
            for process, log, number in zip(rows["process"], rows["log"], rows["seq"], strict=True)
        }
        for key, number in new.items():
            last[key] = max(number, last.get(key, -1))
        self._until_ns[source] = end_ns
        if not new:
            return "FALSE", ()
        # With the first number, the store skips most of what was returned: rows are wide, unlike
        # these columns. Rows that are written before the next query are those of a later call.
        counted, limits = _up_to(new)
        first = int(rows["first"].min())
        return f"seq >= {first} AND {condition} AND {counted}", (*parameters, *limits)


def _up_to(last: dict[tuple[str, str], int]) -> tuple[str, tuple[object, ...]]:
    """Return the SQL condition of the rows of logs up to a number each, with its parameters."""
    condition = " OR ".join(["(process = ? AND log = ? AND seq <= ?)"] * len(last)) or "FALSE"
    return f"({condition})", tuple(value for (key, n) in last.items() for value in (*key, n))
