"""`kernels`, `kernel-counters` and `launches`: work of devices and its start."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope import analysis, quantities, schema
from stepscope.run import (
    CarryOver,
    Run,
    Trace,
    device_work_of,
    graph_calls_of,
    is_range,
    kernel_counters_of,
    replays_of,
    streams_of,
)
from stepscope.views import trace_data
from stepscope.views.options import (
    COMMUNICATION_OF,
    COUNTER_GROUPS,
    DEFAULTS,
    KERNEL_GROUPS,
    Ranged,
    ViewOptions,
    shorten_kernel,
)


class TraceKernels(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one trace."""

    rank: int | None
    trace: str
    sentence: str
    """Kernel that takes longest; empty without kernels."""
    group_count: int
    call_count: Annotated[int, schema.field_label("launches")]
    total_ns: Annotated[int, schema.field_label("total kernel time")]
    """Sum of the durations of all kernels."""
    tensor_core_ratio: Annotated[float | None, schema.field_label("on Tensor Cores")]
    """Share of `total_ns` on tensor cores; a lower bound if there are unknown kernels."""
    unknown_tensor_core_ratio: Annotated[float | None, schema.field_label("Tensor Cores unknown")]
    """Share of `total_ns` in kernels whose names do not show whether they use tensor cores."""
    communication_ratio: float | None
    """Share of `total_ns` in kernels of collectives."""
    carry_over_count: Annotated[int, schema.field_label("launched before the window")]
    """Kernels launched before the window; the other figures exclude them if they are dropped."""
    carry_over_ns: Annotated[int, schema.field_label("time of work launched before the window")]
    kernels: list[analysis.KernelGroup]
    launches: list[analysis.KernelLaunches]
    """Used instead of `kernels` when grouped by properties."""
    graphs: list[analysis.GraphReplays]
    graph_kernels: list[analysis.GraphKernel]
    """Kernels of the graphs, with the operators that were captured."""
    short_count: Annotated[int, schema.field_label("short kernels")]
    """Kernels shorter than 10 µs, about the time of a launch."""
    short_ns: Annotated[int, schema.field_label("time of short kernels")]
    durations: list[analysis.KernelDurationClass]
    """Kernels by their duration."""
    missing: str | None
    quality: list[trace_data.QualityNote]


class KernelsView(Ranged, frozen=True, kw_only=True):
    """Payload of `kernels`."""

    share_of: str
    communication_of: str
    """Definition of communication."""
    by: str
    carry_over: CarryOver
    traces: list[TraceKernels]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_kernels(run: Run, options: ViewOptions = DEFAULTS) -> KernelsView:
    """Show the kernels that ran on the devices."""
    return KernelsView(
        share_of="sum of the durations of all kernels of the trace, simultaneous kernels each",
        communication_of=COMMUNICATION_OF[options.communication],
        by=options.by or KERNEL_GROUPS[0],
        carry_over=options.carry_over,
        **trace_data.show_traces(run, options, lambda trace: _show_kernels_of(run, trace, options)),
    )


def _show_kernels_of(run: Run, trace: Trace, options: ViewOptions) -> TraceKernels:
    condition = "carry_over = 0" if options.carry_over == "drop" else ""
    carried = trace.columns("kernels", ("duration_ns",), condition="carry_over = 1")["duration_ns"]
    is_collective = trace.collectives.predicate(options.communication)
    if options.by == "properties":
        names = (*analysis.NAME_COLUMNS, *analysis.PROPERTY_COLUMNS, *analysis.LAUNCHER_COLUMNS)
        columns = trace.columns("kernels", names, condition=condition)
        operators = trace.columns("operators", ("id", "name"))
        table = analysis.build_kernel_table_by_properties(
            columns, operators, is_collective=is_collective, top=options.top
        )
    else:
        columns = trace.columns("kernels", analysis.NAME_COLUMNS, condition=condition)
        table = analysis.build_kernel_table(columns, is_collective=is_collective, top=options.top)
    replays = replays_of(run, trace, graph_calls_of(trace), condition=condition)
    durations = analysis.count_kernels_by_duration(columns["duration_ns"])
    short = [row for row in durations if row.to_ns is not None and row.to_ns <= analysis.SHORT_NS]
    return TraceKernels(
        rank=trace.rank,
        trace=trace.name,
        sentence=_write_sentence(table),
        group_count=table.group_count,
        call_count=table.call_count,
        total_ns=table.total_ns,
        tensor_core_ratio=_compute_share(table.tensor_core_ns, table),
        unknown_tensor_core_ratio=_compute_share(table.unknown_tensor_core_ns, table),
        communication_ratio=_compute_share(table.communication_ns, table),
        carry_over_count=len(carried),
        carry_over_ns=int(carried.sum()),
        kernels=table.rows if options.by != "properties" else [],
        launches=[row for row in table.rows if isinstance(row, analysis.KernelLaunches)],
        graphs=analysis.build_graph_table(replays.work, table.total_ns),
        graph_kernels=analysis.list_graph_kernels(
            replays.work, replays.operators, table.total_ns, top=options.top
        ),
        short_count=sum(row.calls for row in short),
        short_ns=sum(row.total_ns for row in short),
        durations=durations,
        missing=None if table.call_count else trace_data.explain_no_device_work(trace),
        quality=trace_data.note_trace_quality(trace, "device"),
    )


def _write_sentence(table: analysis.KernelTable) -> str:
    if not table.rows:
        return ""
    first = max(table.rows, key=lambda row: row.total_ns)
    share = quantities.percent(first.total_ns / max(1, table.total_ns))
    calls = quantities.count_of(first.calls, "call")
    return (
        f"{shorten_kernel(first.name)} takes {share} of kernel time, "
        f"{quantities.duration(first.total_ns)} in {calls}."
    )


def _compute_share(part_ns: int, table: analysis.KernelTable) -> float | None:
    return part_ns / table.total_ns if table.total_ns else None


NO_COUNTERS = "the trace has no hardware counters: {advice}"
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
    measured_count: Annotated[int, schema.field_label("measured kernels")]
    """Ranges of the counters: one per kernel if they were measured per kernel."""
    total_flop: Annotated[float | None, schema.field_label("FLOPs")]
    """Null if the counters that give them were not measured."""
    kernel_flops: Annotated[list[analysis.CounterFlops], schema.field_label("FLOPs by kernel")]
    operator_flops: Annotated[list[analysis.CounterFlops], schema.field_label("FLOPs by operator")]
    """By the operator that launched the kernel, or the outermost one around it."""
    counters: list[analysis.KernelCounter]
    missing: str | None
    notes: list[str]
    quality: list[trace_data.QualityNote]


class KernelCountersView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `kernel-counters`.

    It has no range of time: the times of the counters' ranges are not those of the kernels.
    """

    share_of: str
    by: str
    traces: list[TraceKernelCounters]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_kernel_counters(run: Run, options: ViewOptions = DEFAULTS) -> KernelCountersView:
    """Show the hardware counters of kernels and of the operators that launched them."""
    return KernelCountersView(
        share_of="FLOPs of all measured kernels",
        by=options.by or COUNTER_GROUPS[0],
        **trace_data.show_traces(run, options, lambda trace: _show_counters_of(trace, options)),
    )


def _show_counters_of(trace: Trace, options: ViewOptions) -> TraceKernelCounters:
    measured = kernel_counters_of(trace, outermost=options.by == "outermost")
    counters, kernels, operators = measured.counters, measured.kernels, measured.operators
    flops = analysis.count_flops(counters)
    notes = []
    if counters and operators is None:
        notes.append(
            NOT_PER_KERNEL.format(
                ranges=quantities.count_of(measured.range_count, "range"),
                kernels=quantities.count_of(measured.kernel_count, "kernel"),
                launches=quantities.count_of(measured.launch_count, "launch", "launches"),
            )
        )
    if flops is not None:
        notes.append(FLOPS_OF.format(precisions=", ".join(flops.precisions)))
    shown = [name for name in counters if (options.name or "") in name]
    missing = None
    if not shown:
        advice = trace.recorder.advise("counters")
        missing = (NO_SUCH_COUNTER if counters else NO_COUNTERS).format(
            name=options.name, advice=advice
        )
    top = options.top
    return TraceKernelCounters(
        rank=trace.rank,
        trace=trace.name,
        measured_count=measured.range_count,
        total_flop=flops.total if flops else None,
        kernel_flops=analysis.summarize_flops(flops.flop, kernels, top=top) if flops else [],
        operator_flops=(
            analysis.summarize_flops(flops.flop, operators, top=top) if flops and operators else []
        ),
        counters=[
            analysis.summarize_counter(name, counters[name], kernels, operators, top=top)
            for name in shown
        ],
        missing=missing,
        notes=notes,
        quality=trace_data.note_trace_quality(trace, "operators"),
    )


NO_LAUNCH = "no runtime call in the trace launched any of its device work"


class TraceLaunches(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of one trace."""

    rank: int | None
    trace: str
    sentence: str
    """Time and delay of all launches; empty without launches."""
    calls: list[analysis.CallLaunches]
    """All calls together, then by runtime function, most used first."""
    operators: list[analysis.CallLaunches]
    """By the operator that made the call, most launches first."""
    sequences: list[analysis.KernelSequence]
    """Kernels that one outermost operator launches again and again, by kernel time: candidates for
    fusion."""
    bucket_ns: int | None
    queues: list[analysis.StreamQueue]
    missing: str | None
    quality: list[trace_data.QualityNote]


class LaunchesView(Ranged, frozen=True, kw_only=True):
    """Payload of `launches`."""

    long_call_ns: int
    long_delay_ns: int
    blocked_depth: Annotated[int, schema.field_label(unit="count")]
    traces: list[TraceLaunches]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_launches(run: Run, options: ViewOptions = DEFAULTS) -> LaunchesView:
    """Show the cost of launches, their delay and the queue depth."""
    thresholds = analysis.DEFAULT_LAUNCH_THRESHOLDS
    return LaunchesView(
        long_call_ns=thresholds.long_call_ns,
        long_delay_ns=thresholds.long_delay_ns,
        blocked_depth=thresholds.blocked_count,
        **trace_data.show_traces(run, options, lambda trace: _show_launches_of(trace, options)),
    )


def _show_launches_of(trace: Trace, options: ViewOptions) -> TraceLaunches:
    columns = trace.columns("runtime_calls", ("id", "name", "operator", "start_ns", "duration_ns"))
    operators = trace.columns("operators", analysis.SEQUENCE_OPERATOR_COLUMNS)
    calls = analysis.RuntimeCalls.from_columns(columns)
    work = device_work_of(trace, "keep")
    launches = analysis.find_launches(work, calls)
    buckets = trace_data.choose_buckets(trace, options)
    missing = None
    if not len(launches):
        missing = (
            trace_data.explain_missing(NO_LAUNCH, "launches", trace)
            if len(work)
            else trace_data.explain_no_device_work(trace)
        )
    by_call = analysis.summarize_launches_by_call(launches, calls, columns["name"])
    return TraceLaunches(
        rank=trace.rank,
        trace=trace.name,
        sentence=_describe_launches(by_call),
        calls=by_call,
        operators=analysis.summarize_launches_by_operator(
            launches, calls, columns["operator"], operators, top=options.top
        ),
        sequences=analysis.find_kernel_sequences(
            trace.columns("kernels", analysis.SEQUENCE_KERNEL_COLUMNS),
            operators,
            analysis.match_rows(operators["name"], is_range),
            top=options.top,
        ),
        bucket_ns=buckets.width_ns if buckets is not None else None,
        queues=analysis.measure_queue_depths(launches, buckets, streams=streams_of(trace)),
        missing=missing,
        quality=trace_data.note_trace_quality(trace, "launches"),
    )


def _describe_launches(calls: list[analysis.CallLaunches]) -> str:
    """Write how long launches take, and how much later their work starts."""
    if not calls:
        return ""
    total = calls[0]
    delay = (
        ""
        if total.delay_p50_ns is None
        else f"; their work starts {quantities.duration(total.delay_p50_ns)} later in the median"
    )
    return (
        f"{quantities.count_of(total.launch_count, 'launch', 'launches')} take "
        f"{quantities.duration(total.call_mean_ns)} each on average{delay}."
    )
