"""`kernels`: kernels that ran on the devices, by name or by launch properties."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    LAUNCHER_COLUMNS,
    NAME_COLUMNS,
    PROPERTY_COLUMNS,
    SHORT_NS,
    GraphKernel,
    GraphReplays,
    KernelDurationClass,
    KernelGroup,
    KernelLaunches,
    KernelTable,
    build_graph_table,
    build_kernel_table,
    build_kernel_table_by_properties,
    count_kernels_by_duration,
    list_graph_kernels,
)
from stepscope.run import CarryOver, Run, Trace, graph_calls_of, replays_of
from stepscope.schema import field_label
from stepscope.views.missing_data import explain_no_device_work
from stepscope.views.options import COMMUNICATION_OF, DEFAULTS, KERNEL_GROUPS, ViewOptions
from stepscope.views.quality import QualityNote, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import show_traces


class TraceKernels(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one trace."""

    rank: int | None
    trace: str
    group_count: int
    call_count: Annotated[int, field_label("launches")]
    total_ns: Annotated[int, field_label("total kernel time")]
    """Sum of the durations of all kernels."""
    tensor_core_ratio: Annotated[float | None, field_label("on Tensor Cores")]
    """Share of `total_ns` on tensor cores; a lower bound if there are unknown kernels."""
    unknown_tensor_core_ratio: Annotated[float | None, field_label("Tensor Cores unknown")]
    """Share of `total_ns` in kernels whose names do not show whether they use tensor cores."""
    communication_ratio: float | None
    """Share of `total_ns` in kernels of collectives."""
    carry_over_count: Annotated[int, field_label("launched before the window")]
    """Kernels launched before the window; the other figures exclude them if they are dropped."""
    carry_over_ns: Annotated[int, field_label("time of work launched before the window")]
    kernels: list[KernelGroup]
    launches: list[KernelLaunches]
    """Used instead of `kernels` when grouped by properties."""
    graphs: list[GraphReplays]
    graph_kernels: list[GraphKernel]
    """Kernels of the graphs, with the operators that were captured."""
    short_count: Annotated[int, field_label("short kernels")]
    """Kernels shorter than 10 µs, about the time of a launch."""
    short_ns: Annotated[int, field_label("time of short kernels")]
    durations: list[KernelDurationClass]
    """Kernels by their duration."""
    missing: str | None
    quality: list[QualityNote]


class KernelsView(Ranged, frozen=True, kw_only=True):
    """Payload of `kernels`."""

    share_of: str
    communication_of: str
    """Definition of communication."""
    by: str
    carry_over: CarryOver
    traces: list[TraceKernels]
    missing: str | None
    quality: list[QualityNote]


def show_kernels(run: Run, options: ViewOptions = DEFAULTS) -> KernelsView:
    """Show the kernels that ran on the devices."""
    return KernelsView(
        share_of="sum of the durations of all kernels of the trace, simultaneous kernels each",
        communication_of=COMMUNICATION_OF[options.communication],
        by=options.by or KERNEL_GROUPS[0],
        carry_over=options.carry_over,
        **show_traces(run, options, lambda trace: _show_trace(run, trace, options)),
    )


def _show_trace(run: Run, trace: Trace, options: ViewOptions) -> TraceKernels:
    condition = "carry_over = 0" if options.carry_over == "drop" else ""
    carried = trace.columns("kernels", ("duration_ns",), condition="carry_over = 1")["duration_ns"]
    is_collective = trace.collectives.predicate(options.communication)
    if options.by == "properties":
        names = (*NAME_COLUMNS, *PROPERTY_COLUMNS, *LAUNCHER_COLUMNS)
        columns = trace.columns("kernels", names, condition=condition)
        operators = trace.columns("operators", ("id", "name"))
        table = build_kernel_table_by_properties(
            columns, operators, is_collective=is_collective, top=options.top
        )
    else:
        columns = trace.columns("kernels", NAME_COLUMNS, condition=condition)
        table = build_kernel_table(columns, is_collective=is_collective, top=options.top)
    replays = replays_of(run, trace, graph_calls_of(trace), condition=condition)
    durations = count_kernels_by_duration(columns["duration_ns"])
    short = [row for row in durations if row.to_ns is not None and row.to_ns <= SHORT_NS]
    return TraceKernels(
        rank=trace.rank,
        trace=trace.name,
        group_count=table.group_count,
        call_count=table.call_count,
        total_ns=table.total_ns,
        tensor_core_ratio=_compute_share(table.tensor_core_ns, table),
        unknown_tensor_core_ratio=_compute_share(table.unknown_tensor_core_ns, table),
        communication_ratio=_compute_share(table.communication_ns, table),
        carry_over_count=len(carried),
        carry_over_ns=int(carried.sum()),
        kernels=table.rows if options.by != "properties" else [],
        launches=[row for row in table.rows if isinstance(row, KernelLaunches)],
        graphs=build_graph_table(replays.work, table.total_ns),
        graph_kernels=list_graph_kernels(
            replays.work, replays.operators, table.total_ns, top=options.top
        ),
        short_count=sum(row.calls for row in short),
        short_ns=sum(row.total_ns for row in short),
        durations=durations,
        missing=None if table.call_count else explain_no_device_work(trace),
        quality=note_trace_quality(trace, "device"),
    )


def _compute_share(part_ns: int, table: KernelTable) -> float | None:
    return part_ns / table.total_ns if table.total_ns else None
