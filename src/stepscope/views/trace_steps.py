"""Part of `steps` that comes from traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

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
    MarkedSteps,
    Run,
    Trace,
    calls_of,
    device_work_of,
    host_categories,
    marked_steps,
    read_marks,
)
from stepscope.schema import field_label
from stepscope.views.missing_data import explain_missing, explain_no_device_work
from stepscope.views.options import ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality

DEVICE_CATEGORIES = ("kernel", "memcpy", "memset")
COLLECTIVE_CATEGORIES = ("communication",)
RUNTIME_CATEGORIES = ("runtime",)
HOST_CATEGORIES = ("data_loader", "cpu_exec")
NO_STEPS = "the trace has no steps and is shown as one step"
DERIVED_STEPS = "the trace names no steps: a step is the time from one range “{name}” to the next"
NO_HOST = (
    "the trace has no operators, annotations or Python functions, so the activity of the host is "
    "unknown"
)


class CategoryShare(msgspec.Struct, frozen=True, kw_only=True):
    """One category over all steps; null where the trace cannot contain it."""

    category: str
    mean_ns: float | None
    share_ratio: float | None
    """Share of the mean step."""


class RecordedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step; its categories sum to `wall_ns`, with unknown ones in `other_ns`."""

    step: str
    wall_ns: Annotated[int, field_label("duration")]
    """Duration until its device work is done."""
    kernel_ns: int | None
    memcpy_ns: Annotated[int | None, field_label("copy")]
    memset_ns: int | None
    communication_ns: int | None
    runtime_ns: Annotated[int | None, field_label("runtime calls")]
    data_loader_ns: int | None
    cpu_exec_ns: Annotated[int | None, field_label("host")]
    other_ns: int
    device_work_count: Annotated[int, field_label("device work")]
    """Kernels, copies and sets launched inside the step."""


class HostStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step as marked by the host, and device activity in that time."""

    step: str
    host_ns: Annotated[int, field_label("duration")]
    """Duration of the mark."""
    computation_ns: int
    """Kernels that do not communicate."""
    communication_ns: int
    """Kernels of collectives."""
    overlap_ns: Annotated[int, field_label("both")]
    """Both at the same time."""
    neither_ns: int


class TraceStepsView(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one trace."""

    rank: int | None
    trace: str
    carry_over: CarryOver
    """Whether device work launched before the window counts."""
    step_count: int
    cut_off: list[str]
    """Last steps, of which the trace has less device work than of the steps before."""
    share_of: str
    mean_step_ns: float
    categories: list[CategoryShare]
    """Categories by priority: each instant counts for the first one that is active."""
    steps: list[RecordedStep]
    host_steps: list[HostStep]
    notes: list[str]
    quality: list[QualityNote]


def show_trace_steps(run: Run, trace: Trace, options: ViewOptions) -> TraceStepsView:
    """Show the steps of one trace."""
    work = device_work_of(trace, options.carry_over)
    marked = marked_steps(run, trace)
    calls = calls_of(trace)
    steps = find_trace_steps(marked.steps, work, calls)
    host = host_categories(trace, calls, read_marks(trace))
    times = break_down_steps(steps.extent, merge_categories(find_device_categories(work), host))
    unknown = _find_unknown_categories(work, host)
    return TraceStepsView(
        rank=trace.rank,
        trace=trace.name,
        carry_over=options.carry_over,
        step_count=len(steps.names),
        cut_off=steps.cut_off,
        share_of="mean step, until its device work is done",
        mean_step_ns=float(steps.wall_ns.mean()),
        categories=[
            _show_category(name, times[name], steps, name in unknown) for name in CATEGORIES
        ],
        steps=_show_steps(steps, times, unknown),
        host_steps=_show_host_steps(steps, measure_overlap(steps.host, work)) if len(work) else [],
        notes=_write_notes(trace, steps, marked=marked, unknown=unknown),
        quality=note_trace_quality(trace, "device", "launches"),
    )


def _show_category(name: str, times: Int, steps: TraceSteps, unknown: bool) -> CategoryShare:
    wall_ns = int(steps.wall_ns.sum())
    return CategoryShare(
        category=name,
        mean_ns=None if unknown else float(times.mean()),
        share_ratio=None if unknown or not wall_ns else float(times.sum() / wall_ns),
    )


def _show_steps(
    steps: TraceSteps, times: dict[str, Int], unknown: tuple[str, ...]
) -> list[RecordedStep]:
    rows = []
    for i, name in enumerate(steps.names):
        parts: dict[str, Any] = {
            f"{category}_ns": None if category in unknown else int(times[category][i])
            for category in CATEGORIES
        }
        work_count = int(steps.device_work_count[i])
        wall_ns = int(steps.wall_ns[i])
        rows.append(RecordedStep(step=name, wall_ns=wall_ns, device_work_count=work_count, **parts))
    return rows


def _show_host_steps(steps: TraceSteps, times: Overlap) -> list[HostStep]:
    host_ns = steps.host.end - steps.host.start
    neither_ns = host_ns - times.computation_ns - times.communication_ns + times.overlap_ns
    return [
        HostStep(
            step=name,
            host_ns=int(host_ns[i]),
            computation_ns=int(times.computation_ns[i]),
            communication_ns=int(times.communication_ns[i]),
            overlap_ns=int(times.overlap_ns[i]),
            neither_ns=int(neither_ns[i]),
        )
        for i, name in enumerate(steps.names)
    ]


def _find_unknown_categories(work: DeviceWork, host: Mapping[str, Intervals]) -> tuple[str, ...]:
    """Find the categories that were not recorded."""
    has_host = any(len(host[category].start) for category in HOST_CATEGORIES)
    return (
        *(() if len(work) else DEVICE_CATEGORIES),
        *(() if len(work) or len(host["communication"].start) else COLLECTIVE_CATEGORIES),
        *(() if len(host["runtime"].start) else RUNTIME_CATEGORIES),
        *(() if has_host else HOST_CATEGORIES),
    )


def _write_notes(
    trace: Trace, steps: TraceSteps, *, marked: MarkedSteps, unknown: tuple[str, ...]
) -> list[str]:
    notes = [explain_missing(NO_STEPS, "steps", trace)] if marked.source == "whole" else []
    if marked.range_name:
        notes.append(DERIVED_STEPS.format(name=marked.range_name))
    if DEVICE_CATEGORIES[0] in unknown:
        notes.append(explain_no_device_work(trace))
    if HOST_CATEGORIES[0] in unknown:
        notes.append(explain_missing(NO_HOST, "operators", trace))
    if steps.cut_off:
        notes.append(
            f"excluded steps: {', '.join(steps.cut_off)}; the trace has less device work of them "
            "than of the steps before, as when it ends while the device is still busy"
        )
    return notes
