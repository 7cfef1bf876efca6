"""Communication of the traces of a run, measured where the traces are read.

A trace of a hundred thousand events becomes a table of its totals, of its steps and of its calls of
collectives, a few kilobytes, with which those of the other ranks are matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from stepscope.analysis import (
    KERNEL_COLUMNS,
    CommunicationDefinition,
    RangeTimes,
    TraceSteps,
    break_down_range,
    break_down_ranges,
)
from stepscope.run.communication import CollectiveKernels
from stepscope.run.device_work import CarryOver
from stepscope.run.period import Period
from stepscope.run.rank_collectives import CALL_COLUMNS, TraceCalls, read_calls
from stepscope.run.rank_parts import RankPart, detach_ranks
from stepscope.run.run import Run
from stepscope.run.trace_steps import record_work
from stepscope.run.traces import Trace, reading_ahead

PART_EVENTS = 8_000_000
"""Events that are read in one part of the run."""
READ_EVENTS = 1_000_000
"""Events of a part that are in memory at a time, unless one trace has more."""
TABLES = ("kernels", "copies", "operators", "annotations", "runtime_calls", "collectives", "spans")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCommunication:
    """Computation and communication of one trace, in nanoseconds."""

    on_host: bool
    """True without devices: operators stand for kernels."""
    extent: tuple[int, int] | None
    """First start and last end of the work, clipped to the selected range; None if empty."""
    total: dict[str, int]
    """Times of the extent, by the fields of `RangeTimes`."""
    steps: TraceSteps
    step_times: RangeTimes
    calls: TraceCalls
    """Calls of collectives, also outside the selected range."""


class MeasuredTrace(NamedTuple):
    """A trace of a run, with its communication."""

    trace: Trace
    communication: TraceCommunication


class TracePart(NamedTuple):
    """Traces of a run or of a range of it, with the ranks that recorded them."""

    period: Period
    traces: list[Trace]
    ranks: RankPart
    """Ranks of the whole run."""
    launched: frozenset[str] | None
    """Names of the kernels that operators of collectives launched; None if they do not count."""

    def attach(self, run: Run) -> tuple[Run, list[Trace]]:
        """Return the run or its range, and the traces as those of the run.

        Args:
            run: the whole run.
        """
        self.ranks.attach(run)
        collectives = CollectiveKernels(run.reader, self.launched)
        traces = [trace.attach(run.reader, collectives) for trace in self.traces]
        return run if run.period == self.period else run.between(*self.period), traces


def measure_traces(
    run: Run, carry_over: CarryOver, communication: CommunicationDefinition = "wide"
) -> list[MeasuredTrace]:
    """Measure the communication of every trace, by the engine of the run.

    Args:
        run: the run.
        carry_over, communication: as of `device_work_of`.

    Raises:
        StepscopeError: the engine has failed.
    """
    traces, whole_run = run.traces, run.whole_run
    if not traces:
        return []
    launched = traces[0].collectives.launched_by_collectives if communication == "wide" else None
    parts = []
    for part in _split_by_events(traces):
        processes = {trace.process for trace in part}
        ranks = [rank for rank in whole_run.all_ranks if rank.process.process in processes]
        parts.append(TracePart(run.period, part, detach_ranks(whole_run, ranks), launched))
    function = partial(_measure_part, carry_over=carry_over, communication=communication)
    measured = run.engine.map(whole_run, function, parts, tables=TABLES)
    return [
        MeasuredTrace(trace, table)
        for trace, table in zip(traces, (t for part in measured for t in part), strict=True)
    ]


def _split_by_events(traces: Sequence[Trace]) -> list[list[Trace]]:
    """Split traces into parts of consecutive ones with a limited number of events."""
    parts: list[list[Trace]] = []
    event_count = 0
    for trace in traces:
        if not parts or event_count + trace.event_count > PART_EVENTS:
            parts.append([])
            event_count = 0
        parts[-1].append(trace)
        event_count += trace.event_count
    return parts


def _measure_part(
    run: Run, part: TracePart, *, carry_over: CarryOver, communication: CommunicationDefinition
) -> list[TraceCommunication]:
    selected, traces = part.attach(run)
    return [
        _measure_trace(selected, trace, carry_over, communication)
        for trace in reading_ahead(traces, READ_EVENTS)
    ]


def _measure_trace(
    run: Run, trace: Trace, carry_over: CarryOver, communication: CommunicationDefinition
) -> TraceCommunication:
    kernels = trace.whole.columns("kernels", tuple(dict.fromkeys((*KERNEL_COLUMNS, *CALL_COLUMNS))))
    recorded = record_work(run, trace, carry_over, communication, kernels)
    return TraceCommunication(
        on_host=recorded.on_host,
        extent=recorded.extent,
        total=break_down_range(*(recorded.extent or (0, 0)), recorded.work),
        steps=recorded.steps,
        step_times=break_down_ranges(recorded.steps.extent, recorded.work),
        calls=read_calls(trace.whole, kernels, communication),
    )
