"""Python of the script in traces: gaps between operators, and the functions that they lie in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, intervals, quantities, run
from stepscope.diagnosis.traces.trace_details import (
    MAX_NAMED_FUNCTIONS,
    OPTIMIZER,
    find_read_series,
)
from stepscope.diagnosis.verdict import Evidence

MIN_SITE_RATIO = 0.5
"""Share of the gaps that lie in the function which is named."""
_NUMBER = re.compile(r"\d+")
_TRACED_FUNCTIONS = r"duration_ns > 0 AND regexp_full_match(name, '.+ \(.+:\d+\)')"
"""Functions with file and line, as tracers of Python write them."""


class ScriptPython(msgspec.Struct, frozen=True, kw_only=True):
    """Python of the script itself: gaps between operators, too long for calling the next."""

    count_per_step: float
    python_ratio: float
    """Share of the steps' part `python` that is in these gaps."""


def measure_script_python(divided: run.DividedTrace) -> ScriptPython:
    """Measure the gaps between operators, fetches and compiles that are longer than `MAX_CALL_NS`
    and not between two reads."""
    inside_ns = divided.divide(_find_gaps(divided))["python"]
    total_ns = int(divided.part_ns["python"].sum())
    return ScriptPython(
        count_per_step=int((inside_ns > 0).sum()) / len(divided.steps.names),
        python_ratio=min(1.0, int(inside_ns.sum()) / total_ns) if total_ns else 0.0,
    )


def _find_gaps(divided: run.DividedTrace) -> intervals.Intervals:
    activity, steps = divided.activity, intervals.union(divided.steps.extent)
    calls = intervals.unite(activity.host, activity.data_loader, activity.compilation)
    gaps = intervals.Intervals(
        np.append(steps.start[:1], calls.end), np.append(calls.start, steps.end[-1:])
    )
    rows = (gaps.end - gaps.start > analysis.MAX_CALL_NS) & intervals.contains(steps, gaps.start)
    if divided.on_host:
        rows &= ~intervals.contains(intervals.union(find_read_series(divided)), gaps.start)
    return intervals.Intervals(gaps.start[rows], gaps.end[rows])


class Site(NamedTuple):
    """Range or function in which the script spends time between operators."""

    name: str
    is_function: bool
    """True for a Python function, False for a range."""
    time_ns: int
    """Time in all steps, without that of sites inside it."""


def find_sites(divided: run.DividedTrace) -> list[Site]:
    """Find the ranges of the script, or else the Python functions that another tracer recorded, in
    which the gaps between operators lie; the longest first. Those around a whole step, which an
    optimizer step in them shows, are left out; numbers in the names of ranges become `*`."""
    activity = divided.activity
    busy = [activity.device, activity.communication]
    gaps = intervals.subtract(_find_gaps(divided), intervals.unite(intervals.EMPTY, *busy))
    columns = ("name", "track", *analysis.TIME_COLUMNS)
    marks = run.read_marks(divided.trace)
    functions = divided.trace.columns("other_events", columns, condition=_TRACED_FUNCTIONS)
    updates = run.select_named(marks, lambda name: name.startswith(OPTIMIZER)).start
    totals: Counter[tuple[str, bool]] = Counter()
    for table, is_function in ((marks, False), (functions, True)):
        extent = analysis.make_intervals(table)
        counts = np.searchsorted(updates, extent.end) - np.searchsorted(updates, extent.start)
        around = {table["name"].values[code] for code in table["name"].codes[counts > 0].tolist()}
        for name, time_ns in _sum_own_time(table, gaps, _is_site):
            if name not in around:
                totals[name if is_function else _NUMBER.sub("*", name), is_function] += time_ns
    return [Site(*key, time_ns) for key, time_ns in totals.most_common() if time_ns]


def find_functions(divided: run.DividedTrace) -> list[Site]:
    """Find the recorded Python functions in which the gaps between operators lie: the innermost one
    with at least `MIN_SITE_RATIO` of them, of the threads that run operators; none without it."""
    gaps = intervals.subtract(_find_gaps(divided), intervals.union(divided.activity.device))
    functions = divided.trace.columns("python_functions", ("name", "track", *analysis.TIME_COLUMNS))
    tracks = np.unique(divided.trace.columns("operators", ("track",))["track"])
    rows = np.isin(functions["track"], tracks)
    extent, codes = analysis.make_intervals(functions, rows), functions["name"].codes[rows]
    size = len(functions["name"].values)
    inside_ns = np.bincount(codes, weights=intervals.overlap(extent, gaps), minlength=size)
    total_ns = np.bincount(codes, weights=extent.end - extent.start, minlength=size)
    around = np.flatnonzero(inside_ns >= max(1.0, MIN_SITE_RATIO * gaps.total_ns))
    innermost = around[np.argsort(total_ns[around], kind="stable")][:1].tolist()
    return [
        Site(str(functions["name"].values[code]), True, int(min(inside_ns[code], gaps.total_ns)))
        for code in innermost
    ]


def _is_site(name: str) -> bool:
    is_communication = analysis.is_collective_operator(name) or analysis.is_host_communication(name)
    return not (run.is_range(name) or is_communication or analysis.is_time_mark(name))


def measure_functions(divided: run.DividedTrace) -> list[tuple[str, int]]:
    """Measure the time of Python functions inside the steps, without that of functions which they
    call; the longest first."""
    functions = divided.trace.columns("python_functions", ("name", "track", *analysis.TIME_COLUMNS))
    return _sum_own_time(functions, intervals.union(divided.steps.extent), lambda _: True)


def _sum_own_time(
    ranges: analysis.Columns, within: intervals.Intervals, test: Callable[[str], bool]
) -> list[tuple[str, int]]:
    """Sum the time of ranges by name, without that of ranges inside them; the longest first.

    Args:
        ranges: with `name`, `track` and times.
        within: sorted, disjoint intervals that count.
        test: whether ranges of a name count.
    """
    totals, selected = Counter[str](), analysis.match_rows(ranges["name"], test)
    for track in np.unique(ranges["track"]):
        rows = (ranges["track"] == track) & selected
        extent = analysis.make_intervals(ranges, rows)
        order = intervals.nesting_order(extent.start, extent.end)
        extent = intervals.Intervals(extent.start[order], extent.end[order])
        within_ns, parent = intervals.overlap(extent, within), intervals.parents(*extent)
        is_inner, own_ns = parent >= 0, within_ns.copy()
        np.subtract.at(own_ns, parent[is_inner], within_ns[is_inner])
        codes = ranges["name"].codes[rows][order]
        for code, time_ns in zip(codes.tolist(), own_ns.tolist(), strict=True):
            totals[str(ranges["name"].values[code])] += time_ns
    return totals.most_common()


def describe_functions(divided: run.DividedTrace, min_ratio: float) -> list[Evidence]:
    """Name the Python functions that take longest themselves.

    Args:
        divided: a trace.
        min_ratio: share of the steps that a function takes at least.
    """
    steps_ns, step_count = int(divided.steps.wall_ns.sum()), len(divided.steps.names)
    longest = [row for row in measure_functions(divided) if row[1] >= min_ratio * steps_ns]
    if not longest:
        return []
    names = ", ".join(
        f"{name} {quantities.duration(time_ns / step_count)}"
        for name, time_ns in longest[:MAX_NAMED_FUNCTIONS]
    )
    text = f"Python functions that take longest themselves, per step: {names}."
    value = longest[0][1] / step_count
    return [Evidence(text=text, value=value, unit="ns", source="timeline")]


def waits_in_python(divided: run.DividedTrace) -> bool:
    """Return True if the Python function that takes longest itself waits or sleeps."""
    totals = measure_functions(divided)
    return bool(totals) and analysis.is_wait_function(totals[0][0])
