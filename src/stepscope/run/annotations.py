"""Annotations (named ranges) of traces, and those that the script itself marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepscope.analysis import (
    ANNOTATION_COLUMNS,
    EXCLUDED_NAMES,
    EXCLUDED_PREFIXES,
    NAME_COLUMNS,
    Columns,
    make_intervals,
    match_annotations,
)
from stepscope.intervals import contains, union
from stepscope.run.device_work import calls_of
from stepscope.run.run import Run
from stepscope.run.trace_steps import read_marks
from stepscope.run.traces import Trace
from stepscope.schema import ProcessInfo
from stepscope.store import literal

_MARKS = " OR ".join(
    [f"starts_with(name, {literal(prefix)})" for prefix in EXCLUDED_PREFIXES]
    + [f"name = {literal(name)}" for name in sorted(EXCLUDED_NAMES)]
)


def read_annotations(trace: Trace) -> Columns:
    """Read `ANNOTATION_COLUMNS` of one trace."""
    columns = trace.columns("annotations", ANNOTATION_COLUMNS)
    if not len(columns["duration_ns"]):
        # Profilers before 2022 wrote steps, loaders and optimizers as operators.
        columns = trace.columns("operators", ("name", "duration_ns"), condition=_MARKS)
        columns["on_device"] = np.zeros(len(columns["duration_ns"]), dtype=np.int64)
    return columns


def read_annotated_kernels(trace: Trace, name: str) -> Columns:
    """Read `NAME_COLUMNS` of the kernels that were launched while a range of the host was open.

    Args:
        trace: a trace.
        name: as of `analysis.match_annotations`.
    """
    ranges = read_marks(trace)
    is_open = union(make_intervals(ranges, match_annotations(ranges["name"], name)))
    kernels, calls = trace.columns("kernels", (*NAME_COLUMNS, "launch")), calls_of(trace)
    call = calls.find_rows(kernels["launch"])
    inside = call >= 0
    inside[inside] = contains(is_open, calls.start[call[inside]])
    names = kernels["name"]
    return {
        "name": replace(names, codes=names.codes[inside]),
        **{column: kernels[column][inside] for column in NAME_COLUMNS[1:]},
    }


def read_script_annotations(run: Run) -> list[tuple[ProcessInfo, Columns]]:
    """Read `ANNOTATION_COLUMNS` of the ranges that the script marked, per process that has any."""
    started = run.period.condition("start_ns")
    rows = run.reader.table(
        "spans",
        columns=["name", "process", "start_ns", "end_ns"],
        condition=f"kind = 'annotation' AND end_ns IS NOT NULL AND {started}",
        encoded=("name", "process"),
    )
    duration = np.ma.getdata(rows["end_ns"]) - rows["start_ns"]
    names, process = rows["name"], rows["process"]
    codes = {value: code for code, value in enumerate(process.values)}
    annotations: list[tuple[ProcessInfo, Columns]] = []
    for info in run.processes:
        if info.process in codes:
            selected = process.codes == codes[info.process]
            columns = {
                "name": replace(names, codes=names.codes[selected]),
                "on_device": np.zeros(int(selected.sum()), dtype=np.int64),
                "duration_ns": duration[selected],
            }
            annotations.append((info, columns))
    return annotations
