"""Steps of a growing run: each is found once, and only rows since the last one are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stepscope.analysis import PHASE_OF_KIND, VALUED_KINDS, Spans, Steps, find_steps
from stepscope.rules import RankStepTimes
from stepscope.run import SpanRows, read_spans, spans_of
from stepscope.schema import ProcessInfo
from stepscope.store import RunReader

KINDS = (*PHASE_OF_KIND, "step", "device")
LONG_KINDS = ("mode", "window")
"""They may have begun long before the step and are recorded when they end."""
LOOK_BACK_NS = 600_000_000_000
NEAR_NS = 30_000_000_000
"""One query reads processes whose last steps ended within this time."""
_FIRST = -(1 << 62)


@dataclass(slots=True)
class _Place:
    """How far a process has been read."""

    boundary_ns: int = _FIRST
    """Where its last step ended."""
    count: int = 0
    marked: bool = False
    """The script marks its steps: without a mark there is no step."""
    stepping: bool = False
    """A step ended in the piece before."""


@dataclass(frozen=True, slots=True)
class StepRows:
    """What was read of a piece of a run."""

    spans: dict[str, SpanRows]
    """By process."""
    processes: dict[str, ProcessInfo]
    end_ns: int
    final: bool


class StepFinder:
    """Finds the steps of every training process, piece by piece: each piece is read and searched
    after the one before it."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._places: dict[str, _Place] = {}
        self._read_until = _FIRST

    def read(self, processes: Iterable[ProcessInfo], end_ns: int, *, final: bool) -> StepRows:
        """The next piece.

        Args:
            processes: training processes.
            end_ns: its end.
            final: nothing will follow. Otherwise the last optimizer step says nothing yet: only
                what follows tells whether a training step ended there.
        """
        chosen = {process.process: process for process in processes}
        since = min(max(self._read_until - LOOK_BACK_NS, _FIRST), end_ns)
        stepping = {name for name, place in self._places.items() if place.stepping}
        if chosen.keys() - stepping:
            stepping |= self._stepping(since, end_ns)
        if final:  # what was held back of the others is now a step
            stepping |= self._places.keys()
        spans = self._read(sorted(stepping & chosen.keys()), end_ns)
        return StepRows(spans, chosen, end_ns, final)

    def find(self, rows: StepRows) -> list[RankStepTimes]:
        """Steps that ended in a piece and were not found before, by rank."""
        self._read_until = max(self._read_until, rows.end_ns)
        found = []
        for name, read in rows.spans.items():
            place = self._places.setdefault(name, _Place())
            steps = self._find(place, spans_of(read), rows.end_ns, final=rows.final)
            place.stepping = steps is not None
            if steps is not None:
                first = place.count - len(steps)
                found.append(_rank_steps(rows.processes[name], steps, first))
        return sorted(found, key=lambda each: (each.process.rank or 0, each.process.pid))

    @staticmethod
    def _find(place: _Place, spans: Spans, end_ns: int, *, final: bool) -> Steps | None:
        long = spans.is_kind(*LONG_KINDS)
        mark = spans.is_kind("step")
        spans = spans.take(
            (spans.start > place.boundary_ns)
            | ((spans.start == place.boundary_ns) & ~mark)
            | (long & (spans.end > place.boundary_ns))
        )
        if place.marked and not spans.is_kind("step").any():
            return None
        steps = find_steps(spans)
        if steps is None:
            return None
        place.marked = steps.source == "marked"
        count = int(np.searchsorted(steps.end, end_ns))
        if not final and not place.marked:
            count = min(count, len(steps) - 1)
        if count <= 0:
            return None
        steps = _first_ones(steps, count)
        if place.boundary_ns != _FIRST:
            _begin_at(steps, place.boundary_ns)
        place.boundary_ns = int(steps.end[-1])
        place.count += count
        return steps

    def _stepping(self, since: int, end_ns: int) -> set[str]:
        """Processes in which a step may have ended: no others need to be read."""
        found = self._reader.sql(
            "SELECT DISTINCT process FROM spans WHERE kind IN ('optimizer', 'step') "
            "AND start_ns >= ? AND start_ns < ?",
            (since, end_ns),
            within=(since, end_ns),
        )
        return set(found["process"].tolist())

    def _read(self, processes: list[str], end_ns: int) -> dict[str, SpanRows]:
        """Spans of processes since their last steps that began before a time."""
        if not processes:
            return {}
        ends = {n: self._places[n].boundary_ns if n in self._places else _FIRST for n in processes}
        found: dict[str, SpanRows] = {}
        for together in _near(ends):
            since = min(ends[name] for name in together)
            found |= self._spans(together, KINDS, since, end_ns)
        back = max(min(ends.values()) - LOOK_BACK_NS, _FIRST)
        for name, rows in self._spans(processes, LONG_KINDS, back, end_ns).items():
            short = found.get(name, {})
            found[name] = {c: np.concatenate([short.get(c, v[:0]), v]) for c, v in rows.items()}
        return found

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


def _near(ends: dict[str, int]) -> list[list[str]]:
    """Processes whose last steps ended at about the same time, together.

    One that began late or ended early lies far behind: no reason to read more of the others.
    """
    groups: list[list[str]] = []
    first = 0
    for name in sorted(ends, key=ends.__getitem__):
        if not groups or ends[name] > first + NEAR_NS:
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


def _begin_at(steps: Steps, boundary_ns: int) -> None:
    """Let the first step begin where the one before it ended: the time between is its own."""
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
