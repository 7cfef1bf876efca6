"""The levels of detail of a recording, as the importer stored them, held in memory."""

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
    "hash(longest_name) AS named",
)


class Names:
    """Strings by number, each once. Rows are read with hashes of theirs, as DuckDB makes them:
    a string per row would cost more than all the rest."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._hashes = np.empty(0, dtype=np.uint64)
        self._places = np.empty(0, dtype=np.int32)
        """Of each hash, which are in ascending order."""

    def places(
        self, hashes: NDArray[np.uint64], look_up: Callable[[], Mapping[str, Any]]
    ) -> NDArray[np.int32]:
        """The number of each string.

        Args:
            hashes: of the strings, as DuckDB's `hash` has them.
            look_up: reads `hash` and `name` of the strings, where there are new ones.
        """
        at = self._at(hashes)
        if not len(self._hashes) or (self._hashes[at] != hashes).any():
            self._add(look_up())
            at = self._at(hashes)
        return self._places[at]

    def _at(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        found = np.searchsorted(self._hashes, hashes)
        return np.minimum(found, max(0, len(self._hashes) - 1))

    def _add(self, found: Mapping[str, Any]) -> None:
        hashes, first = np.unique(found["hash"].astype(np.uint64), return_index=True)
        new = ~np.isin(hashes, self._hashes)
        places = len(self.strings) + np.arange(new.sum(), dtype=np.int32)
        self.strings.extend(found["name"][first[new]].tolist())
        every = np.concatenate([self._hashes, hashes[new]])
        order = np.argsort(every)
        self._hashes = every[order]
        self._places = np.concatenate([self._places, places])[order]


class Levels:
    """Levels of detail, each read when it is first asked for.

    Lines of slices are twice the number of a track; one more for the shadows on it.

    Args:
        trace: the recording.
        names: of its events.
        levels: that were stored, in ascending order; at least one.
    """

    def __init__(self, trace: Trace, names: Names, levels: Sequence[int]) -> None:
        self._trace = trace
        self._names = names
        self._levels = levels
        self._summaries: dict[int, Slices] = {}
        own, level = _read(trace, names, "id IS NOT NULL")
        self.alone = own
        """Events with rows of their own, by start."""
        self.level = level
        """Of each of them, the coarsest one at which it is not summed up."""

    @property
    def finest_ns(self) -> int:
        """Width of the buckets of the finest level: what is as long is among `alone`."""
        return width_of(self._levels[0])

    def long(self, begin: int, end: int) -> Slices:
        """Those of `alone` that are as long and lie in a range, at least in part."""
        rows = self.alone.overlaps(begin, end) & (self.alone.duration >= self.finest_ns)
        return self.alone.take(rows)

    @cached_property
    def short_alone(self) -> NDArray[np.int64]:
        """Ids of events among `alone` that are shorter than that, in ascending order."""
        return np.sort(self.alone.event[self.alone.duration < self.finest_ns])

    @property
    def size_bytes(self) -> int:
        """Memory that is held."""
        return sum(each.size_bytes for each in (self.alone, *self._summaries.values()))

    def coarsest_below(self, width: int) -> int | None:
        """The coarsest level whose buckets are no wider than this; None where even those of the
        finest are."""
        return max((each for each in self._levels if width_of(each) <= width), default=None)

    @cached_property
    def end_ns(self) -> int:
        """End of the last event."""
        parts = (self.alone, self._summaries_of(self._levels[-1]))
        return max(int((part.start + part.duration).max(initial=0)) for part in parts)

    def read_ahead(self) -> Iterator[None]:
        """Reads every level, the coarsest first, one after the other."""
        for level in reversed(self._levels):
            self._summaries_of(level)
            yield

    def at(self, level: int, begin: int, end: int) -> list[Slices]:
        """What a level consists of within a range."""
        alone = self.alone.take((self.level >= level) & self.alone.overlaps(begin, end))
        summaries = self._summaries_of(level)
        # A summary reaches less than a bucket beyond its own.
        reach = [begin - 2 * width_of(level), end]
        first, last = np.searchsorted(summaries.start, reach).tolist()
        return [alone, summaries.take(slice(first, last)).overlapping(begin, end)]

    def _summaries_of(self, level: int) -> Slices:
        if level not in self._summaries:
            where = f"id IS NULL AND level = {level}"
            self._summaries[level], _ = _read(self._trace, self._names, where)
        return self._summaries[level]


def width_of(level: int) -> int:
    """Nanoseconds that a bucket is wide."""
    return int(BASE_NS * FANOUT**level)


def _read(trace: Trace, names: Names, where: str) -> tuple[Slices, NDArray[np.int16]]:
    """Rows of the table, by start, and their levels."""
    own = f"FROM timeline WHERE trace = {trace.trace} AND {where}"
    rows = trace.reader.sql(f"SELECT {', '.join(_COLUMNS)} {own}", traces=(trace.trace,))

    def look_up() -> Mapping[str, Any]:
        query = f"SELECT DISTINCT hash(longest_name) AS hash, longest_name AS name {own}"
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
        name=names.places(rows["named"], look_up),
        event=rows["id"].astype(np.int64),
        names=names.strings,
    ), rows["level"]
