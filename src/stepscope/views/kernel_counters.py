"""`kernel-counters`: hardware counters of kernels and of the operators that launched them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    CounterFlops,
    KernelCounter,
    count_flops,
    summarize_counter,
    summarize_flops,
)
from stepscope.quantities import count_of
from stepscope.run import Run, Trace, kernel_counters_of
from stepscope.schema import Payload, field_label
from stepscope.views.options import COUNTER_GROUPS, DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.trace_choice import show_traces

NO_COUNTERS = (
    "the trace has no hardware counters: torch.profiler stores them with "
    "experimental_config=torch._C._profiler._ExperimentalConfig(profiler_metrics=[…], "
    "profiler_measure_per_kernel=True), CUDA before 12.6"
)
NO_SUCH_COUNTER = "the trace has no counter whose name contains {name!r}"
NOT_PER_KERNEL = (
    "the operators are unknown: {ranges} of counters, {kernels} and {launches} of kernels in the "
    "trace, so ranges and kernels cannot be matched; they can with profiler_measure_per_kernel=True"
)
FLOPS_OF = (
    "FLOPs are of the precisions whose counters were measured ({precisions}): 2 per fused "
    "multiply-add, 1 per addition or multiplication; instructions of tensor cores are not in them"
)


class TraceKernelCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one trace."""

    rank: int | None
    trace: str
    measured_count: Annotated[int, field_label("measured kernels")]
    """Ranges of the counters: one per kernel if they were measured per kernel."""
    total_flop: Annotated[float | None, field_label("FLOPs")]
    """Null if the counters that give them were not measured."""
    kernel_flops: Annotated[list[CounterFlops], field_label("FLOPs by kernel")]
    operator_flops: Annotated[list[CounterFlops], field_label("FLOPs by operator")]
    """By the operator that launched the kernel, or the outermost one around it."""
    counters: list[KernelCounter]
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class KernelCountersView(Payload, frozen=True, kw_only=True):
    """Payload of `kernel-counters`.

    It has no range of time: the times of the counters' ranges are not those of the kernels.
    """

    share_of: str
    by: str
    traces: list[TraceKernelCounters]
    missing: str | None
    quality: list[QualityNote]


def show_kernel_counters(run: Run, options: ViewOptions = DEFAULTS) -> KernelCountersView:
    """Show the hardware counters of kernels and of the operators that launched them."""
    return KernelCountersView(
        share_of="FLOPs of all measured kernels",
        by=options.by or COUNTER_GROUPS[0],
        **show_traces(run, options, lambda trace: _show_trace(trace, options)),
    )


def _show_trace(trace: Trace, options: ViewOptions) -> TraceKernelCounters:
    measured = kernel_counters_of(trace, outermost=options.by == "outermost")
    counters, kernels, operators = measured.counters, measured.kernels, measured.operators
    flops = count_flops(counters)
    notes = []
    if counters and operators is None:
        notes.append(
            NOT_PER_KERNEL.format(
                ranges=count_of(measured.range_count, "range"),
                kernels=count_of(measured.kernel_count, "kernel"),
                launches=count_of(measured.launch_count, "launch", "launches"),
            )
        )
    if flops is not None:
        notes.append(FLOPS_OF.format(precisions=", ".join(flops.precisions)))
    shown = [name for name in counters if (options.name or "") in name]
    missing = None
    if not shown:
        missing = NO_SUCH_COUNTER.format(name=options.name) if counters else NO_COUNTERS
    top = options.top
    return TraceKernelCounters(
        rank=trace.rank,
        trace=trace.name,
        measured_count=measured.range_count,
        total_flop=flops.total if flops else None,
        kernel_flops=summarize_flops(flops.flop, kernels, top=top) if flops else [],
        operator_flops=(
            summarize_flops(flops.flop, operators, top=top) if flops and operators else []
        ),
        counters=[
            summarize_counter(name, counters[name], kernels, operators, top=top) for name in shown
        ],
        missing=missing,
        notes=notes,
        quality=note_trace_quality(trace, "operators"),
    )
