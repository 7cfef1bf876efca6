"""`annotations`: named ranges and the distribution of their durations."""

from __future__ import annotations

import msgspec

from stepscope.analysis import (
    AnnotationGroup,
    AnnotationHistogram,
    Columns,
    KernelGroup,
    build_annotation_histograms,
    build_kernel_table,
    summarize_annotations,
)
from stepscope.run import (
    Run,
    Trace,
    number_ranks,
    read_annotated_kernels,
    read_annotations,
    read_script_annotations,
)
from stepscope.views.names import list_names
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, note_run_quality, note_trace_quality
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import explain_no_traces, select_traces

NO_ANNOTATIONS = "the trace has no annotations"


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations of one trace, or of one process of the job."""

    rank: int | None
    trace: str | None
    """Null for ranges that stepscope recorded in the job itself."""
    process: str | None
    """The process, for ranges that stepscope recorded in the job itself."""
    row_count: int
    """Names; a name counts twice if it is both on the host and on devices."""
    annotations: list[AnnotationGroup]
    """All annotations, unless one is requested by name."""
    histograms: list[AnnotationHistogram]
    """Histograms of the requested annotation: on the host, then on devices."""
    kernels: list[KernelGroup]
    """Kernels that were launched while the requested annotation was open on the host."""
    missing: str | None
    quality: list[QualityNote]


class AnnotationsView(Ranged, frozen=True, kw_only=True):
    """Payload of `annotations`."""

    name: str | None
    sources: list[Annotations]
    missing: str | None
    quality: list[QualityNote]


def show_annotations(run: Run, options: ViewOptions = DEFAULTS) -> AnnotationsView:
    """Show named ranges and the distribution of their durations."""
    traces = select_traces(run, options)
    sources = [_show_trace(trace, options) for trace in traces]
    if options.trace is None:
        sources += _show_processes(run, options)
    return AnnotationsView(
        name=options.name,
        sources=sources,
        missing=None if sources else explain_no_traces(run, traces),
        quality=note_run_quality(run, traces),
    )


def _show_trace(trace: Trace, options: ViewOptions) -> Annotations:
    return _show_source(
        read_annotations(trace),
        options,
        rank=trace.rank,
        trace=trace.name,
        kernels=_list_kernels(trace, options) if options.name is not None else [],
        quality=note_trace_quality(trace),
    )


def _list_kernels(trace: Trace, options: ViewOptions) -> list[KernelGroup]:
    kernels = read_annotated_kernels(trace, options.name or "")
    return build_kernel_table(kernels, top=options.top).rows


def _show_processes(run: Run, options: ViewOptions) -> list[Annotations]:
    numbers = number_ranks(run).by_process
    return [
        _show_source(columns, options, rank=process.rank, process=process.process)
        for process, columns in read_script_annotations(run)
        if options.rank in {None, numbers.get(process.process)}
    ]


def _show_source(
    columns: Columns,
    options: ViewOptions,
    *,
    rank: int | None,
    trace: str | None = None,
    process: str | None = None,
    kernels: list[KernelGroup] | None = None,
    quality: list[QualityNote] | None = None,
) -> Annotations:
    table = summarize_annotations(columns, top=options.top)
    missing = None if table.rows else NO_ANNOTATIONS
    histograms: list[AnnotationHistogram] = []
    if options.name is not None and table.rows:
        histograms = build_annotation_histograms(columns, options.name, bucket_ns=options.bucket_ns)
        if not histograms:
            names = list_names(list(dict.fromkeys(row.name for row in table.rows)))
            missing = f"no annotation is called {options.name}; available: {names}"
    return Annotations(
        rank=rank,
        trace=trace,
        process=process,
        row_count=table.row_count,
        annotations=table.rows if options.name is None else [],
        histograms=histograms,
        kernels=kernels or [],
        missing=missing,
        quality=quality or [],
    )
