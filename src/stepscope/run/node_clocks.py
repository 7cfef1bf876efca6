"""Clocks of the nodes of a run, aligned by the collectives that their ranks called together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    FLAG_ASYNC,
    SYNCHRONIZING_KINDS,
    CollectiveTimes,
    NodeClock,
    Spans,
    Steps,
    align_clocks,
    classify_collective,
)
from stepscope.intervals import Int, Intervals, contains, take_outermost, union
from stepscope.run.collective_records import RecordedCollectives, read_recorded_collectives
from stepscope.run.run import Run

NO_SHARED_COLLECTIVES = (
    "ranks of different nodes have called no collective together of which it is known when it "
    "ended, so clocks of nodes are not aligned"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClocks:
    """Clocks of nodes relative to that of the reference node, which has offset and residual 0."""

    reference: str
    clocks: dict[str, NodeClock | None]
    """By node with matched collectives; None where they do not bound the clock, or where it was
    set during the job."""

    @property
    def difference_residual_ns(self) -> float | None:
        """Largest possible error of the difference between times of any two nodes, the sum of their
        residuals; None if a clock is not known."""
        residuals = [clock.residual_ns for clock in self.clocks.values() if clock is not None]
        return sum(sorted(residuals)[-2:]) if len(residuals) == len(self.clocks) else None

    def to_reference(self, recorded: RecordedCollectives) -> Int:
        """Convert the times of calls to the clock of the reference node. Times of nodes without a
        known clock remain as they are."""
        t_ns = recorded.arrivals.t_ns.copy()
        for code, name in enumerate(recorded.node_names):
            clock, is_here = self.clocks.get(name), recorded.node == code
            if clock is not None and is_here.any():
                t_ns[is_here] = clock.to_reference(t_ns[is_here])
        return t_ns


def align_node_clocks(run: Run) -> NodeClocks | str:
    """Align the clocks of the nodes of a run, or explain why that is not possible.

    The whole run counts: a range of it has fewer collectives. See `analysis.clock_alignment`.
    """
    return run.whole_run.derive(_align)


def _align(run: Run) -> NodeClocks | str:
    recorded = read_recorded_collectives(run)
    if isinstance(recorded, str):
        return recorded
    times = _find_times(run, recorded)
    nodes = np.unique(times.node).tolist()
    if len(np.unique(times.node[times.end_ns >= 0])) < 2:
        return NO_SHARED_COLLECTIVES
    clocks = align_clocks(times, reference=nodes[0])
    names = recorded.node_names
    return NodeClocks(
        reference=names[nodes[0]],
        clocks={names[code]: clock for code, clock in clocks.items()},
    )


def _find_times(run: Run, recorded: RecordedCollectives) -> CollectiveTimes:
    """Find the times of the collectives that ranks of several nodes called and all wait for."""
    arrivals = recorded.arrivals
    waits = np.array([classify_collective(k) in SYNCHRONIZING_KINDS for k in recorded.kinds])
    keys = np.stack([arrivals.group, arrivals.number, arrivals.kind])
    _, collective = np.unique(keys, axis=1, return_inverse=True)
    collective = collective.reshape(-1).astype(np.int64)
    count = int(collective.max(initial=-1)) + 1
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, -1, dtype=np.int64)
    np.minimum.at(first, collective, recorded.node)
    np.maximum.at(last, collective, recorded.node)
    rows = np.flatnonzero(waits[arrivals.kind] & (first != last)[collective])
    end_ns, is_exact = _find_ends(run, recorded)
    return CollectiveTimes(
        node=recorded.node[rows],
        collective=collective[rows],
        start_ns=arrivals.t_ns[rows],
        end_ns=end_ns[rows],
        is_exact=is_exact[rows],
    )


def _find_ends(run: Run, recorded: RecordedCollectives) -> tuple[Int, NDArray[np.bool_]]:
    """Find the time by which each call had ended, -1 if unknown, and where it is its end.

    The recorder has only the time of the call for backends that send from the host. A call of the
    script that is not asynchronous ends with its span, and one that the framework makes in a
    backward pass by the end of the pass. An asynchronous one of the script, such as a hook of a
    gradient makes in the pass, may end after both. For other backends it is the time at which the
    watchdog saw that the call had ended.
    """
    end_ns = np.where(recorded.is_on_host, -1, recorded.ended_ns)
    is_exact = np.zeros(len(end_ns), dtype=np.bool_)
    steps = {rank.process.process: rank.steps for rank in run.all_ranks}
    processes = {process.process: process for process in run.processes}
    for code, name in enumerate(recorded.processes):
        rows = np.flatnonzero((recorded.process == code) & recorded.is_on_host)
        if not len(rows) or name not in processes:
            continue
        spans = run.step_spans(processes[name])
        passes, calls = _find_extents(spans, steps.get(name))
        times = recorded.arrivals.t_ns[rows]
        for extents in (passes, calls):  # a call of the script in a pass ends earlier
            index = np.searchsorted(extents.start, times, side="right") - 1
            is_inside = index >= 0
            is_inside[is_inside] = times[is_inside] < extents.end[index[is_inside]]
            end_ns[rows[is_inside]] = extents.end[index[is_inside]]
            is_exact[rows[is_inside]] = True
        is_async = spans.is_kind("communication") & spans.has_flag(FLAG_ASYNC)
        started = rows[contains(union(spans.take(is_async).intervals), times)]
        end_ns[started], is_exact[started] = -1, False
    return end_ns, is_exact


def _find_extents(spans: Spans, steps: Steps | None) -> tuple[Intervals, Intervals]:
    """Find backward passes, and calls of the script that return at the end of the collective."""
    if steps is not None:
        spans = spans.take(spans.thread == steps.thread)
    spans = spans.take(~spans.unfinished & ~spans.has_flag(FLAG_ASYNC))
    passes, calls = spans.of("backward").intervals, spans.of("communication").intervals
    return take_outermost(passes), take_outermost(calls)
