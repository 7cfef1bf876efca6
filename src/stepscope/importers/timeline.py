"""Levels of detail, made once, so that any window of any trace is one small query.

Events of a track and depth are gathered in buckets of a power of four microseconds. A level is
kept while it has at most an eighth as many rows as there are events below it, and the coarsest
spans the trace in at most 256 buckets per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.decode import Columns
from stepscope.importers.linking import OVERHANG_NS, Linked
from stepscope.intervals import depths, parents

Int = NDArray[np.int64]

BASE_NS = 1_000
FANOUT = 4
_SPARE = 8
"""A level is stored when it has so many times fewer rows than there are events."""
_COARSEST_BUCKETS = 256
_SUMMARIES = ("count", "busy_ns", "longest_ns", "longest_name")


class Summariser:
    """Makes the levels of one trace, slice by slice.

    Args:
        first_ns, last_ns: extent of the file.
    """

    def __init__(self, first_ns: int, last_ns: int) -> None:
        self._first_ns = first_ns
        self._span_ns = last_ns - first_ns
        self._finest: int | None = None
        """The finest level worth storing; the first slice decides for all."""

    def summarise(self, linked: Linked) -> Columns:
        """Rows of the table `timeline`; a bucket may have rows from two slices."""
        events = _events(linked)
        found = list(self._levels(events)) if len(events["id"]) else []
        if not found:
            return {}
        return {name: np.concatenate([level[name] for level in found]) for name in found[0]}

    def _levels(self, events: Columns) -> Iterator[dict[str, Any]]:
        start = events["start"] - self._first_ns
        count = len(start)
        depth = events["depth"]
        lowest = int(depth.min())
        rows_of_track = int(depth.max()) - lowest + 1
        line = events["track"].astype(np.int64) * rows_of_track + (depth - lowest)
        order = np.lexsort((start, line))
        current = {
            "line": line[order],
            "start": start[order],
            "count": np.ones(count, dtype=np.int64),
            "busy_ns": events["duration"][order],
            "longest_ns": events["duration"][order],
            "longest_name": events["name"][order],
        }
        # No level can be worth its rows before a bucket holds some events on average.
        lines = len(np.unique(line))
        level = self._finest
        if level is None:
            level = _level_of(self._span_ns * lines // max(1, count))
        while True:
            width = BASE_NS * FANOUT**level
            current = _merged(current, current["start"] // width)
            if self._finest is None and len(current["line"]) * _SPARE <= count:
                self._finest = level
            if self._finest is not None:
                yield {
                    "track": current["line"] // rows_of_track,
                    "depth": current["line"] % rows_of_track + lowest,
                    "level": np.full(len(current["line"]), level, dtype=np.int64),
                    "bucket": current["start"] // width,
                    **{name: current[name] for name in _SUMMARIES},
                }
            if width * _COARSEST_BUCKETS >= self._span_ns:
                return
            level += 1


def _events(linked: Linked) -> Columns:
    """All ranges with the row of their track that they are drawn on."""
    host = [linked.annotations, linked.python, linked.operators, linked.calls]
    names = ("id", "track", "name", "start", "duration", "at", "end")
    # Annotations come before functions, those before operators, where all begin at one time.
    joined = {name: np.concatenate([part[name] for part in host]) for name in names}
    around = linked.around
    at = np.concatenate([around["at"], joined["at"]])
    end = np.concatenate([around["end"], joined["end"]])
    order = np.lexsort((-end, at))
    depth = np.empty(len(order), dtype=np.int64)
    depth[order] = depths(parents(at[order], end[order], OVERHANG_NS))
    device = [*linked.device.values(), linked.device_annotations]
    flat = [np.zeros(len(part["id"]), dtype=np.int64) for part in device[:-1]]
    above = np.full(len(linked.device_annotations["id"]), -1, dtype=np.int64)
    return {
        **{n: np.concatenate([joined[n], *(part[n] for part in device)]) for n in names[:5]},
        "depth": np.concatenate([depth[len(around["at"]) :], *flat, above]),
    }


def _level_of(width_ns: int) -> int:
    return max(0, int(np.ceil(np.log2(max(1, width_ns / BASE_NS)) / np.log2(FANOUT))))


def _merged(rows: dict[str, Any], bucket: Int) -> dict[str, Any]:
    """One row per line and bucket; rows come sorted by both."""
    line = rows["line"]
    opens = np.concatenate([[True], (line[1:] != line[:-1]) | (bucket[1:] != bucket[:-1])])
    first = np.flatnonzero(opens)
    group = np.cumsum(opens) - 1
    longest_ns = np.maximum.reduceat(rows["longest_ns"], first)
    is_longest = np.flatnonzero(rows["longest_ns"] == longest_ns[group])
    longest = np.empty(len(first), dtype=np.int64)
    longest[group[is_longest][::-1]] = is_longest[::-1]  # the earliest of several
    return {
        "line": line[first],
        "start": rows["start"][first],
        "count": np.add.reduceat(rows["count"], first),
        "busy_ns": np.add.reduceat(rows["busy_ns"], first),
        "longest_ns": longest_ns,
        "longest_name": rows["longest_name"][longest],
    }
