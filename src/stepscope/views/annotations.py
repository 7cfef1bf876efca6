"""`annotations`: named ranges, and how the durations of one are distributed."""

from __future__ import annotations

from dataclasses import asdict, replace

import msgspec
import numpy as np

from stepscope.analysis import (
    ANNOTATION_COLUMNS,
    EXCLUDED_NAMES,
    EXCLUDED_PREFIXES,
    Columns,
    DurationHistogram,
    Statistics,
    build_annotation_histograms,
    make_statistics,
    summarize_annotations,
)
from stepscope.run import Run, RunRange, Trace
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings

_MARKS = " OR ".join(
    [f"starts_with(name, '{prefix}')" for prefix in EXCLUDED_PREFIXES]
    + [f"name = '{name}'" for name in sorted(EXCLUDED_NAMES)]
)


class AnnotationGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges of one name, on the host or as their shadow on devices."""

    name: str
    """Names that differ only in a number after a `#` are one, `...#*`."""
    on_device: bool
    count: int
    total_ns: int
    mean_ns: float
    p50_ns: float
    p95_ns: float
    max_ns: int


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges that took at least `from_ns` and less than the next bucket's."""

    from_ns: int
    count: int


class AnnotationHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of the ranges that were asked for."""

    on_device: bool
    total_ns: int
    duration_ns: Statistics | None
    bucket_ns: int
    buckets: list[Bucket]


class Annotations(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations of one recording, or of one process of the job."""

    rank: int | None
    trace: str | None
    """The recording; null for ranges that stepscope recorded in the job itself."""
    process: str | None
    """The process, when it is not a recording."""
    row_count: int
    """Names, counted twice when both on the host and on devices."""
    annotations: list[AnnotationGroup]
    """All of them, when none is asked for by name."""
    histograms: list[AnnotationHistogram]
    """Of the one that is asked for: on the host, then on devices."""
    missing: str | None
    quality: list[QualityNote]


class AnnotationsView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    name: str | None
    sources: list[Annotations]
    missing: str | None
    quality: list[QualityNote]


def annotation_ranges(run: Run, options: ViewOptions = DEFAULTS) -> AnnotationsView:
    """Named ranges, and how the durations of one are distributed."""
    traces = chosen_traces(run, options)
    processes = [] if options.trace is not None else _processes(run, options)
    sources = [_trace(trace, options) for trace in traces] + processes
    return AnnotationsView(
        name=options.name,
        sources=sources,
        missing=None if sources else missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(trace: Trace, options: ViewOptions) -> Annotations:
    columns = trace.columns("annotations", ANNOTATION_COLUMNS)
    if not len(columns["duration_ns"]):
        # Recorders before 2022 wrote steps, loaders and optimizers down as operators.
        columns = trace.columns("operators", ("name", "duration_ns"), condition=_MARKS)
        columns["on_device"] = np.zeros(len(columns["duration_ns"]), dtype=np.int64)
    return _source(
        columns,
        options,
        rank=trace.rank,
        trace=trace.name,
        quality=quality_notes(trace),
    )


def _processes(run: Run, options: ViewOptions) -> list[Annotations]:
    """Ranges that the script marked itself, for each process that has any."""
    begun = ""
    if isinstance(run, RunRange):
        begun = f" AND start_ns >= {run.start_ns} AND start_ns < {run.end_ns}"
    rows = run.reader.table(
        "spans",
        columns=["name", "process", "start_ns", "end_ns"],
        condition=f"kind = 'annotation' AND end_ns IS NOT NULL{begun}",
        encoded=("name", "process"),
    )
    duration = np.ma.getdata(rows["end_ns"]) - rows["start_ns"]
    names, process = rows["name"], rows["process"]
    found = []
    for each in run.processes:
        if each.process in process.values and options.rank in {None, each.rank}:
            mine = process.codes == process.values.index(each.process)
            columns = {
                "name": replace(names, codes=names.codes[mine]),
                "on_device": np.zeros(int(mine.sum()), dtype=np.int64),
                "duration_ns": duration[mine],
            }
            found.append(_source(columns, options, rank=each.rank, process=each.process))
    return found


def _source(
    columns: Columns,
    options: ViewOptions,
    *,
    rank: int | None,
    trace: str | None = None,
    process: str | None = None,
    quality: list[QualityNote] | None = None,
) -> Annotations:
    table = summarize_annotations(columns, top=options.top)
    missing = None if table.rows else "no annotation is in this recording"
    found: list[DurationHistogram] = []
    if options.name is not None and table.rows:
        found = build_annotation_histograms(columns, options.name, bucket_ns=options.bucket_ns)
        if not found:
            some = ", ".join(dict.fromkeys(row.name for row in table.rows[:8]))
            missing = f"no annotation here is called {options.name}; there are {some}"
    shown = table.rows if options.name is None else []
    return Annotations(
        rank=rank,
        trace=trace,
        process=process,
        row_count=table.row_count,
        annotations=[AnnotationGroup(**asdict(row)) for row in shown],
        histograms=[_histogram(each) for each in found],
        missing=missing,
        quality=quality or [],
    )


def _histogram(found: DurationHistogram) -> AnnotationHistogram:
    return AnnotationHistogram(
        on_device=found.on_device,
        total_ns=found.total_ns,
        duration_ns=make_statistics(found.distribution),
        bucket_ns=found.bucket_ns,
        buckets=[
            Bucket(from_ns=found.start_ns + i * found.bucket_ns, count=count)
            for i, count in enumerate(found.counts)
        ],
    )
