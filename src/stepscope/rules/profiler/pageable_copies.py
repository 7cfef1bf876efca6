"""Copies between host and device go through pageable memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import recording_scan, recordings
from stepscope.rules.parameters import Percentage
from stepscope.rules.signals import Recording, Signals
from stepscope.schema import Finding

HOST_COPIES = ("HtoD", "DtoH")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageableCopiesParameters:
    """When unpinned copies matter."""

    threshold: Percentage = 2.0
    """Share of a recording's device time (%) in pageable copies above which the rule fires."""


@dataclass(slots=True)
class _State:
    recordings: dict[str, dict[str, Any]] = field(default_factory=dict)
    accused: list[str] = field(default_factory=list)
    firing: Firing = field(default_factory=Firing)


class PageableCopies(IncrementalRule[PageableCopiesParameters, _State]):
    """Checks whether copies between host and device go through pageable memory.

    ## What it checks
    In each recording of the framework's profiler, the durations of copies between pageable host
    memory and a device as a share of the time from the devices' first work to their last. Above
    `threshold` is a violation; datapoints are recordings with device work.

    ## Why it matters
    The driver copies pageable memory into a pinned buffer first. That is slower, holds up the
    thread that asked for it, and cannot run beside computation.

    ## What to do
    DataLoader(pin_memory=True) and .to(device, non_blocking=True); allocate staging buffers with
    pin_memory() once.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no such rule; its Dataloader report only asks whether pin_memory is set.
    """

    parameters_type = PageableCopiesParameters
    recommendation = "Use DataLoader(pin_memory=True) and .to(device, non_blocking=True)."
    evidence = ("activity",)
    plots = ("step", "h2d")

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for recording in recordings(signals):
            figures = _figures(recording)
            if figures is None:
                continue
            state.recordings[recording.name] = figures
            if 100 * figures["pageable_share_ratio"] > self.parameters.threshold:
                state.accused.append(recording.name)
                state.firing.add(recording_scan(signals, recording))
        return state

    def decide(self, state: _State) -> Finding | None:
        if not state.recordings:
            raise NotApplicable(
                "no recording with device work: record a window with `stepscope run "
                "--start-step N` or `stepscope capture RUN`"
            )
        return self.finding(
            triggered=state.firing,
            violations=len(state.accused),
            datapoints=len(state.recordings),
            details={"recordings": state.recordings},
            sentences=[
                f"In the recording {name}, {state.recordings[name]['pageable_count']} copies "
                f"through pageable memory take {state.recordings[name]['pageable_share_ratio']:.1%}"
                f" of the devices' time; the threshold is {self.parameters.threshold:g} %."
                for name in state.accused
            ],
            ranks=[state.recordings[name]["rank"] for name in state.accused],
        )


def _figures(recording: Recording) -> dict[str, Any] | None:
    time = recording.gpu_time
    if time is None or not time.total_ns:
        return None
    pageable = [
        copies
        for copies in recording.copies
        if copies.direction in HOST_COPIES and "pageable" in {copies.source, copies.target}
    ]
    sizes = [copies.bytes for copies in pageable if copies.bytes is not None]
    return {
        "rank": recording.rank,
        "pageable_share_ratio": sum(copies.total_ns for copies in pageable) / time.total_ns,
        "pageable_count": sum(copies.count for copies in pageable),
        "pageable_bytes": sum(sizes) if sizes else None,
    }
