"""Waits for requests in one trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from stepscope.analysis import (
    TIME_COLUMNS,
    WAIT_FUNCTIONS,
    Columns,
    find_unrecorded_time,
    find_waits_of_threads,
    is_training,
    is_wait_function,
    make_intervals,
    match_rows,
)
from stepscope.intervals import EMPTY, Intervals, nesting_order, overlap, parents
from stepscope.run.traces import Trace

_FUNCTIONS = "parent IS NULL OR regexp_matches(name, '{}')".format(
    WAIT_FUNCTIONS.replace("'", "''")
)
"""Outermost Python functions, and those that wait."""
_ADDRESS = re.compile(r" (object )?at 0x[0-9a-fA-F]+")


def read_request_waits(
    trace: Trace, ranges: Sequence[Columns], calls: Columns, activity: Intervals
) -> Intervals:
    """Read the times in which the host has no work; none in a trace that trains, or without
    operators.

    Args:
        trace: a trace.
        ranges: operators and annotations of the host, with `name` and `track`, operators first.
        calls: runtime calls, with `track`.
        activity: when any thread runs an operator, makes a runtime call, compiles or communicates.
    """
    operators = ranges[0]
    if not len(operators["track"]) or any(
        match_rows(part["name"], is_training).any() for part in ranges
    ):
        return EMPTY
    functions = _read_functions(trace)
    tracks = np.unique(np.concatenate([operators["track"], calls["track"]]))
    tracks = np.intersect1d(tracks, functions["track"])
    if not len(tracks):
        return find_unrecorded_time(trace.extent, activity)
    waits = match_rows(functions["name"], is_wait_function)
    threads = []
    for track in tracks:
        rows = functions["track"] == track
        threads.append((make_intervals(functions, rows), make_intervals(functions, rows & waits)))
    return find_waits_of_threads(threads, activity)


def name_wait_function(trace: Trace, waiting: Intervals) -> str | None:
    """Name the Python function in which the host waits longest, the outermost of those that call
    each other; None without Python functions.

    Args:
        waiting: union of times in which the host has no work.
    """
    functions = _read_functions(trace)
    waits = match_rows(functions["name"], is_wait_function)
    totals: Counter[str] = Counter()
    for track in np.unique(functions["track"][waits]):
        rows = waits & (functions["track"] == track)
        times = make_intervals(functions, rows)
        order = nesting_order(*times)
        times = Intervals(times.start[order], times.end[order])
        outermost = parents(*times) < 0
        codes = functions["name"].codes[rows][order][outermost]
        waited_ns = overlap(Intervals(*(part[outermost] for part in times)), waiting)
        for code, time_ns in zip(codes.tolist(), waited_ns.tolist(), strict=True):
            totals[_ADDRESS.sub("", str(functions["name"].values[code]))] += time_ns
    return max(totals, key=lambda name: totals[name]) if any(totals.values()) else None


def _read_functions(trace: Trace) -> Columns:
    return trace.columns("python_functions", ("name", "track", *TIME_COLUMNS), condition=_FUNCTIONS)
