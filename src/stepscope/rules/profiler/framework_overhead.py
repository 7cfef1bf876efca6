"""The host cannot keep the devices busy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stepscope.analysis import StreamIdle
from stepscope.intervals import Int
from stepscope.rules.base import NotApplicable
from stepscope.rules.inputs import NO_STEPS
from stepscope.rules.parameters import Percentage, Positive
from stepscope.rules.profiler.step_share import (
    RecordedShare,
    ShareState,
    StepShareParameters,
)
from stepscope.rules.signals import RankSteps, Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkOverheadParameters(StepShareParameters):
    """When the host holds training up."""

    threshold: Percentage = 25.0
    """Share of the step's wall time outside all phases, or of a stream's time in a recording
    spent waiting for the host, (%) above which the rule fires."""
    small_kernel_us: Positive = 20.0
    """A recording with gaps has small kernels when half of their time is in kernels that take
    less than this."""
    syncs_per_step: Positive = 2.0
    """… and it synchronises in the loop when the host waits for the device more often."""


class FrameworkOverhead(RecordedShare[FrameworkOverheadParameters]):
    """Checks whether the host fails to keep the devices busy.

    ## What it checks
    For each rank, at the end of each scan, how much of the wall time of its last `window` steps
    lies in no phase: the training thread does something else. And in each recording of the
    framework's profiler, how much of the time of the busiest stream of each device it waited for
    the host to launch; that fires the rule when it is above `threshold` and either half of the
    kernels' time is in kernels of less than `small_kernel_us`, or the host waits for the device
    more than `syncs_per_step` times in a step. Datapoints are steps and recordings, violations
    those above the threshold.

    ## Why it matters
    Every operator costs the host some microseconds. Where kernels are that short, or where the
    script reads a value back in every step (item(), print, .cpu()), the device runs dry.

    ## What to do
    Capture the step (torch.compile, CUDA graphs), use fused optimizers, make batches larger, read
    losses every hundred steps instead of every step, keep logging out of the loop.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule.
    """

    parameters_type = FrameworkOverheadParameters
    recommendation = (
        "Use torch.compile, CUDA graphs or fused operators, and do not read values back from the "
        "device in every step."
    )
    evidence = ("launches", "idle", "steps")
    plots = ("step", "other")
    part_name = "outside_phases"
    part_text = "work outside all phases"

    def part_ns(self, steps: RankSteps) -> Int:
        return steps.phase_ns["other"]

    def judge(self, recording: Recording) -> tuple[dict[str, Any], bool] | None:
        figures = _figures(recording)
        return None if figures is None else (figures, self._starved(figures))

    def _starved(self, figures: dict[str, Any]) -> bool:
        p = self.parameters
        if not 100 * figures["waits_for_host_share_ratio"] > p.threshold:
            return False
        syncs = figures["synchronizations_per_step"]
        small = figures["typical_kernel_us"] < p.small_kernel_us
        return small or (syncs is not None and syncs > p.syncs_per_step)

    def recording_sentence(self, name: str, figures: dict[str, Any]) -> str:
        syncs = figures["synchronizations_per_step"]
        return (
            f"In the recording {name} the device waits for the host "
            f"{figures['waits_for_host_share_ratio']:.1%} of its time; half of the kernels' time "
            f"is in kernels of at most {figures['typical_kernel_us']:.1f} us"
            + (f", and the host waits for it {syncs:.1f} times a step." if syncs else ".")
        )

    def require(self, state: ShareState) -> None:
        if not state.ranks and not state.recordings:
            raise NotApplicable(NO_STEPS)


def _typical_ns(durations: Int) -> int:
    """Half of the time is in kernels of at most this duration: many tiny ones among large ones
    say nothing."""
    ordered = np.sort(durations)
    reached = np.cumsum(ordered)
    return int(ordered[np.searchsorted(reached, reached[-1] / 2)])


def _figures(recording: Recording) -> dict[str, Any] | None:
    """Of one recording; None without device work."""
    if not len(recording.kernel_ns) or not recording.streams:
        return None
    busiest: dict[int, StreamIdle] = {}
    for stream in recording.streams:
        if stream.device not in busiest or stream.busy_ns > busiest[stream.device].busy_ns:
            busiest[stream.device] = stream
    span = sum(stream.span_ns for stream in busiest.values())
    syncs = sum(a.count for a in recording.activities if a.kind == "synchronization")
    steps = recording.step_count
    return {
        "waits_for_host_share_ratio": sum(s.host_wait_ns for s in busiest.values()) / max(1, span),
        "typical_kernel_us": _typical_ns(recording.kernel_ns) / 1e3,
        "synchronizations_per_step": syncs / steps if steps else None,
    }
