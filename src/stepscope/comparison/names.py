"""Time by name of kernel or operator in the mean step, and its change between two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np

from stepscope.analysis import STEP_PREFIX, Columns, group_rows, is_step
from stepscope.intervals import Int, Intervals, contains, union
from stepscope.run import Trace
from stepscope.schema import field_label

NameStatus = Literal["added", "removed", "slower", "faster", "unchanged"]
TimeByName = Mapping[str, tuple[float, float]]
"""Nanoseconds and calls in the mean step, by name."""
UNCHANGED_RATIO = 0.01
"""A name whose time changes by at most this share of itself is unchanged."""


class NameChange(msgspec.Struct, frozen=True, kw_only=True):
    """Change of the time of one kernel or operator in the mean step."""

    name: str
    status: NameStatus
    base_ns: Annotated[float, field_label("from")]
    other_ns: Annotated[float, field_label("to")]
    change_ns: float
    base_calls: Annotated[float, field_label("calls from", unit="count")]
    other_calls: Annotated[float, field_label("calls to", unit="count")]


class NameChanges(msgspec.Struct, frozen=True, kw_only=True):
    """Changes by name; those of the rows and `rest_ns` sum to `change_ns`."""

    time_of: str
    base_ns: Annotated[float, field_label("from")]
    other_ns: Annotated[float, field_label("to")]
    change_ns: float
    rows: list[NameChange]
    """Largest changes, in either direction."""
    rest_ns: Annotated[float, field_label("change of other names")]
    """Change of all names that are not listed."""
    rest_count: Annotated[int, field_label("other names")]


def measure_time_by_name(
    traces: Sequence[Trace],
    extents: Sequence[Intervals],
    *,
    excluded: Sequence[Intervals],
    table: str,
    time: str,
) -> TimeByName:
    """Measure time and calls in the mean step, by name, of events that start in steps.

    Args:
        traces: traces of one run.
        extents: steps of each trace.
        excluded: intervals of each trace that belong to no step (evaluation).
        table: table of named events.
        time: column with the duration of each event.
    """
    step_count = sum(len(extent.start) for extent in extents)
    totals: dict[str, tuple[int, int]] = {}
    for trace, extent, exclusion in zip(traces, extents, excluded, strict=True):
        columns = trace.columns(table, ("name", "start_ns", time))
        start = columns["start_ns"]
        is_in_step = contains(union(extent), start) & ~contains(exclusion, start)
        _add_totals(totals, columns, is_in_step.nonzero()[0].astype(np.int64), time)
    return {
        name: (total / step_count, count / step_count) for name, (total, count) in totals.items()
    }


def _add_totals(totals: dict[str, tuple[int, int]], columns: Columns, rows: Int, time: str) -> None:
    if not len(rows):
        return
    names = columns["name"]
    groups = group_rows(names.codes[rows])
    sums, counts = groups.sums(columns[time][rows]).tolist(), groups.counts().tolist()
    codes = names.codes[rows][groups.first].tolist()
    for code, total, count in zip(codes, sums, counts, strict=True):
        name = names.values[code] or ""
        if is_step(name):  # older profilers record an operator for each step
            name = f"{STEP_PREFIX}*"
        previous_total, previous_count = totals.get(name, (0, 0))
        totals[name] = previous_total + total, previous_count + count


def compare_names(
    base_times: TimeByName, other_times: TimeByName, *, time_of: str, top: int
) -> NameChanges:
    """Compare the time by name of two runs and list the `top` largest changes."""
    names = dict.fromkeys([*base_times, *other_times])
    rows = [_compare_name(name, base_times, other_times) for name in names]
    rows.sort(key=lambda row: (-abs(row.change_ns), row.name))
    base_ns = sum(ns for ns, _ in base_times.values())
    other_ns = sum(ns for ns, _ in other_times.values())
    return NameChanges(
        time_of=time_of,
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=other_ns - base_ns,
        rows=rows[:top],
        rest_ns=sum(row.change_ns for row in rows[top:]),
        rest_count=len(rows[top:]),
    )


def _compare_name(name: str, base_times: TimeByName, other_times: TimeByName) -> NameChange:
    base_ns, base_calls = base_times.get(name, (0.0, 0.0))
    other_ns, other_calls = other_times.get(name, (0.0, 0.0))
    change_ns = other_ns - base_ns
    status: NameStatus = "slower" if change_ns > 0 else "faster"
    if abs(change_ns) <= UNCHANGED_RATIO * base_ns:
        status = "unchanged"
    if name not in base_times:
        status = "added"
    if name not in other_times:
        status = "removed"
    return NameChange(
        name=name,
        status=status,
        base_ns=base_ns,
        other_ns=other_ns,
        change_ns=change_ns,
        base_calls=base_calls,
        other_calls=other_calls,
    )
