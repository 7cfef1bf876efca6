"""Exposed time: each instant of some steps is attributed to one owner.

Kernels of several streams, copies and host code overlap, so the sum of their durations is not the
duration of a step. So each instant is attributed to one owner, by priority among overlapping
activities: categories are served in their order (`CATEGORIES` of `trace_steps`: computation on
devices before copies, before collectives, before the host), and within a category the range that
starts first keeps an instant until it ends. The time attributed to an owner is its *exposed* time:
not its duration, but the time of the step spent on nothing of higher priority. Exposed times sum to
the duration of the steps, so their differences sum to the difference of two runs.

This is the priority rule of step breakdowns into computation, exposed communication and idle time,
applied down to the single call; see Holistic Trace Analysis:
https://hta.readthedocs.io/en/latest/source/features/temporal_breakdown.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals

Float = NDArray[np.float64]


class CategoryRanges(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges of time of one category, in any order."""

    category: str
    extent: intervals.Intervals
    owner: intervals.Int
    """Number of the owner of each range, -1 if unknown."""


class StepPartition(msgspec.Struct, frozen=True, kw_only=True):
    """Partition of the time of steps into parts."""

    edges: intervals.Int
    """Times at which the part changes, sorted."""
    part: intervals.Int
    """Part before each edge, then the part after the last edge: index into `parts`, -1 outside all
    steps."""
    parts: list[str]

    def measure_parts(self) -> dict[str, int]:
        """Measure each part in nanoseconds."""
        inner = self.part[1:-1]
        inside = inner >= 0
        sums = np.bincount(inner[inside], np.diff(self.edges)[inside], minlength=len(self.parts))
        return dict(zip(self.parts, np.rint(sums).astype(np.int64).tolist(), strict=True))


def partition_steps(
    extent: intervals.Intervals, parts: Sequence[tuple[str, intervals.Intervals]], rest: str
) -> StepPartition:
    """Partition the time of steps.

    Args:
        extent: the steps.
        parts: ranges of each part; of several that contain an instant, the first has priority.
            Names may occur more than once.
        rest: name of the part for all other time.
    """
    steps = intervals.union(extent)
    merged = [(name, intervals.union(ranges)) for name, ranges in parts]
    edges = np.unique(np.concatenate([*steps, *(edge for _, ranges in merged for edge in ranges)]))
    names = list(dict.fromkeys([*(name for name, _ in parts), rest]))
    part = np.full(len(edges) + 1, -1, dtype=np.int64)
    inside = intervals.contains(steps, edges)
    part[1:][inside] = names.index(rest)
    for name, ranges in reversed(merged):
        part[1:][inside & intervals.contains(ranges, edges)] = names.index(name)
    return StepPartition(edges=edges, part=part, parts=names)


class ExposedTime(msgspec.Struct, frozen=True, kw_only=True):
    """Exposed time of some steps, nanoseconds by part."""

    exposed: Mapping[str, Float]
    """Exposed time by owner."""
    busy: Mapping[str, Float]
    """Duration of the same ranges regardless of overlap, by owner."""
    unowned: Mapping[str, float]
    """Exposed time of ranges with an unknown owner."""
    idle: Mapping[str, float]
    """Time outside all ranges."""


def attribute_exposed_time(
    categories: Sequence[CategoryRanges],
    partition: StepPartition,
    owner_count: int,
    *,
    by_category: bool,
) -> ExposedTime:
    """Attribute each instant of some steps to one owner.

    Args:
        categories: ranges by descending priority.
        partition: the steps and their parts.
        owner_count: number of owners, numbered from 0.
        by_category: the parts of the result are the categories instead of the parts of the
            partition (which then has one part, the name of idle time).
    """
    names = (
        [*partition.parts, *(c.category for c in categories)] if by_category else partition.parts
    )
    names = list(dict.fromkeys(names))
    exposed = {name: np.zeros(owner_count + 1) for name in names}
    busy = {name: np.zeros(owner_count + 1) for name in names}
    covered = intervals.EMPTY
    for ranges in categories:
        all_pieces = _cut(ranges.extent, ranges.owner, partition)
        pieces = _cut(*_drop_overlaps(ranges), partition)
        pieces_ns = pieces.extent.end - pieces.extent.start
        exposed_ns = pieces_ns - intervals.overlap(pieces.extent, covered)
        for index, name in enumerate(partition.parts):
            part = ranges.category if by_category else name
            _add(busy[part], all_pieces, index, all_pieces.extent.end - all_pieces.extent.start)
            _add(exposed[part], pieces, index, exposed_ns)
        covered = intervals.unite(covered, ranges.extent)
    total_exposed = {name: float(sums.sum()) for name, sums in exposed.items()}
    part_ns = partition.measure_parts()
    if by_category:
        (rest,) = partition.parts
        idle = {rest: part_ns[rest] - sum(total_exposed.values())}
    else:
        idle = {name: part_ns[name] - total_exposed[name] for name in names}
    return ExposedTime(
        exposed={name: sums[:-1] for name, sums in exposed.items()},
        busy={name: sums[:-1] for name, sums in busy.items()},
        unowned={name: float(sums[-1]) for name, sums in exposed.items()},
        idle=idle,
    )


def find_self_intervals(
    extent: intervals.Intervals, parent: intervals.Int
) -> tuple[intervals.Intervals, intervals.Int]:
    """Find the time of each range outside the ranges directly inside it.

    Args:
        extent: ranges, in any order.
        parent: index of the range around each range, -1 for none. A range that ends after the one
            around it, because clocks are read at different times, is cut there.

    Returns:
        The intervals, and the index of the range that each belongs to.
    """
    count = len(parent)
    inner = np.flatnonzero(parent >= 0)
    inner = inner[np.lexsort((extent.start[inner], parent[inner]))]
    # For each range: an empty border at its start, then the ranges inside it by start.
    order = np.argsort(np.concatenate([np.arange(count), parent[inner]]), kind="stable")
    owner = np.concatenate([np.arange(count), parent[inner]])[order]
    start = np.concatenate([extent.start, extent.start[inner]])[order]
    end = np.concatenate([extent.start, extent.end[inner]])[order]
    start = np.clip(start, extent.start[owner], extent.end[owner])
    end = np.clip(end, extent.start[owner], extent.end[owner])
    reach = _accumulate_maximum(end, owner)
    is_last = np.append(owner[1:] != owner[:-1], np.ones(min(1, count), dtype=np.bool_))
    next_start = np.where(is_last, extent.end[owner], np.append(start[1:], start[:1]))
    nonempty = reach < next_start
    return intervals.Intervals(reach[nonempty], next_start[nonempty]), owner[nonempty]


def _accumulate_maximum(values: intervals.Int, group: intervals.Int) -> intervals.Int:
    """Compute the running maximum within each group; groups are ascending."""
    if not len(values):
        return values
    lowest = int(values.min())
    spacing = int(values.max()) - lowest + 1
    shifted = np.maximum.accumulate(values - lowest + group * spacing)
    return shifted - group * spacing + lowest


class _Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """Pieces of ranges, each within one part of the steps."""

    extent: intervals.Intervals
    owner: intervals.Int
    part: intervals.Int


def _drop_overlaps(ranges: CategoryRanges) -> tuple[intervals.Intervals, intervals.Int]:
    """Remove the time that an earlier range of the category covers; return extents and owners."""
    order = np.lexsort((-ranges.extent.end, ranges.extent.start))
    start, end = ranges.extent.start[order], ranges.extent.end[order]
    reach = np.maximum.accumulate(np.concatenate([start[:1], end[:-1]]))
    start = np.maximum(start, reach)
    nonempty = start < end
    return intervals.Intervals(start[nonempty], end[nonempty]), ranges.owner[order][nonempty]


def _cut(extent: intervals.Intervals, owner: intervals.Int, partition: StepPartition) -> _Pieces:
    """Cut ranges at the edges of parts; time outside the steps is dropped."""
    edges = partition.edges
    first = np.searchsorted(edges, extent.start, side="right")
    count = np.searchsorted(edges, extent.end, side="left") - first + 1
    count = np.where(extent.end > extent.start, count, 0)
    row = np.repeat(np.arange(len(count)), count)
    index = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    bounds = np.concatenate([extent.start[:1], edges, extent.end[:1]])  # the ends are never used
    start = np.where(index > first[row], bounds[index], extent.start[row])
    end = np.where(index < (first + count)[row] - 1, bounds[index + 1], extent.end[row])
    part = partition.part[index]
    inside = part >= 0
    return _Pieces(
        extent=intervals.Intervals(start[inside], end[inside]),
        owner=owner[row][inside],
        part=part[inside],
    )


def _add(sums: Float, pieces: _Pieces, part: int, ns: intervals.Int) -> None:
    """Add the nanoseconds of a part by owner; the last entry is for unknown owners."""
    rows = pieces.part == part
    sums += np.bincount(
        np.where(pieces.owner[rows] < 0, len(sums) - 1, pieces.owner[rows]),
        weights=ns[rows],
        minlength=len(sums),
    )
