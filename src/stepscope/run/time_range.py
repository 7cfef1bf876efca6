"""A run as far as a range of time goes.

What begins in the range is looked at, whole, and nothing else: events, steps, batches, stack
samples, samples of the machines. So the parts of a step still sum to it, and ranges that follow
one another share nothing. Where a figure is the time that something covers, such as how long
devices were busy, work is cut at the ends of the range instead.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from stepscope.analysis import Fetcher, Spans, StackSamples
from stepscope.errors import UsageError
from stepscope.intervals import Intervals
from stepscope.run.clock import RunClock
from stepscope.run.node_metrics import NodeMetrics
from stepscope.run.run import Rank, Run, WatchedSteps
from stepscope.run.traces import Trace
from stepscope.schema import ProcessInfo


class RunRange(Run):
    """What a diagnosis may look at within a range of time.

    Args:
        whole: the run.
        from_ns, to_ns: after the run's origin, the end exclusive; None for an open end.
    """

    def __init__(self, whole: Run, from_ns: int | None, to_ns: int | None) -> None:
        super().__init__(whole.reader)
        self.whole = whole
        """The run."""
        clock = self.clock
        self.start_ns = clock.origin_ns + (from_ns or 0)
        self.end_ns = clock.end_ns + 1 if to_ns is None else clock.origin_ns + to_ns
        """Epoch nanoseconds."""
        if from_ns is not None and to_ns is not None and to_ns <= from_ns:
            raise UsageError(f"The range ends before it begins: from {from_ns} ns to {to_ns} ns.")

    @cached_property
    def clock(self) -> RunClock:
        """The run's clock."""
        return self.whole.clock

    @property
    def left_out(self) -> list[Trace]:
        """Recordings that do not reach into the range."""
        here = {trace.trace for trace in self.traces}
        return [trace for trace in self.whole.traces if trace.trace not in here]

    @cached_property
    def processes(self) -> list[ProcessInfo]:
        """Those of the run."""
        return self.whole.processes

    @cached_property
    def ranks(self) -> list[Rank]:
        """Training processes with a step that begins in the range."""
        within = [
            replace(rank, run=self, steps=rank.steps.starting_within(self.start_ns, self.end_ns))
            for rank in self.whole.ranks
        ]
        return [rank for rank in within if len(rank.steps)]

    @cached_property
    def traces(self) -> list[Trace]:
        """Recordings that reach into the range."""
        near = []
        for trace in self.whole.traces:
            shift = self.clock.shift_ns(trace.trace)
            within = (self.start_ns - shift, self.end_ns - shift)
            if trace.start_ns < within[1] and trace.end_ns >= within[0]:
                near.append(replace(trace, within=within))
        return near

    @cached_property
    def metrics(self) -> dict[str, NodeMetrics]:
        """Samples of the range by node."""
        return {
            node: metrics.between(self.start_ns, self.end_ns)
            for node, metrics in self.whole.metrics.items()
        }

    def steps_in(self, trace: Trace) -> WatchedSteps:
        """Steps of a window that begin in the range."""
        found = self.whole.steps_in(trace)
        rows = np.flatnonzero(
            (found.extent.start >= self.start_ns) & (found.extent.start < self.end_ns)
        )
        extent = Intervals(found.extent.start[rows], found.extent.end[rows])
        return WatchedSteps([found.numbers[row] for row in rows.tolist()], extent)

    def step_spans(self, process: ProcessInfo) -> Spans:
        """What reaches into the steps of the range: phases belong to the step they are in."""
        spans = self.whole.step_spans(process)
        steps = next((r.steps for r in self.ranks if r.process.process == process.process), None)
        if steps is None:
            return spans.take((spans.start >= self.start_ns) & (spans.start < self.end_ns))
        return spans.take((spans.start < steps.end[-1]) & (spans.end > steps.start[0]))

    def fetchers_of(self, process: ProcessInfo) -> list[Fetcher]:
        """Batches that were begun in the range, and what was done for them."""
        found = []
        for fetcher in self.whole.fetchers_of(process):
            spans = fetcher.spans
            fetches = spans.is_kind("fetch")
            begun = (spans.start >= self.start_ns) & (spans.start < self.end_ns)
            if (fetches & begun).any():
                found.append(replace(fetcher, spans=spans.take(begun | ~fetches)))
        return found

    def stack_samples(self, process: ProcessInfo) -> StackSamples:
        """Samples that were taken in the range."""
        found = self.whole.stack_samples(process)
        rows = (found.t_ns >= self.start_ns) & (found.t_ns < self.end_ns)
        return replace(
            found,
            t_ns=found.t_ns[rows],
            weight_ns=found.weight_ns[rows],
            stack=found.stack[rows],
            user_line=found.user_line[rows],
        )

    def window_of(self, process: ProcessInfo) -> Trace | None:
        """The process's first window, whole: it is put against phases of steps of the range."""
        return self.whole.window_of(process)
