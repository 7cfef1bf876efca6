"""The host does not keep the devices busy."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from stepscope import analysis, intervals, quantities, schema
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import RankStepTimes, RuleInputs, RuleTrace, TracedSteps
from stepscope.rules.parameters import (
    Percentage,
    Positive,
    duration_beside,
    fixed_beside,
    share_beside,
)
from stepscope.rules.profiler import step_share
from stepscope.rules.samples import NO_STEPS, STEP_ADVICE
from stepscope.rules.templates import RankStates

MIN_LISTED_SHARE = 0.01
"""Parts of the overhead below this share of step time are not listed."""
LOOP_ADVICE = (
    "Move what the training thread does between the phases of a step out of the loop; `stepscope "
    "diagnose RUN` names it where stacks show it."
)
"""Advice where only time outside all phases is high, which no fused operator makes shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkOverheadParameters(step_share.StepShareParameters):
    """Thresholds of host overhead."""

    threshold: Percentage = 25.0
    """The rule fires if time outside all phases takes more of the step's wall time (%) than this,
    overhead more of the step time of an imported trace, or waits for the host more of a stream's
    time in a window."""
    small_kernel_us: Positive = 20.0
    """A trace has small kernels if half of their time is in kernels shorter than this …"""
    syncs_per_step: Positive = 2.0
    """… and it synchronizes in the loop if the host waits for the device more often than this."""


class OverheadShare(step_share.RankShare, frozen=True, kw_only=True):
    """Share of time outside all phases in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="outside_phases_share_ratio")


class TraceOverhead(step_share.TraceShare, frozen=True, kw_only=True):
    """Overhead in one trace."""

    overhead_share_ratio: float | None = None
    """Share of step time; None for a window of a watched job."""
    part_share_ratio: dict[str, float] = {}  # noqa: RUF012 - copied by msgspec
    """Share of each part of the overhead, largest first."""
    waits_for_host_share_ratio: float | None = None
    """Share of the time of the busiest stream of each device; None without kernels."""
    typical_kernel_us: float | None = None
    """Half of the kernels' time is in kernels of at most this duration; None without kernels."""
    synchronizations_per_step: float | None = None
    """None if the trace has no steps."""


class FrameworkOverhead(step_share.TracedShare[FrameworkOverheadParameters, TraceOverhead]):
    """Checks whether the host fails to keep the devices busy.

    ## What it checks
    For each rank, at the end of each scan, the share of time outside all phases in the wall time of
    its last `window` steps: the training thread does something else; the verdict counts data
    preparation in it for the data pipeline. Where nothing inside the steps was recorded, that time
    may be computation, and the rule does not apply, as the verdict says nothing then. In each
    window of the job's profiler, the share of the time of the busiest stream of each device that it
    waited for the host to launch work; that fires the rule if it is above `threshold` and either
    half of the kernels' time is in kernels shorter than `small_kernel_us`, or the host waits for
    the device more than `syncs_per_step` times per step. In each imported trace, the share of step
    time that the verdict attributes to overhead; small kernels and synchronizations explain it.
    Datapoints are steps and traces; violations are those above the threshold.

    ## Why it matters
    Each operator costs the host some microseconds. If kernels are that short, or if the script
    reads a value back in each step (item(), print, .cpu()), the device runs out of work.

    ## What to do
    Capture the step (torch.compile, CUDA graphs), use fused optimizers, increase the batch size,
    read losses every hundred steps instead of every step, and keep logging out of the loop. Where
    no window shows kernels, only the last of these is advised.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    topic = "framework overhead"
    parameters_type = FrameworkOverheadParameters
    recommendation = (
        "Compile the step if it is not compiled (torch.compile), use graph capture or fused "
        "operators, and do not read values back from the device in each step."
    )
    evidence = ("launches", "idle", "steps")
    plots = ("step", "other")
    rank_type = OverheadShare
    part = "time outside all phases"
    rests_on_devices = True
    missing_in_traces = (
        "the traces have no operators to tell why the device has no work, or no work at all"
    )

    def update_rank(
        self,
        state: RankStates[step_share.RankShareState, TraceOverhead],
        steps: RankStepTimes,
        inputs: RuleInputs,
    ) -> None:
        super().update_rank(state, steps, inputs)
        rank = state.ranks.get(steps.rank)
        if rank is not None:
            rank.has_samples |= steps.rank in inputs.compiler_time
            rank.is_imported = inputs.is_imported

    def part_ns(self, steps: RankStepTimes) -> intervals.Int:
        return steps.phase_ns["other"]

    def evaluate_trace(self, trace: RuleTrace) -> tuple[TraceOverhead, bool] | None:
        if trace.is_watched:
            overhead = _measure_launches(trace)
            return None if overhead.typical_kernel_us is None else (overhead, self._gaps(overhead))
        steps = trace.steps
        if steps is None or not _tells_overhead(steps):
            return None
        share = steps.share(analysis.OVERHEAD_PARTS)
        overhead = msgspec.structs.replace(
            _measure_launches(trace),
            overhead_share_ratio=share,
            part_share_ratio=dict(
                sorted(
                    ((part, steps.share([part])) for part in analysis.OVERHEAD_PARTS),
                    key=lambda item: -item[1],
                )
            ),
        )
        return overhead, 100 * share > self.parameters.threshold

    def _gaps(self, overhead: TraceOverhead) -> bool:
        """Return True if a window has gaps because of small kernels or synchronizations."""
        p, wait = self.parameters, overhead.waits_for_host_share_ratio
        if wait is None or not 100 * wait > p.threshold:
            return False
        return self._has_small_kernels(overhead) or self._synchronizes(overhead)

    def _has_small_kernels(self, overhead: TraceOverhead) -> bool:
        typical_us = overhead.typical_kernel_us
        return typical_us is not None and typical_us < self.parameters.small_kernel_us

    def _synchronizes(self, overhead: TraceOverhead) -> bool:
        syncs = overhead.synchronizations_per_step
        return syncs is not None and syncs > self.parameters.syncs_per_step

    def trace_sentence(self, name: str, trace: TraceOverhead) -> str:
        if trace.overhead_share_ratio is None:
            return f"Trace {name}: {self._describe_window(trace)}"
        parts = ", ".join(
            f"{analysis.PART_NAMES[part]} {quantities.percent(share)}"
            for part, share in trace.part_share_ratio.items()
            if share >= MIN_LISTED_SHARE
        )
        total = share_beside(trace.overhead_share_ratio, "step time", self.parameters.threshold)
        sentences = [f"Trace {name}: overhead takes {total}" + (f": {parts}." if parts else ".")]
        if trace.typical_kernel_us is not None and self._has_small_kernels(trace):
            sentences.append(f"{self._describe_kernels(trace.typical_kernel_us)}.")
        if self._synchronizes(trace):
            count = self._count_synchronizations(trace)
            sentences.append(f"The host waits for the device {count} times per step.")
        return " ".join(sentences)

    def _describe_window(self, trace: TraceOverhead) -> str:
        wait = trace.waits_for_host_share_ratio or 0.0
        share = share_beside(wait, "the time", self.parameters.threshold)
        kernels = self._describe_kernels(trace.typical_kernel_us or 0.0)
        text = f"devices wait for the host {share}. {kernels}"
        if trace.synchronizations_per_step:
            text += f", with {self._count_synchronizations(trace)} synchronizations per step"
        return f"{text}."

    def _describe_kernels(self, typical_us: float) -> str:
        typical = duration_beside(1e3 * typical_us, 1e3 * self.parameters.small_kernel_us)
        return f"Half of the kernel time is in kernels of at most {typical}"

    def _count_synchronizations(self, trace: TraceOverhead) -> str:
        return fixed_beside(
            trace.synchronizations_per_step or 0.0, self.parameters.syncs_per_step, 0
        )

    def decide(
        self, state: RankStates[step_share.RankShareState, TraceOverhead]
    ) -> schema.Finding | None:
        finding = super().decide(state)
        if finding is None or not finding.fired or state.traces.triggered:
            return finding
        return msgspec.structs.replace(finding, recommendation=LOOP_ADVICE)

    def require_inputs(self, state: RankStates[step_share.RankShareState, TraceOverhead]) -> None:
        if not state.ranks and not state.traces.details:
            raise NotApplicable(NO_STEPS, advice=STEP_ADVICE)
        unknown_times = [
            analysis.explain_unknown_time(
                rank.phase_ns, has_samples=rank.has_samples, is_imported=rank.is_imported
            )
            for rank in state.ranks.values()
        ]
        if unknown_times and all(unknown_times):
            raise NotApplicable(str(unknown_times[0]), self.datapoint_count(state))


def _typical_ns(durations: intervals.Int) -> int:
    """Return the duration up to which kernels take half of the time.

    Unlike the median it is not affected by many tiny kernels among large ones.
    """
    ordered = np.sort(durations)
    cumulative = np.cumsum(ordered)
    return int(ordered[np.searchsorted(cumulative, cumulative[-1] / 2)])


def _tells_overhead(steps: TracedSteps) -> bool:
    """Return True if a trace tells why the device has no work, and has work at all."""
    return steps.has_host and steps.share(["compute", "communication"]) > 0


def _measure_launches(trace: RuleTrace) -> TraceOverhead:
    """Measure waits for the host, kernels and synchronizations in one trace."""
    busiest: dict[int, analysis.StreamIdle] = {}
    for stream in trace.streams if len(trace.kernel_ns) else ():
        if stream.device not in busiest or stream.busy_ns > busiest[stream.device].busy_ns:
            busiest[stream.device] = stream
    span_ns = sum(stream.span_ns for stream in busiest.values())
    wait_ns = sum(stream.host_wait_ns for stream in busiest.values())
    syncs = sum(a.count for a in trace.activities if a.kind == "synchronization")
    step_count = trace.step_count
    return TraceOverhead(
        rank=trace.rank,
        waits_for_host_share_ratio=wait_ns / max(1, span_ns) if busiest else None,
        typical_kernel_us=_typical_ns(trace.kernel_ns) / 1e3 if busiest else None,
        synchronizations_per_step=syncs / step_count if step_count else None,
    )
