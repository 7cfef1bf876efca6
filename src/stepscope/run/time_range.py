"""A run restricted to a range of time.

Events, steps, batches, stack samples and node samples that start in the range count, with their
full duration. So the parts of a step still sum to it, and adjacent ranges share nothing. For
figures of covered time, such as device busy time, work is clipped to the range instead.
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
    """Read model of a run restricted to a range of time.

    Args:
        run: the run.
        from_ns, to_ns: after the run's origin, the end exclusive; None for an open end.
    """

    def __init__(self, run: Run, from_ns: int | None, to_ns: int | None) -> None:
        super().__init__(run.reader)
        self.unrestricted = run
        """The run without the restriction."""
        clock = self.clock
        self.start_ns = clock.origin_ns + (from_ns or 0)
        self.end_ns = clock.end_ns + 1 if to_ns is None else clock.origin_ns + to_ns
        """Epoch nanoseconds."""
        if from_ns is not None and to_ns is not None and to_ns <= from_ns:
            raise UsageError(f"The range ends before it starts: from {from_ns} ns to {to_ns} ns.")

    @cached_property
    def clock(self) -> RunClock:
        """The run's clock."""
        return self.unrestricted.clock

    @property
    def left_out(self) -> list[Trace]:
        """Traces that do not reach into the range."""
        here = {trace.trace for trace in self.traces}
        return [trace for trace in self.unrestricted.traces if trace.trace not in here]

    @cached_property
    def processes(self) -> list[ProcessInfo]:
        """Processes of the run."""
        return self.unrestricted.processes

    @cached_property
    def ranks(self) -> list[Rank]:
        """Training processes with a step that starts in the range."""
        within = [
            replace(rank, run=self, steps=rank.steps.starting_within(self.start_ns, self.end_ns))
            for rank in self.unrestricted.ranks
        ]
        return [rank for rank in within if len(rank.steps)]

    @cached_property
    def traces(self) -> list[Trace]:
        """Traces that reach into the range."""
        near = []
        for trace in self.unrestricted.traces:
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
            for node, metrics in self.unrestricted.metrics.items()
        }

    def steps_in(self, trace: Trace) -> WatchedSteps:
        """Return the steps of a window that start in the range."""
        steps = self.unrestricted.steps_in(trace)
        rows = np.flatnonzero(
            (steps.extent.start >= self.start_ns) & (steps.extent.start < self.end_ns)
        )
        extent = Intervals(steps.extent.start[rows], steps.extent.end[rows])
        return WatchedSteps([steps.numbers[row] for row in rows.tolist()], extent)

    def step_spans(self, process: ProcessInfo) -> Spans:
        """Return the spans that reach into the steps of the range: phases belong to their step."""
        spans = self.unrestricted.step_spans(process)
        steps = next((r.steps for r in self.ranks if r.process.process == process.process), None)
        if steps is None:
            return spans.take((spans.start >= self.start_ns) & (spans.start < self.end_ns))
        return spans.take((spans.start < steps.end[-1]) & (spans.end > steps.start[0]))

    def fetchers_of(self, process: ProcessInfo) -> list[Fetcher]:
        """Return the batches that were started in the range, with their spans."""
        fetchers = []
        for fetcher in self.unrestricted.fetchers_of(process):
            spans = fetcher.spans
            fetches = spans.is_kind("fetch")
            started = (spans.start >= self.start_ns) & (spans.start < self.end_ns)
            if (fetches & started).any():
                fetchers.append(replace(fetcher, spans=spans.take(started | ~fetches)))
        return fetchers

    def stack_samples(self, process: ProcessInfo) -> StackSamples:
        """Return the stack samples in the range."""
        samples = self.unrestricted.stack_samples(process)
        rows = (samples.t_ns >= self.start_ns) & (samples.t_ns < self.end_ns)
        return replace(
            samples,
            t_ns=samples.t_ns[rows],
            weight_ns=samples.weight_ns[rows],
            stack=samples.stack[rows],
            user_line=samples.user_line[rows],
        )

    def window_of(self, process: ProcessInfo) -> Trace | None:
        """Return the process's first window without restriction."""
        return self.unrestricted.window_of(process)
