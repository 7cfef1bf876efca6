"""Stages of tf.data in one trace, such as Map, Batch and Prefetch."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from stepscope.analysis import TIME_COLUMNS, make_intervals
from stepscope.intervals import nesting_order, parents
from stepscope.run.traces import Trace

_PREFIX = "Iterator::"
"""Start of the names of ranges in which a stage makes an element."""


class TfDataStage(NamedTuple):
    """Stage of a pipeline."""

    name: str
    call_count: int
    total_ns: int
    """Time in calls, without that of other stages that they call in the same thread. It includes
    waits for other threads."""


def measure_tf_data(trace: Trace) -> list[TfDataStage]:
    """Measure the stages of tf.data, the one that takes longest first; empty without any."""
    call_counts, totals = Counter[str](), Counter[str]()
    for table in ("annotations", "other_events"):  # of Python's threads, and of others
        columns = trace.columns(
            table, ("name", "track", *TIME_COLUMNS), condition=f"name LIKE '{_PREFIX}%'"
        )
        for track in np.unique(columns["track"]):
            rows = columns["track"] == track
            extent = make_intervals(columns, rows)
            order = nesting_order(extent.start, extent.end)
            start, end, codes = extent.start[order], extent.end[order], columns["name"].codes[rows]
            own_ns, parent = end - start, parents(start, end)
            is_inner = parent >= 0
            np.subtract.at(own_ns, parent[is_inner], (end - start)[is_inner])
            for code, ns in zip(codes[order].tolist(), own_ns.tolist(), strict=True):
                name = columns["name"].values[code].removeprefix(_PREFIX)
                call_counts[name] += 1
                totals[name] += ns
    return [TfDataStage(name, call_counts[name], ns) for name, ns in totals.most_common()]
