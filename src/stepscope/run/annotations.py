"""Annotations (named ranges) of traces, and those that the script itself marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stepscope.analysis import ANNOTATION_COLUMNS, EXCLUDED_NAMES, EXCLUDED_PREFIXES, Columns
from stepscope.run.run import Run
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
