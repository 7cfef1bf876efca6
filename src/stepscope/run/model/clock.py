"""Origin of a run's time axis, ranges of time that a run can be restricted to, and its windows.

Epoch nanoseconds do not fit the doubles of a browser and are tedious to type. Times are given and
shown as nanoseconds after the run's origin: the earliest recorded time.

A trace whose file states no clock base counts from another origin, often the start of the machine.
In a run with other records it is shifted so that it starts at the run's origin.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, intervals, schema, store

MAX_CLOCK_DIFFERENCE_NS = 7 * 24 * 3600 * 10**9
"""A clock without a base that differs from the others by less than this is taken as correct."""


_TIMES = {
    "spans": ("start_ns", "end_ns"),
    "metrics": ("t_ns",),
    "memory_categories": ("t_ns",),
    "compilations": ("start_ns",),
    "memory_history": ("t_ns",),
}
"""Columns of times by table; those of traces follow from their own rows."""
_IS_MARK = " OR ".join(f"starts_with(longest_name, '{mark}')" for mark in analysis.PROFILER_MARKS)
_LATEST = (
    "SELECT trace, max(start_ns + duration_ns) AS latest FROM timeline WHERE (id IS NOT NULL OR "  # noqa: S608
    "(trace, level) IN (SELECT (trace, min(level)) FROM timeline WHERE id IS NULL GROUP BY trace)) "
    f"AND NOT ({_IS_MARK}) GROUP BY trace"
)
"""The end of a trace covers known kinds of events only; the timeline covers the others as well. The
profiler's own marks, of which the last is set after the work, do not extend a run."""


class RunClock(msgspec.Struct, frozen=True, kw_only=True):
    """Extent of a run on one clock."""

    origin_ns: int
    """Epoch nanoseconds of the earliest record; 0 where there is none."""
    end_ns: int
    """Epoch nanoseconds of the latest record."""
    shift_by_trace_ns: dict[int, int] = msgspec.field(default_factory=dict)
    """Shift in nanoseconds by trace, for traces without a clock base."""

    def count_until(self, t_ns: int) -> int:
        """Count the nanoseconds from the run's origin to a time, at most to the end of the run.

        Scans of rules end at fixed intervals, the last one after the end of the run.
        """
        return min(t_ns, self.end_ns) - self.origin_ns

    def shift_ns(self, trace: int) -> int:
        """Return the nanoseconds that convert times of a trace to the run's clock."""
        return self.shift_by_trace_ns.get(trace, 0)

    def origin_in(self, trace: int) -> int:
        """Return the run's origin on the clock of a trace."""
        return self.origin_ns - self.shift_ns(trace)


def clock_of(reader: store.RunReader) -> RunClock:
    """Derive the clock of a run from file footers, the table of traces and the timeline."""
    extents = [
        extent
        for table, columns in _TIMES.items()
        for times in reader.times(table).values()
        for column in columns
        if (extent := times.get(column)) is not None
    ]
    rows = reader.table("traces", ("trace", "start_ns", "end_ns", "base_ns"), order_by="start_ns")
    latest = reader.sql(_LATEST)
    ends = dict(zip(latest["trace"].tolist(), latest["latest"].tolist(), strict=True))
    traces = [
        (trace, start, max(end, ends.get(trace, end)), base)
        for trace, start, end, base in zip(*(rows[name].tolist() for name in rows), strict=True)
    ]
    extents += [(start, end) for _, start, end, base in traces if base]
    without_base = [(trace, start, end) for trace, start, end, base in traces if not base]
    if not extents and without_base:  # the latest is most likely to count from 1970
        extents = [without_base[-1][1:]]
    if not extents:
        return RunClock(origin_ns=0, end_ns=0)
    first, last = min(start for start, _ in extents), max(end for _, end in extents)
    close = {
        trace
        for trace, start, end in without_base
        if start < last + MAX_CLOCK_DIFFERENCE_NS and end > first - MAX_CLOCK_DIFFERENCE_NS
    }
    origin = min([first, *(start for trace, start, _ in without_base if trace in close)])
    shifts = {trace: origin - start for trace, start, _ in without_base if trace not in close}
    ends_on_run_clock = [end + shifts.get(trace, 0) for trace, _, end, _ in traces]
    return RunClock(
        origin_ns=origin, end_ns=max([last, *ends_on_run_clock]), shift_by_trace_ns=shifts
    )


class Period(NamedTuple):
    """A range of time in epoch nanoseconds, the end exclusive."""

    start_ns: int
    end_ns: int

    @classmethod
    def of(cls, start_ns: int | None, end_ns: int | None) -> Period:
        """Return the range between two times; None for an open end."""
        return ALWAYS.between(start_ns, end_ns)

    def contains(self, t_ns: intervals.Int) -> intervals.Mask:
        """Mask the times in the range."""
        return (t_ns >= self.start_ns) & (t_ns < self.end_ns)

    def condition(self, column: str) -> str:
        """Build the SQL condition for rows whose time is in the range."""
        return f"{column} >= {self.start_ns} AND {column} < {self.end_ns}"

    def between(self, start_ns: int | None, end_ns: int | None) -> Period:
        """Return the range with another start and end, where they are given."""
        return Period(
            self.start_ns if start_ns is None else start_ns,
            self.end_ns if end_ns is None else end_ns,
        )


ALWAYS = Period(-(1 << 62), 1 << 62)
"""Longer than any run."""


WindowKey = tuple[str | None, int | None]
"""Process and number of a window; an imported trace has neither."""


def windows_of(processes: Iterable[schema.ProcessInfo]) -> dict[WindowKey, schema.WindowFact]:
    """Collect every completed window, by process and number."""
    return {
        (process.process, fact.number): fact
        for process in processes
        for fact in process.facts_of(schema.WindowFact)
    }


class WatchedSteps(NamedTuple):
    """Steps of a window by number and extent; a process counts its steps from 0."""

    numbers: list[int]
    extent: intervals.Intervals

    def starting_in(self, period: Period) -> WatchedSteps:
        """Select the steps that start in a range of time."""
        rows = np.flatnonzero(period.contains(self.extent.start))
        extent = intervals.Intervals(self.extent.start[rows], self.extent.end[rows])
        return WatchedSteps([self.numbers[row] for row in rows.tolist()], extent)
