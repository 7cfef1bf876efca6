"""The part of `steps` that comes from recordings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from stepscope.analysis import (
    CATEGORIES,
    DeviceWork,
    Overlap,
    TraceSteps,
    break_down_steps,
    find_device_categories,
    find_trace_steps,
    measure_overlap,
    merge_categories,
)
from stepscope.intervals import Int, Intervals
from stepscope.run import (
    CarryOver,
    Run,
    Trace,
    calls_of,
    device_work_of,
    host_categories,
    marked_steps,
)
from stepscope.views.lacking import how_to_get, no_device_work
from stepscope.views.options import ViewOptions
from stepscope.views.quality import QualityNote, quality_notes

OF_DEVICES = ("kernel", "memcpy", "memset")
OF_COLLECTIVES = ("communication",)
OF_RUNTIME = ("runtime",)
OF_HOST = ("data_loader", "cpu_exec")
NO_STEPS = "the recording has no steps, so it is shown as one"
NO_HOST = "no operator, annotation or Python function was recorded, so what the host did is unknown"


class CategoryShare(msgspec.Struct, frozen=True, kw_only=True):
    """One category, over all steps; null where the recording cannot have it."""

    category: str
    mean_ns: float | None
    share_ratio: float | None
    """Of the mean step."""


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step; its categories sum to `wall_ns`, those that are unknown being in `other_ns`."""

    step: str
    wall_ns: int
    """Until its device work is done."""
    kernel_ns: int | None
    memcpy_ns: int | None
    memset_ns: int | None
    communication_ns: int | None
    runtime_ns: int | None
    data_loader_ns: int | None
    cpu_exec_ns: int | None
    other_ns: int
    device_work_count: int
    """Kernels, copies and sets that were launched inside the step."""


class HostStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step as the host marked it, and what devices did in that time."""

    step: str
    host_ns: int
    """Duration of the mark."""
    computation_ns: int
    """Kernels that do not communicate."""
    communication_ns: int
    """Kernels of collectives."""
    overlap_ns: int
    """Both at once."""
    neither_ns: int


class TraceStepsView(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one recording."""

    rank: int | None
    trace: str
    carry_over: CarryOver
    """Whether device work launched before the window counts."""
    step_count: int
    cut_off: list[str]
    """The last steps, where the recording holds less of them than of those before."""
    share_of: str
    mean_step_ns: float
    categories: list[CategoryShare]
    """By priority: at each moment the first that is active has it."""
    steps: list[RecordedStep]
    host_steps: list[HostStep]
    notes: list[str]
    quality: list[QualityNote]


def trace_steps(run: Run, trace: Trace, options: ViewOptions) -> TraceStepsView:
    """The steps of one recording."""
    work = device_work_of(trace, options.carry_over)
    marked = marked_steps(run, trace)
    calls = calls_of(trace)
    found = find_trace_steps(marked.steps, work, calls)
    host = host_categories(trace, calls)
    times = break_down_steps(found.extent, merge_categories(find_device_categories(work), host))
    unknown = _unknown(work, host)
    return TraceStepsView(
        rank=trace.rank,
        trace=trace.name,
        carry_over=options.carry_over,
        step_count=len(found.names),
        cut_off=found.cut_off,
        share_of="mean step, until its device work is done",
        mean_step_ns=float(found.wall_ns.mean()),
        categories=[_category(name, times[name], found, name in unknown) for name in CATEGORIES],
        steps=_steps(found, times, unknown),
        host_steps=_host_steps(found, measure_overlap(found.host, work)) if len(work) else [],
        notes=_notes(trace, found, marked=marked.marked, unknown=unknown),
        quality=quality_notes(trace, "device", "launches"),
    )


def _category(name: str, times: Int, found: TraceSteps, unknown: bool) -> CategoryShare:
    wall = int(found.wall_ns.sum())
    return CategoryShare(
        category=name,
        mean_ns=None if unknown else float(times.mean()),
        share_ratio=None if unknown or not wall else float(times.sum() / wall),
    )


def _steps(
    found: TraceSteps, times: dict[str, Int], unknown: tuple[str, ...]
) -> list[RecordedStep]:
    steps = []
    for i, name in enumerate(found.names):
        parts: dict[str, Any] = {
            f"{category}_ns": None if category in unknown else int(times[category][i])
            for category in CATEGORIES
        }
        work_count = int(found.device_work_count[i])
        wall_ns = int(found.wall_ns[i])
        steps.append(
            RecordedStep(step=name, wall_ns=wall_ns, device_work_count=work_count, **parts)
        )
    return steps


def _host_steps(found: TraceSteps, both: Overlap) -> list[HostStep]:
    host_ns = found.host.end - found.host.start
    neither_ns = host_ns - both.computation_ns - both.communication_ns + both.overlap_ns
    return [
        HostStep(
            step=name,
            host_ns=int(host_ns[i]),
            computation_ns=int(both.computation_ns[i]),
            communication_ns=int(both.communication_ns[i]),
            overlap_ns=int(both.overlap_ns[i]),
            neither_ns=int(neither_ns[i]),
        )
        for i, name in enumerate(found.names)
    ]


def _unknown(work: DeviceWork, host: Mapping[str, Intervals]) -> tuple[str, ...]:
    """Categories of which the recording holds nothing because nobody recorded them."""
    return (
        *(() if len(work) else OF_DEVICES),
        *(() if len(work) or len(host["communication"].start) else OF_COLLECTIVES),
        *(() if len(host["runtime"].start) else OF_RUNTIME),
        *(() if any(len(host[category].start) for category in OF_HOST) else OF_HOST),
    )


def _notes(trace: Trace, found: TraceSteps, *, marked: bool, unknown: tuple[str, ...]) -> list[str]:
    notes = [] if marked else [f"{NO_STEPS}: {how_to_get('steps', trace)}"]
    if OF_DEVICES[0] in unknown:
        notes.append(no_device_work(trace))
    if OF_HOST[0] in unknown:
        notes.append(f"{NO_HOST}: {how_to_get('operators', trace)}")
    if found.cut_off:
        notes.append(
            f"left out: {', '.join(found.cut_off)}, of which the recording holds less device work "
            "than of the steps before, as when it ends while the device is still busy"
        )
    return notes
