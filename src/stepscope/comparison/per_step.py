"""What recordings hold per step: time by kernel or operator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.analysis import STEP_PREFIX, Columns, group_rows, is_step
from stepscope.comparison.differences import PerStep
from stepscope.intervals import Int, Intervals, contains, union
from stepscope.run import Trace


def time_by_name(
    traces: Sequence[Trace],
    extents: Sequence[Intervals],
    *,
    left_out: Sequence[Intervals],
    table: str,
    time: str,
) -> PerStep:
    """Time and calls in the mean step, by name, of what begins in steps.

    Args:
        traces: recordings.
        extents: of the steps of each.
        left_out: what is in no step all the same (evaluation), of each.
        table: of events with a name.
        time: column that says how long each took.
    """
    step_count = sum(len(extent.start) for extent in extents)
    totals: dict[str, tuple[int, int]] = {}
    for trace, extent, without in zip(traces, extents, left_out, strict=True):
        columns = trace.columns(table, ("name", "start_ns", time))
        begin = columns["start_ns"]
        rows = contains(union(extent), begin) & ~contains(without, begin)
        _add(totals, columns, rows.nonzero()[0].astype(np.int64), time)
    return {
        name: (total / step_count, count / step_count) for name, (total, count) in totals.items()
    }


def _add(totals: dict[str, tuple[int, int]], columns: Columns, rows: Int, time: str) -> None:
    if not len(rows):
        return
    names = columns["name"]
    groups = group_rows(names.codes[rows])
    sums, counts = groups.sums(columns[time][rows]).tolist(), groups.counts().tolist()
    codes = names.codes[rows][groups.first].tolist()
    for code, total, count in zip(codes, sums, counts, strict=True):
        name = names.values[code] or ""
        if is_step(name):  # older recorders have an operator for each step
            name = f"{STEP_PREFIX}*"
        before = totals.get(name, (0, 0))
        totals[name] = before[0] + total, before[1] + count
