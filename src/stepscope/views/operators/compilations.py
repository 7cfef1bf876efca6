"""`compilations`: what torch.compile compiled, why again, and the work of the compiled code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec.structs import asdict

from stepscope import analysis, schema
from stepscope.run import (
    Run,
    process_names,
    read_compilations,
    read_compiled_work,
    read_ended_spans,
)
from stepscope.views import trace_data
from stepscope.views.options import DEFAULTS, ViewOptions

MAX_COMPILATION_NS = 24 * 3600 * 10**9
"""Recorded compilations that take longer are not found."""
NO_COMPILATIONS = (
    "no compilation was recorded: import the log that a job writes into the directory of "
    "TORCH_TRACE=DIR"
)


class CompilationRow(msgspec.Struct, frozen=True, kw_only=True):
    """One compilation."""

    rank: int | None
    compile_id: str
    direction: str
    function: str
    file: str
    line: int
    start_after_ns: int | None
    """Start, after the run's origin."""
    duration_ns: int | None
    """Null if the log does not tell it, or ends before."""
    backend_ns: int | None
    inductor_ns: int | None
    codegen_ns: Annotated[int | None, schema.field_label("code generation")]
    restart_ns: Annotated[int | None, schema.field_label("attempts before")]
    """Time of attempts that were started again."""
    saved_ns: Annotated[int, schema.field_label("saved by caches")]
    guard_count: int | None
    operator_count: int | None
    graph_break_count: int | None
    """Null if the log has no record of them."""
    failed_guards: list[str]
    """Guards of earlier compilations that were false."""
    restarts: list[str]
    """Causes of restarts."""
    graph_breaks: list[str]
    failure: str | None
    call_count: int | None
    """Calls of its graphs in traces; null where they cannot be told."""
    call_ns: Annotated[int | None, schema.field_label("calls, on the host")]
    kernel_ns: Annotated[int | None, schema.field_label("kernels")]
    """Its kernels in traces; null where they cannot be told from those of others."""


class RecordedCompilations(msgspec.Struct, frozen=True, kw_only=True):
    """Compilations of one cause that stepscope recorded in a process of the job."""

    rank: int | None
    process: str
    name: Annotated[str, schema.field_label("cause or function")]
    """Cause of torch.compile, or function of JAX or TensorFlow."""
    count: int
    total_ns: int


class CompilationsView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `compilations`."""

    compilation_count: int
    recompilation_count: int | None
    """Compilations after a failed guard. Null without a log, as are the counts below."""
    graph_break_count: int | None
    """Null if a log has no record of them."""
    cache_hit_count: int | None
    cache_miss_count: int | None
    total_ns: Annotated[int, schema.field_label("time of compilations")]
    """Sum over all ranks."""
    frames: list[analysis.CompiledFrame]
    """Functions, the longest to compile first."""
    failed_guards: list[analysis.CompilationCause]
    graph_breaks: list[analysis.CompilationCause]
    restarts: list[analysis.CompilationCause]
    compilations: list[CompilationRow]
    """The longest first."""
    kernels: list[analysis.CompiledKernel]
    """Kernels in the traces of the run whose names compilations have."""
    recorded: Annotated[list[RecordedCompilations], schema.field_label("compilations by cause")]
    missing: str | None


def show_compilations(run: Run, options: ViewOptions = DEFAULTS) -> CompilationsView:
    """Show the compilations of a job, their causes, and the work of the compiled code."""
    compilations = [
        compilation
        for compilation in read_compilations(run)
        if options.rank is None or compilation.rank in (None, options.rank)
    ]
    index = analysis.CompilationIndex(compilations)
    traces = trace_data.select_traces(run, options) if compilations else []
    kernels, calls = read_compiled_work(traces, index.kernels)
    works = index.attribute_work(kernels, calls)
    rows = [
        _show_compilation(run, compilation, work)
        for compilation, work in zip(compilations, works, strict=True)
    ]
    frames = analysis.list_frames(compilations)
    recorded = _list_recorded(run, options)
    top = options.top or None
    return CompilationsView(
        compilation_count=len(compilations) or sum(row.count for row in recorded),
        recompilation_count=_sum(frame.recompilation_count for frame in frames),
        graph_break_count=_sum(frame.graph_break_count for frame in frames),
        cache_hit_count=_sum(frame.cache_hit_count for frame in frames),
        cache_miss_count=_sum(frame.cache_miss_count for frame in frames),
        total_ns=sum(row.total_ns for row in frames or recorded),
        frames=frames[:top],
        failed_guards=analysis.list_causes(compilations, "failed_guard")[:top],
        graph_breaks=analysis.list_causes(compilations, "graph_break")[:top],
        restarts=analysis.list_causes(compilations, "restart")[:top],
        compilations=sorted(rows, key=lambda row: -(row.duration_ns or 0))[:top],
        kernels=index.join_kernels(kernels)[:top],
        recorded=recorded[:top],
        missing=None if compilations or recorded else NO_COMPILATIONS,
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Sum counts of a log; None without one, or if a count is unknown."""
    values = list(counts)
    return analysis.sum_counts(values) if values else None


def _show_compilation(
    run: Run, compilation: analysis.Compilation, work: analysis.CompiledWork
) -> CompilationRow:
    fields = asdict(compilation)
    del fields["events"]
    start_ns = fields.pop("start_ns")
    return CompilationRow(
        **fields,
        start_after_ns=None if start_ns is None else start_ns - run.clock.origin_ns,
        saved_ns=compilation.saved_ns,
        failed_guards=compilation.names("failed_guard"),
        restarts=compilation.names("restart"),
        graph_breaks=compilation.names("graph_break"),
        call_count=work.call_count,
        call_ns=work.call_ns,
        kernel_ns=work.kernel_ns,
    )


def _list_recorded(run: Run, options: ViewOptions) -> list[RecordedCompilations]:
    """List the compilations that were recorded in the job, the longest first."""
    ranks = {process.process: process.rank for process in run.processes}
    names = process_names(run)
    count: Counter[tuple[str, str]] = Counter()
    total_ns: Counter[tuple[str, str]] = Counter()
    spans = read_ended_spans(run.reader, "compile", run.period, max_ns=MAX_COMPILATION_NS)
    for group in spans:
        if options.rank is None or ranks.get(group.process) == options.rank:
            count[group.process, group.name] += len(group.duration_ns)
            total_ns[group.process, group.name] += int(group.duration_ns.sum())
    return [
        RecordedCompilations(
            rank=ranks.get(process),
            process=names.get(process, process),
            name=name,
            count=count[process, name],
            total_ns=time_ns,
        )
        for (process, name), time_ns in total_ns.most_common()
    ]
