"""Steps of a growing run, each found once; only rows since the last step are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepscope.analysis import (
    FLAG_NEW_MODEL,
    FLAG_NO_OPTIMIZER,
    PHASE_OF_KIND,
    STEP_SOURCES,
    VALUED_KINDS,
    Spans,
    Steps,
    find_steps,
)
from stepscope.rule_feed.unsettled_steps import UnsettledSteps
from stepscope.rules import RankStepTimes
from stepscope.run import Period, SpanRows, find_processes, read_spans, spans_of
from stepscope.schema import ProcessInfo
from stepscope.store import RunReader

KINDS = (*PHASE_OF_KIND, "step", "device")
LONG_KINDS = ("mode", "window")
"""Kinds that may start long before the step and are recorded at their end."""
LOOK_BACK_NS = 600_000_000_000
MAX_GROUP_SPREAD_NS = 30_000_000_000
"""One query reads processes whose last steps ended within this time."""
_FIRST = -(1 << 62)


@dataclass(slots=True)
class _Position:
    """Position up to which a process has been read."""

    boundary_ns: int = _FIRST
    """End of its last step."""
    count: int = 0
    marked: bool = False
    """True if the script marks its steps: without a mark there is no step."""
    stepping: bool = False
    """True if a step ended in the previous range."""


@dataclass(frozen=True, slots=True)
class StepRows:
    """Rows of one range of a run."""

    spans: dict[str, SpanRows]
    """Rows by process."""
    processes: dict[str, ProcessInfo]
    end_ns: int
    final: bool


class StepFinder:
    """Incremental search for the steps of every training process, range by range."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._positions: dict[str, _Position] = {}
        self._read_until = _FIRST
        self.unsettled = UnsettledSteps(reader)
        """Steps that were found, until their exchange is known."""
        self._source = len(STEP_SOURCES) - 1
        """Index in `STEP_SOURCES` of what ends steps: the first that any process has had."""

    def read(self, processes: Iterable[ProcessInfo], end_ns: int, *, final: bool) -> StepRows:
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
        if by_name.keys() - stepping:
            period = Period(since, end_ns)
            for index, kinds in enumerate(STEP_SOURCES[: self._source + 1]):
                flag = FLAG_NO_OPTIMIZER if "backward" in kinds else None
                ended = find_processes(self._reader, kinds, period, flag=flag)
                stepping |= ended
                if ended:
                    self._source = index
                    break
        if final:  # steps that were held back are complete now
            stepping |= self._positions.keys()
        spans = self._read(sorted(stepping & by_name.keys()), end_ns)
        return StepRows(spans, by_name, end_ns, final)

    def find(self, rows: StepRows) -> list[RankStepTimes]:
        """Find the steps that ended in a range and were not found before, by rank."""
        self.unsettled.discard(self._read_until)
        self._read_until = max(self._read_until, rows.end_ns)
        steps_by_rank = []
        for name, read in rows.spans.items():
            position = self._positions.setdefault(name, _Position())
            spans = spans_of(read)
            steps = self._find(position, spans, rows.end_ns, final=rows.final)
            position.stepping = steps is not None
            if steps is not None:
                times = _rank_steps(rows.processes[name], steps, position.count - len(steps))
                steps_by_rank.append(times)
                self.unsettled.add(times, spans, steps)
        return sorted(steps_by_rank, key=lambda times: (times.process.rank or 0, times.process.pid))

    def _find(self, position: _Position, spans: Spans, end_ns: int, *, final: bool) -> Steps | None:
        is_long = spans.is_kind(*LONG_KINDS)
        is_mark = spans.is_kind("step")
        spans = spans.take(
            (spans.start > position.boundary_ns)
            | ((spans.start == position.boundary_ns) & ~is_mark)
            | (is_long & (spans.end > position.boundary_ns))
        )
        if position.marked and not spans.is_kind("step").any():
            return None
        steps = find_steps(spans, STEP_SOURCES[self._source])
        if steps is None:
            return None
        position.marked = steps.source == "marked"
        count = int(np.searchsorted(steps.end, end_ns))
        if not final and not position.marked:
            count = min(count, len(steps) - 1)
        if count <= 0:
            return None
        steps = _first_ones(steps, count)
        if position.boundary_ns != _FIRST and not _starts_model(spans, steps):
            _start_at(steps, position.boundary_ns)
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
            valued=VALUED_KINDS,
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


def _first_ones(steps: Steps, count: int) -> Steps:
    return Steps(
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
    )


def _starts_model(spans: Spans, steps: Steps) -> bool:
    """Return True if the first step is the first one of a further model."""
    is_new = spans.is_kind("optimizer") & spans.has_flag(FLAG_NEW_MODEL)
    return bool((spans.start[is_new] == steps.start[0]).any())


def _start_at(steps: Steps, boundary_ns: int) -> None:
    """Extend the first step to the end of the previous one."""
    missed = int(steps.start[0]) - boundary_ns
    steps.start[0] = boundary_ns
    steps.wall_ns[0] += missed
    steps.phase_ns["other"][0] += missed


def _rank_steps(process: ProcessInfo, steps: Steps, first: int) -> RankStepTimes:
    return RankStepTimes(
        rank=process.title,
        node=process.node,
        process=process,
        first=first,
        start_ns=steps.start,
        end_ns=steps.end,
        wall_ns=steps.wall_ns,
        phase_ns=steps.phase_ns,
        profiled=steps.profiled,
    )
