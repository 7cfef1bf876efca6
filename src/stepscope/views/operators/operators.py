"""`operators` and `annotations`: calls, ranges and their times by name."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from stepscope import analysis, quantities, schema
from stepscope.run import (
    Replays,
    Run,
    Trace,
    graph_calls_of,
    number_ranks,
    read_annotated_kernels,
    read_annotations,
    read_script_annotations,
    replays_of,
)
from stepscope.views import trace_data
from stepscope.views.options import (
    DEFAULTS,
    OPERATOR_GROUPS,
    Ranged,
    ViewOptions,
    list_names,
    shorten_name,
)

NO_OPERATORS = "the trace has no operators of the framework"
NO_INPUT_SHAPES = "the trace has no shapes of inputs"
NO_STACKS = "the trace has no Python stacks"
NO_CAPTURE = (
    "{share} of device time is in graphs whose operators are unknown: import the trace in which "
    "they were captured into the same run"
)
CAPTURED = (
    "{share} of device time is in graphs whose operators follow from their captures: launches and "
    "replayed kernels have the same kinds, order and, where recorded, names"
)


class TraceOperators(msgspec.Struct, frozen=True, kw_only=True):
    """Operators of one trace."""

    rank: int | None
    trace: str
    sentence: str
    """Operator that takes longest; empty without operators."""
    group_count: int
    call_count: int
    host_self_ns: Annotated[int, schema.field_label("host self time")]
    """Sum over all calls."""
    device_self_ns: Annotated[int | None, schema.field_label("device self time")]
    """Sum over all rows, including work that no operator launched."""
    operators: list[analysis.OperatorGroup]
    shapes: list[analysis.OperatorShape]
    """Used instead of `operators` when grouped by shape."""
    stacks: list[analysis.OperatorStack]
    """Used instead of `operators` when grouped by stack."""
    replayed: list[analysis.ReplayedOperator]
    """Operators captured into graphs; their rows in the table above do not include this time."""
    recomputation: analysis.Recomputation | None
    """Null if unknown: no backward pass in the trace, or no sequence numbers."""
    missing: str | None
    notes: list[str]
    quality: list[trace_data.QualityNote]


class OperatorsView(Ranged, frozen=True, kw_only=True):
    """Payload of `operators`."""

    share_of: str
    by: str
    traces: list[TraceOperators]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_operators(run: Run, options: ViewOptions = DEFAULTS) -> OperatorsView:
    """Show the calls of each operator and their time."""
    by = options.by or OPERATOR_GROUPS[0]
    return OperatorsView(
        share_of=(
            "self time of all operators on the host, or all work of the devices; on tensor cores: "
            "time of the kernels that the operator launched"
        ),
        by=by,
        **trace_data.show_traces(
            run, options, lambda trace: _show_operators_of(run, trace, by, options.top)
        ),
    )


def _show_operators_of(run: Run, trace: Trace, by: str, top: int) -> TraceOperators:
    names = analysis.TABLE_COLUMNS + (("input_dims",) if by == "shape" else ())
    columns = trace.columns("operators", names)
    kernels = trace.columns("kernels", analysis.LAUNCHED_WORK_COLUMNS)
    copies = trace.columns("copies", analysis.LAUNCHED_WORK_COLUMNS)
    has_work = any(len(table["duration_ns"]) for table in (kernels, copies))
    on_device = has_work or bool(columns["device_self_ns"].any())
    graph_calls = graph_calls_of(trace)
    shapes = analysis.make_string_labels(columns["input_dims"]) if by == "shape" else None
    stacks = _label_stacks(trace) if by == "stack" else None
    table = analysis.build_operator_table(
        columns,
        kernels if on_device else None,
        copies,
        graph_calls=graph_calls,
        shapes=shapes,
        stacks=stacks,
        top=top,
    )
    replays = replays_of(run, trace, graph_calls)
    device_ns = table.device_self_ns or 0
    notes = _note_graphs(replays, device_ns)
    if shapes is not None and not (shapes.codes >= 0).any():
        notes.append(trace_data.explain_missing(NO_INPUT_SHAPES, "shapes", trace))
    if stacks is not None and not (stacks.codes >= 0).any():
        notes.append(trace_data.explain_missing(NO_STACKS, "stacks", trace))
    return TraceOperators(
        rank=trace.rank,
        trace=trace.name,
        sentence=_write_sentence(table, by),
        group_count=table.group_count,
        call_count=table.call_count,
        host_self_ns=table.host_self_ns,
        device_self_ns=table.device_self_ns,
        operators=table.rows if by == "name" else [],
        shapes=[row for row in table.rows if isinstance(row, analysis.OperatorShape)],
        stacks=[row for row in table.rows if isinstance(row, analysis.OperatorStack)],
        replayed=analysis.sum_replayed_operators(replays.work, replays.operators, device_ns)[
            : top or None
        ],
        recomputation=analysis.find_recomputation(
            trace.columns("operators", analysis.RECOMPUTATION_COLUMNS), top=top
        ),
        missing=None
        if table.call_count
        else trace_data.explain_missing(NO_OPERATORS, "operators", trace),
        notes=notes,
        quality=trace_data.note_trace_quality(trace, "operators"),
    )


_GROUPS = {"name": "", "shape": " with the same input shapes", "stack": " from the same stack"}


def _write_sentence(table: analysis.OperatorTable, by: str) -> str:
    """Write which group takes longest itself, on the devices where operators launch work there."""
    rows = [row for row in table.rows if row.calls]
    if not rows:
        return ""
    first = max(rows, key=lambda row: (row.device_self_ns or 0, row.host_self_ns))
    on_device = bool(first.device_self_ns)
    self_ns = first.device_self_ns if on_device else first.host_self_ns
    share = quantities.percent(first.device_self_ratio if on_device else first.host_self_ratio)
    calls = f"{quantities.count_of(first.calls, 'call')}{_GROUPS[by]}"
    return (
        f"{shorten_name(first.name)} itself takes {share} of "
        f"{'device' if on_device else 'operator'} time, {quantities.duration(self_ns)} in {calls}."
    )


def _note_graphs(replays: Replays, device_ns: int) -> list[str]:
    """State the shares of graphs with captured operators, and without any operator."""
    captured_ns, unknown_ns = analysis.split_graph_time(replays.work, replays.operators)
    sums = {CAPTURED: captured_ns, NO_CAPTURE: unknown_ns}
    return [
        sentence.format(share=quantities.percent(ns / device_ns, 1))
        for sentence, ns in sums.items()
        if ns
    ]


def _label_stacks(trace: Trace) -> analysis.RowLabels:
    """Label operators by stack: as old profilers wrote it, or from the Python functions."""
    columns: dict[str, Any] = trace.columns("operators", ("call_stack", "python"))
    if (columns["call_stack"].codes >= 0).any():
        return analysis.make_string_labels(columns["call_stack"])
    return analysis.make_stack_labels(
        trace.columns("python_functions", analysis.STACK_COLUMNS), columns["python"]
    )


NO_ANNOTATIONS = "the trace has no annotations"
_BRACKETS = (schema.STEP_PREFIX, *analysis.PROFILER_MARKS)


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations of one trace, or of one process of the job."""

    rank: int | None
    trace: str | None
    """Null for ranges that stepscope recorded in the job itself."""
    process: str | None
    """The process, for ranges that stepscope recorded in the job itself."""
    sentence: str
    """Annotation that takes longest itself; empty without any, or where one is requested."""
    row_count: int
    """Names; a name counts twice if it is both on the host and on devices."""
    annotations: list[analysis.AnnotationGroup]
    """All annotations, unless one is requested by name."""
    histograms: list[analysis.AnnotationHistogram]
    """Histograms of the requested annotation: on the host, then on devices."""
    kernels: list[analysis.KernelGroup]
    """Kernels that were launched while the requested annotation was open on the host."""
    missing: str | None
    quality: list[trace_data.QualityNote]


class AnnotationsView(Ranged, frozen=True, kw_only=True):
    """Payload of `annotations`."""

    name: str | None
    sources: list[Annotations]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_annotations(run: Run, options: ViewOptions = DEFAULTS) -> AnnotationsView:
    """Show named ranges and the distribution of their durations."""
    traces = trace_data.select_traces(run, options)
    sources = [_show_annotations_of(trace, options) for trace in traces]
    if options.trace is None:
        sources += _show_processes(run, options)
    return AnnotationsView(
        name=options.name,
        sources=sources,
        missing=None if sources else trace_data.explain_no_traces(run, traces),
        quality=trace_data.note_run_quality(run, traces),
    )


def _show_annotations_of(trace: Trace, options: ViewOptions) -> Annotations:
    return _show_source(
        read_annotations(trace),
        options,
        rank=trace.rank,
        trace=trace.name,
        kernels=_list_kernels(trace, options) if options.name is not None else [],
        quality=trace_data.note_trace_quality(trace),
    )


def _list_kernels(trace: Trace, options: ViewOptions) -> list[analysis.KernelGroup]:
    kernels = read_annotated_kernels(trace, options.name or "")
    return analysis.build_kernel_table(kernels, top=options.top).rows


def _show_processes(run: Run, options: ViewOptions) -> list[Annotations]:
    numbers = number_ranks(run).by_process
    return [
        _show_source(columns, options, rank=process.rank, process=process.process)
        for process, columns in read_script_annotations(run)
        if options.rank in {None, numbers.get(process.process)}
    ]


def _show_source(
    columns: analysis.Columns,
    options: ViewOptions,
    *,
    rank: int | None,
    trace: str | None = None,
    process: str | None = None,
    kernels: list[analysis.KernelGroup] | None = None,
    quality: list[trace_data.QualityNote] | None = None,
) -> Annotations:
    table = analysis.summarize_annotations(columns, top=options.top)
    missing = None if table.rows else NO_ANNOTATIONS
    histograms: list[analysis.AnnotationHistogram] = []
    if options.name is not None and table.rows:
        histograms = analysis.build_annotation_histograms(
            columns, options.name, bucket_ns=options.bucket_ns
        )
        if not histograms:
            names = list_names(list(dict.fromkeys(row.name for row in table.rows)))
            missing = f"no annotation is called {options.name}; available: {names}"
    return Annotations(
        rank=rank,
        trace=trace,
        process=process,
        sentence="" if options.name is not None else _name_longest(table.rows),
        row_count=table.row_count,
        annotations=table.rows if options.name is None else [],
        histograms=histograms,
        kernels=kernels or [],
        missing=missing,
        quality=quality or [],
    )


ONLY_STEPS = (
    "Only the steps are annotated: ranges of `torch.profiler.record_function` name their parts."
)


def _name_longest(rows: list[analysis.AnnotationGroup]) -> str:
    """Write which annotation takes longest itself, apart from the brackets of profilers."""
    brackets = [row for row in rows if row.name.startswith(_BRACKETS)]
    ranges = [row for row in rows if not row.name.startswith(_BRACKETS)]
    if not ranges:
        return ONLY_STEPS if rows else ""
    first = max(ranges, key=lambda row: row.self_ns)
    of_all, of_brackets = (
        sum(row.self_ns for row in group if row.on_device == first.on_device)
        for group in (rows, brackets)
    )
    share = quantities.percent(first.self_ns / max(1, of_all))
    rest = ""
    if of_brackets > first.self_ns:
        unnamed = quantities.percent(of_brackets / of_all)
        rest = f"; {unnamed} of it is in no range inside the steps"
    return (
        f"{shorten_name(first.name)} itself takes {share} of annotated "
        f"{'device' if first.on_device else 'host'} time, {quantities.duration(first.self_ns)} in "
        f"{quantities.count_of(first.count, 'range')}{rest}."
    )
