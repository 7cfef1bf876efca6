"""Copies between host and device through pageable memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from stepscope.quantities import count_of
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Percentage
from stepscope.rules.samples import NO_DEVICE_WORK_IN_TRACES, sort_traces
from stepscope.rules.templates import TraceResults
from stepscope.rules.threshold_text import share_beside
from stepscope.rules.traces import RuleTrace
from stepscope.rules.trigger import Trigger
from stepscope.schema import Finding

HOST_COPIES = ("HtoD", "DtoH")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageableCopiesParameters:
    """Threshold of unpinned copies."""

    threshold: Percentage = 2.0
    """The rule fires if pageable copies take more of a trace's device time (%) than this."""


class TraceCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Pageable copies in one trace."""

    rank: str = ""
    pageable_share_ratio: float = 0.0
    """Share of the time from the first device work to the last."""
    pageable_count: int = 0
    pageable_bytes: int | None = None
    """None if the trace does not record sizes."""


class PageableCopiesDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Pageable copies by trace."""

    recordings: dict[str, TraceCopies] = {}


@dataclass(slots=True)
class _State:
    traces: TraceResults[TraceCopies] = field(default_factory=TraceResults)
    trigger: Trigger = field(default_factory=Trigger)


class PageableCopies(IncrementalRule[PageableCopiesParameters, _State]):
    """Checks whether copies between host and device use pageable memory.

    ## What it checks
    In each trace of the framework's profiler, the duration of copies between pageable host memory
    and a device, as a share of the time from the first device work to the last. A share above
    `threshold` is a violation; datapoints are traces with device work.

    ## Why it matters
    The driver first copies pageable memory to a pinned buffer. That is slower, blocks the calling
    thread, and cannot overlap with computation.

    ## What to do
    Use DataLoader(pin_memory=True) and .to(device, non_blocking=True). Allocate staging buffers
    once with pin_memory().

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its Dataloader report only looks at the setting of pin_memory.
    """

    topic = "data loading"
    parameters_type = PageableCopiesParameters
    recommendation = "Use DataLoader(pin_memory=True) and .to(device, non_blocking=True)."
    evidence = ("activity",)
    plots = ("step", "h2d")
    missing_in_traces = NO_DEVICE_WORK_IN_TRACES
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        for trace in sort_traces(inputs):
            copies = _pageable_copies(trace)
            if copies is not None:
                fires = 100 * copies.pageable_share_ratio > self.parameters.threshold
                state.traces.add(trace, copies, fires=fires, inputs=inputs, trigger=state.trigger)
        return state

    def decide(self, state: _State) -> Finding | None:
        traces = state.traces
        if not traces.details:
            raise NotApplicable(
                "no trace with device work",
                advice="record a window with `stepscope run --start-step N -- CMD` or, while the "
                "job runs, `stepscope capture RUN`",
            )
        return self.finding(
            triggered=state.trigger,
            violations=len(traces.triggered),
            datapoints=len(traces.details),
            details=PageableCopiesDetails(recordings=traces.details),
            sentences=self._sentences(traces),
            ranks=traces.triggered.values(),
        )

    def _sentences(self, traces: TraceResults[TraceCopies]) -> Iterable[str]:
        for name in traces.triggered:
            copies = traces.details[name]
            share = share_beside(
                copies.pageable_share_ratio, "device time", self.parameters.threshold
            )
            copied = count_of(copies.pageable_count, "pageable copy", "pageable copies")
            verb = "takes" if copies.pageable_count == 1 else "take"
            yield f"Trace {name}: {copied} {verb} {share}."


def _pageable_copies(trace: RuleTrace) -> TraceCopies | None:
    """Return the pageable copies of a trace; None without device work."""
    time = trace.gpu_time
    if time is None or not time.total_ns:
        return None
    pageable = [
        copies
        for copies in trace.copies
        if copies.direction in HOST_COPIES and "pageable" in {copies.source, copies.target}
    ]
    sizes = [copies.moved_bytes for copies in pageable if copies.moved_bytes is not None]
    return TraceCopies(
        rank=trace.rank,
        pageable_share_ratio=sum(copies.total_ns for copies in pageable) / time.total_ns,
        pageable_count=sum(copies.count for copies in pageable),
        pageable_bytes=sum(sizes) if sizes else None,
    )
