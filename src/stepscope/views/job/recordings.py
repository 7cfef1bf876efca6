"""`recordings`: traces of a run, to choose from, and the views for which it has no data.

A range of time does not restrict the list: a choice must not vanish because of a range selected
elsewhere. A view of a trace outside the range explains that itself.

Whether a view has data comes from row counts, names of events and small documents, so that it is
known before any view is computed. A view may still be empty, for example in a range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec

from stepscope import analysis, rules, schema
from stepscope.run import (
    FETCH_KINDS,
    TF_DATA_PREFIX,
    Run,
    Trace,
    find_processes,
    list_boosted_models,
    list_event_names,
    read_annotations,
    read_script_annotations,
)
from stepscope.views import system, trace_data
from stepscope.views.devices.kernels import NO_COUNTERS
from stepscope.views.devices.memory import NO_MEMORY
from stepscope.views.devices.memory_snapshot import explain_no_snapshots
from stepscope.views.job.overview import explain_no_configuration
from stepscope.views.operators.compilations import NO_COMPILATIONS
from stepscope.views.operators.modules import NO_MODULES
from stepscope.views.operators.operators import NO_ANNOTATIONS, NO_INPUT_SHAPES, NO_OPERATORS
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.steps.critical_path import explain_no_path
from stepscope.views.steps.input_pipeline import NO_BATCHES, explain_no_pipeline
from stepscope.views.steps.steps import explain_no_steps
from stepscope.views.tensors.boosting import NO_MODELS
from stepscope.views.tensors.tensors import explain_no_scalars

ONE_RANK_IN_FILES = (
    "lateness is a comparison of ranks, and the run has steps of fewer than two: import the trace "
    "of each rank"
)
ONE_RANK = (
    f"{ONE_RANK_IN_FILES}, or start more with `stepscope run -- torchrun --nproc-per-node N SCRIPT`"
)


class RecordingName(msgspec.Struct, frozen=True, kw_only=True):
    """One trace of the framework's profiler."""

    trace: str
    """Name for `--trace`."""
    rank: int | None
    event_count: int
    duration_ns: int
    """Time from the start of its first event to the end of its last."""
    first_step: Annotated[int | None, schema.field_label(display="identifier")]
    """First step of its window; null for an imported file."""


class MissingView(msgspec.Struct, frozen=True, kw_only=True):
    """View for which the run has no data."""

    name: str
    reason: str
    """Missing data and how to record them; commands are in backticks."""


class RecordingsView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `recordings`."""

    recordings: list[RecordingName]
    """Traces by rank."""
    not_recorded: list[MissingView]
    """Views for which the run has no data."""
    missing: str | None


def show_recordings(run: Run, _options: ViewOptions = DEFAULTS) -> RecordingsView:
    """Show the traces of a run."""
    traces = run.traces
    return RecordingsView(
        recordings=[
            RecordingName(
                trace=trace.name,
                rank=trace.rank,
                event_count=trace.event_count,
                duration_ns=trace.end_ns - trace.start_ns,
                first_step=None if trace.window_facts is None else trace.window_facts.first_step,
            )
            for trace in traces
        ],
        not_recorded=list_missing_views(run),
        missing=trace_data.explain_no_traces(run, traces),
    )


def list_missing_views(run: Run) -> list[MissingView]:
    """List the views for which a run has no data."""
    return [
        MissingView(name=name, reason=reason)
        for name, explain in _EXPLANATIONS.items()
        if (reason := explain(run)) is not None
    ]


def _explain_rows(explain: Callable[[Trace], str], *tables: str) -> Callable[[Run], str | None]:
    """Return a function that explains why a run has no row in some tables of traces."""

    def explain_run(run: Run) -> str | None:
        if any(run.reader.row_count(table) for table in tables):
            return None
        return trace_data.explain_no_traces(run, run.traces) or explain(run.traces[0])

    return explain_run


def _explain_no_modules(run: Run) -> str | None:
    if any(name.startswith(analysis.MODULE_PREFIXES) for name in list_event_names(run.reader)):
        return None
    return trace_data.explain_no_traces(run, run.traces) or trace_data.explain_missing(
        NO_MODULES, "modules", run.traces[0]
    )


def _explain_no_annotations(run: Run) -> str | None:
    if run.reader.row_count("annotations") or read_script_annotations(run):
        return None
    if any(len(read_annotations(trace)["duration_ns"]) for trace in run.traces):
        return None  # older traces have them among the operators
    return trace_data.explain_no_traces(run, run.traces) or NO_ANNOTATIONS


def _explain_no_roofline(run: Run) -> str | None:
    if any(trace.has_shapes for trace in run.traces):
        return None
    return trace_data.explain_no_traces(run, run.traces) or trace_data.explain_missing(
        NO_INPUT_SHAPES, "shapes", run.traces[0]
    )


def _explain_no_counters(run: Run) -> str | None:
    if not run.traces:
        return trace_data.explain_no_traces(run, run.traces)
    rows = run.reader.sql(
        "SELECT count(*) AS count FROM other_events WHERE category = ?",
        (analysis.COUNTER_CATEGORY,),
    )
    if rows["count"][0]:
        return None
    return NO_COUNTERS.format(advice=run.traces[0].recorder.advise("counters"))


def _explain_no_compilations(run: Run) -> str | None:
    recorded = run.reader.row_count("compilations") or _has_spans(run, "compile")
    return None if recorded else NO_COMPILATIONS


def _has_spans(run: Run, *kinds: str) -> bool:
    return run.reader.has("spans") and bool(find_processes(run.reader, kinds, run.period))


def _explain_no_input(run: Run) -> str | None:
    if run.ranks:
        return None if _has_spans(run, *FETCH_KINDS) else NO_BATCHES
    fetches = any(
        analysis.is_data_loader(name) or name.startswith(TF_DATA_PREFIX)
        for name in list_event_names(run.reader)
    )
    return None if fetches else explain_no_pipeline(run)


def _explain_no_tensors(run: Run) -> str | None:
    recorded = any(run.reader.row_count(table) for table in ("scalars", "tensor_statistics"))
    if recorded or rules.find_first_origin(run.processes):
        return None
    return explain_no_scalars(run)


def _explain_one_rank(run: Run) -> str | None:
    rank_count = len(run.ranks) or len({trace.rank for trace in run.traces} - {None})
    if rank_count >= 2:
        return None
    return ONE_RANK_IN_FILES if run.is_imported else ONE_RANK


_EXPLANATIONS: dict[str, Callable[[Run], str | None]] = {
    "configuration": explain_no_configuration,
    "steps": lambda run: None if run.ranks or run.traces else explain_no_steps(run),
    "critical-path": explain_no_path,
    "input-pipeline": _explain_no_input,
    "operators": _explain_rows(
        lambda trace: trace_data.explain_missing(NO_OPERATORS, "operators", trace), "operators"
    ),
    "modules": _explain_no_modules,
    "annotations": _explain_no_annotations,
    "gpu-time": _explain_rows(trace_data.explain_no_device_work, "kernels", "copies"),
    "kernels": _explain_rows(trace_data.explain_no_device_work, "kernels", "copies"),
    "memory": _explain_rows(
        lambda trace: trace_data.explain_missing(NO_MEMORY, "memory", trace),
        "memory_events",
        "memory_categories",
    ),
    "kernel-counters": _explain_no_counters,
    "roofline": _explain_no_roofline,
    "compilations": _explain_no_compilations,
    "system": lambda run: None if run.nodes else system.explain_no_samples(run),
    "ranks": _explain_one_rank,
    "tensors": _explain_no_tensors,
    "xgboost": lambda run: None if list_boosted_models(run) else NO_MODELS,
    "memory-snapshot": lambda run: (
        None if run.reader.row_count("memory_snapshots") else explain_no_snapshots(run)
    ),
}
