"""Levels of detail of a trace, stored by the importer and cached in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Slices
from stepscope.run import Trace

BASE_NS = 1_000
FANOUT = 4
_COLUMNS = (
    "track",
    "depth",
    "level",
    "id",
    "start_ns",
    "duration_ns",
    "count",
    "busy_ns",
    "longest_ns",
    "hash(longest_name) AS name_hash",
)


class Names:
    """Unique strings by index.

    Rows are read with hashes made by DuckDB, as reading one string per row would dominate the time.
    """

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._hashes = np.empty(0, dtype=np.uint64)
        self._indices = np.empty(0, dtype=np.int32)
        """Index of the string of each hash; hashes are in ascending order."""

    def indices(
        self, hashes: NDArray[np.uint64], look_up: Callable[[], Mapping[str, Any]]
    ) -> NDArray[np.int32]:
        """Return the index of each string.

        Args:
            hashes: hashes of the strings, by DuckDB's `hash`.
            look_up: reads `hash` and `name` of the strings; called if there are new ones.
        """
        positions = self._find(hashes)
        if not len(self._hashes) or (self._hashes[positions] != hashes).any():
            self._add(look_up())
            positions = self._find(hashes)
        return self._indices[positions]

    def _find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        positions = np.searchsorted(self._hashes, hashes)
        return np.minimum(positions, max(0, len(self._hashes) - 1))

    def _add(self, new_names: Mapping[str, Any]) -> None:
        hashes, first = np.unique(new_names["hash"].astype(np.uint64), return_index=True)
        new = ~np.isin(hashes, self._hashes)
        indices = len(self.strings) + np.arange(new.sum(), dtype=np.int32)
        self.strings.extend(new_names["name"][first[new]].tolist())
        all_hashes = np.concatenate([self._hashes, hashes[new]])
        order = np.argsort(all_hashes)
        self._hashes = all_hashes[order]
        self._indices = np.concatenate([self._indices, indices])[order]


class Levels:
    """Levels of detail, each read on first use.

    The line of a slice is twice the number of its track, plus one for shadows.

    Args:
        trace: the trace.
        names: names of its events.
        levels: stored levels in ascending order; at least one.
    """

    def __init__(self, trace: Trace, names: Names, levels: Sequence[int]) -> None:
        self._trace = trace
        self._names = names
        self._levels = levels
        self._summaries: dict[int, Slices] = {}
        alone, level = _read_rows(trace, names, "id IS NOT NULL")
        self.alone = alone
        """Events stored individually, by start."""
        self.level = level
        """Coarsest level at which each of them is still individual."""

    @property
    def finest_ns(self) -> int:
        """Bucket width of the finest level: events of at least this duration are in `alone`."""
        return get_bucket_width(self._levels[0])

    def select_long(self, start: int, end: int) -> Slices:
        """Select events of `alone` that have at least this duration and overlap a range."""
        rows = self.alone.overlaps(start, end) & (self.alone.duration >= self.finest_ns)
        return self.alone.take(rows)

    @cached_property
    def short_alone(self) -> NDArray[np.int64]:
        """Ids of the shorter events of `alone`, in ascending order."""
        return np.sort(self.alone.event[self.alone.duration < self.finest_ns])

    @property
    def size_bytes(self) -> int:
        """Cached memory in bytes."""
        return sum(slices.size_bytes for slices in (self.alone, *self._summaries.values()))

    def coarsest_below(self, width: int) -> int | None:
        """Find the coarsest level with buckets of at most `width`; None if there is none."""
        return max(
            (level for level in self._levels if get_bucket_width(level) <= width), default=None
        )

    @cached_property
    def end_ns(self) -> int:
        """End of the last event."""
        parts = (self.alone, self._summaries_of(self._levels[-1]))
        return max(int((part.start + part.duration).max(initial=0)) for part in parts)

    def read_ahead(self) -> Iterator[None]:
        """Read every level, the coarsest first; yields after each."""
        for level in reversed(self._levels):
            self._summaries_of(level)
            yield

    def select(self, level: int, start: int, end: int) -> list[Slices]:
        """Select individual events and summaries of a level within a range."""
        alone = self.alone.take((self.level >= level) & self.alone.overlaps(start, end))
        summaries = self._summaries_of(level)
        # A summary extends less than one bucket beyond its own bucket.
        reach = [start - 2 * get_bucket_width(level), end]
        first, last = np.searchsorted(summaries.start, reach).tolist()
        return [alone, summaries.take(slice(first, last)).overlapping(start, end)]

    def _summaries_of(self, level: int) -> Slices:
        if level not in self._summaries:
            condition = f"id IS NULL AND level = {level}"
            self._summaries[level], _ = _read_rows(self._trace, self._names, condition)
        return self._summaries[level]


def get_bucket_width(level: int) -> int:
    """Return the bucket width of a level in nanoseconds."""
    return int(BASE_NS * FANOUT**level)


def _read_rows(trace: Trace, names: Names, condition: str) -> tuple[Slices, NDArray[np.int16]]:
    """Read rows of the table, sorted by start, and their levels."""
    source = f"FROM timeline WHERE trace = {trace.trace} AND {condition}"
    rows = trace.reader.sql(f"SELECT {', '.join(_COLUMNS)} {source}", traces=(trace.trace,))

    def look_up() -> Mapping[str, Any]:
        query = f"SELECT DISTINCT hash(longest_name) AS hash, longest_name AS name {source}"
        return trace.reader.sql(query, traces=(trace.trace,))

    order = np.argsort(rows["start_ns"], kind="stable")
    rows = {name: np.ma.filled(values, -1)[order] for name, values in rows.items()}
    track, depth = rows["track"].astype(np.int32), rows["depth"].astype(np.int16)
    return Slices(
        line=2 * track + (depth < 0),
        row=np.where(depth < 0, -1 - depth, depth),
        start=rows["start_ns"].astype(np.int64),
        duration=rows["duration_ns"].astype(np.int64),
        count=rows["count"].astype(np.int32),
        busy=rows["busy_ns"].astype(np.int64),
        longest=rows["longest_ns"].astype(np.int64),
        name=names.indices(rows["name_hash"], look_up),
        event=rows["id"].astype(np.int64),
        names=names.strings,
    ), rows["level"]
