"""The host does not keep the devices busy."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope.analysis import StreamIdle
from stepscope.intervals import Int
from stepscope.quantities import duration, number, percent
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import RankStepTimes, RuleTrace
from stepscope.rules.parameters import Percentage, Positive
from stepscope.rules.profiler.step_share import (
    RankShare,
    RankShareState,
    StepShareParameters,
    TracedShare,
    TraceShare,
)
from stepscope.rules.samples import NO_STEPS
from stepscope.rules.templates import RankStates


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkOverheadParameters(StepShareParameters):
    """Thresholds of host overhead."""

    threshold: Percentage = 25.0
    """The rule fires if time outside all phases takes more of the step's wall time (%) than this,
    or waits for the host more of a stream's time in a trace."""
    small_kernel_us: Positive = 20.0
    """A trace with gaps has small kernels if half of their time is in kernels shorter than
    this …"""
    syncs_per_step: Positive = 2.0
    """… and it synchronizes in the loop if the host waits for the device more often than this."""


class OverheadShare(RankShare, frozen=True, kw_only=True):
    """Share of time outside all phases in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="outside_phases_share_ratio")


class TraceOverhead(TraceShare, frozen=True, kw_only=True):
    """Waits for the host in one trace."""

    waits_for_host_share_ratio: float = 0.0
    """Share of the time of the busiest stream of each device."""
    typical_kernel_us: float = 0.0
    """Half of the kernels' time is in kernels of at most this duration."""
    synchronizations_per_step: float | None = None
    """None if the trace has no steps."""


class FrameworkOverhead(TracedShare[FrameworkOverheadParameters, TraceOverhead]):
    """Checks whether the host fails to keep the devices busy.

    ## What it checks
    For each rank, at the end of each scan, the share of time outside all phases in the wall time of
    its last `window` steps: the training thread does something else. And in each trace of the
    framework's profiler, the share of the time of the busiest stream of each device that it waited
    for the host to launch work; that fires the rule if it is above `threshold` and either half of
    the kernels' time is in kernels shorter than `small_kernel_us`, or the host waits for the device
    more than `syncs_per_step` times per step. Datapoints are steps and traces; violations are those
    above the threshold.

    ## Why it matters
    Each operator costs the host some microseconds. If kernels are that short, or if the script
    reads a value back in each step (item(), print, .cpu()), the device runs out of work.

    ## What to do
    Capture the step (torch.compile, CUDA graphs), use fused optimizers, increase the batch size,
    read losses every hundred steps instead of every step, and keep logging out of the loop.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "framework overhead"
    parameters_type = FrameworkOverheadParameters
    recommendation = (
        "Use torch.compile, CUDA graphs or fused operators, and do not read values back from the "
        "device in each step."
    )
    evidence = ("launches", "idle", "steps")
    plots = ("step", "other")
    rank_type = OverheadShare
    part = "time outside all phases"

    def part_ns(self, steps: RankStepTimes) -> Int:
        return steps.phase_ns["other"]

    def evaluate_trace(self, trace: RuleTrace) -> tuple[TraceOverhead, bool] | None:
        overhead = _trace_overhead(trace)
        return None if overhead is None else (overhead, self._is_host_bound(overhead))

    def _is_host_bound(self, overhead: TraceOverhead) -> bool:
        p = self.parameters
        if not 100 * overhead.waits_for_host_share_ratio > p.threshold:
            return False
        syncs = overhead.synchronizations_per_step
        has_small_kernels = overhead.typical_kernel_us < p.small_kernel_us
        return has_small_kernels or (syncs is not None and syncs > p.syncs_per_step)

    def trace_sentence(self, name: str, trace: TraceOverhead) -> str:
        syncs = trace.synchronizations_per_step
        return (
            f"Trace {name}: devices wait for the host "
            f"{percent(trace.waits_for_host_share_ratio, 1)} of the time. Half of the kernel time "
            f"is in kernels of at most {duration(trace.typical_kernel_us * 1e3)}"
            + (f", with {number(syncs)} synchronizations per step." if syncs else ".")
        )

    def require_inputs(self, state: RankStates[RankShareState, TraceOverhead]) -> None:
        if not state.ranks and not state.traces.details:
            raise NotApplicable(NO_STEPS)


def _typical_ns(durations: Int) -> int:
    """Return the duration up to which kernels take half of the time.

    Unlike the median it is not affected by many tiny kernels among large ones.
    """
    ordered = np.sort(durations)
    cumulative = np.cumsum(ordered)
    return int(ordered[np.searchsorted(cumulative, cumulative[-1] / 2)])


def _trace_overhead(trace: RuleTrace) -> TraceOverhead | None:
    """Return the overhead in one trace; None without device work."""
    if not len(trace.kernel_ns) or not trace.streams:
        return None
    busiest: dict[int, StreamIdle] = {}
    for stream in trace.streams:
        if stream.device not in busiest or stream.busy_ns > busiest[stream.device].busy_ns:
            busiest[stream.device] = stream
    span_ns = sum(stream.span_ns for stream in busiest.values())
    wait_ns = sum(stream.host_wait_ns for stream in busiest.values())
    syncs = sum(a.count for a in trace.activities if a.kind == "synchronization")
    step_count = trace.step_count
    return TraceOverhead(
        rank=trace.rank,
        waits_for_host_share_ratio=wait_ns / max(1, span_ns),
        typical_kernel_us=_typical_ns(trace.kernel_ns) / 1e3,
        synchronizations_per_step=syncs / step_count if step_count else None,
    )
