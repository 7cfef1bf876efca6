"""Whose each moment of some steps is.

Several things go on at once: kernels of several streams, copies beside them, the host running
ahead. Added up, their durations say nothing about how long a step takes. So every moment is given
to one owner: claims are taken in their order (`CATEGORIES` of `trace_steps`: what devices compute
before what they copy, before collectives, before the host), and within a claim the range that
began first keeps the moment until it ends. What an owner is given is its *exposed* time: no longer
how long it took, but how much of the step was spent on nothing that comes before it. Exposed times
sum to the duration of the steps, so that their differences sum to the difference of two runs.

The idea, priority among overlapping activities, is that of the breakdowns of a step which show
computation, exposed communication and idle time; here it goes down to the single call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import EMPTY, Int, Intervals, contains, overlap, union

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Ranges of time of one category, in no order."""

    category: str
    extent: Intervals
    owner: Int
    """Number of whom each range belongs to, -1 for nobody who is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Time cut into pieces, each of one part of the step."""

    edges: Int
    """Sorted."""
    part: Int
    """Of what lies before each edge, and at last of what lies behind the last: place in `parts`,
    -1 outside all steps."""
    parts: list[str]

    def lasts(self) -> dict[str, int]:
        """Nanoseconds of each part."""
        inner = self.part[1:-1]
        kept = inner >= 0
        sums = np.bincount(inner[kept], np.diff(self.edges)[kept], minlength=len(self.parts))
        return dict(zip(self.parts, np.rint(sums).astype(np.int64).tolist(), strict=True))


def divide(extent: Intervals, parts: Sequence[tuple[str, Intervals]], rest: str) -> Division:
    """Steps divided into parts.

    Args:
        extent: of the steps.
        parts: when each of them was, the first that holds a moment having it; names may recur.
        rest: what the time of no part is called.
    """
    steps = union(extent)
    merged = [(name, union(times)) for name, times in parts]
    edges = np.unique(np.concatenate([*steps, *(edge for _, times in merged for edge in times)]))
    names = list(dict.fromkeys([*(name for name, _ in parts), rest]))
    part = np.full(len(edges) + 1, -1, dtype=np.int64)
    inside = contains(steps, edges)
    part[1:][inside] = names.index(rest)
    for name, times in reversed(merged):
        part[1:][inside & contains(times, edges)] = names.index(name)
    return Division(edges=edges, part=part, parts=names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """Nanoseconds by part."""

    exposed: Mapping[str, Float]
    """By owner."""
    busy: Mapping[str, Float]
    """How long the same ranges took, whatever ran beside them; by owner."""
    nobodys: Mapping[str, float]
    """Claimed, but by nobody who is known."""
    idle: Mapping[str, float]
    """Claimed by nothing."""


def owned(
    claims: Sequence[Claim], division: Division, owner_count: int, *, by_category: bool
) -> Owned:
    """Who has the time of some steps.

    Args:
        claims: in the order in which they are served.
        division: the steps and their parts.
        owner_count: owners are numbered from 0 to below this.
        by_category: parts are the categories of the claims (the division has one part, the name
            of what no claim covers) instead of the parts of the division.
    """
    names = [*division.parts, *(c.category for c in claims)] if by_category else division.parts
    names = list(dict.fromkeys(names))
    exposed = {name: np.zeros(owner_count + 1) for name in names}
    busy = {name: np.zeros(owner_count + 1) for name in names}
    taken = EMPTY
    for claim in claims:
        whole = _cut(claim.extent, claim.owner, division)
        first = _cut(*_first_come(claim), division)
        free_ns = first.extent.end - first.extent.start - overlap(first.extent, taken)
        for place, name in enumerate(division.parts):
            part = claim.category if by_category else name
            _add(busy[part], whole, place, whole.extent.end - whole.extent.start)
            _add(exposed[part], first, place, free_ns)
        both = zip(taken, claim.extent, strict=True)
        taken = union(Intervals(*(np.concatenate(pair) for pair in both)))
    given = {name: float(sums.sum()) for name, sums in exposed.items()}
    lasts = division.lasts()
    if by_category:
        (rest,) = division.parts
        idle = {rest: lasts[rest] - sum(given.values())}
    else:
        idle = {name: lasts[name] - given[name] for name in names}
    return Owned(
        exposed={name: sums[:-1] for name, sums in exposed.items()},
        busy={name: sums[:-1] for name, sums in busy.items()},
        nobodys={name: float(sums[-1]) for name, sums in exposed.items()},
        idle=idle,
    )


def own_pieces(extent: Intervals, parent: Int) -> tuple[Intervals, Int]:
    """When each range was going on and none of those directly inside it.

    Args:
        extent: ranges, in no order.
        parent: index of the range around each one, -1 for none. One that ends after the range
            around it, as clocks that are read at different moments make it, is cut there.

    Returns:
        The pieces, and the range that each belongs to.
    """
    count = len(parent)
    inner = np.flatnonzero(parent >= 0)
    inner = inner[np.lexsort((extent.start[inner], parent[inner]))]
    # Of each range a border at its start, then those inside it by start, then a border at its end.
    order = np.argsort(np.concatenate([np.arange(count), parent[inner]]), kind="stable")
    owner = np.concatenate([np.arange(count), parent[inner]])[order]
    begin = np.concatenate([extent.start, extent.start[inner]])[order]
    end = np.concatenate([extent.start, extent.end[inner]])[order]
    begin = np.clip(begin, extent.start[owner], extent.end[owner])
    end = np.clip(end, extent.start[owner], extent.end[owner])
    reach = _running_maximum(end, owner)
    last = np.append(owner[1:] != owner[:-1], np.ones(min(1, count), dtype=np.bool_))
    until = np.where(last, extent.end[owner], np.append(begin[1:], begin[:1]))
    kept = reach < until
    return Intervals(reach[kept], until[kept]), owner[kept]


def _running_maximum(values: Int, group: Int) -> Int:
    """The largest value so far within each group; groups are ascending."""
    if not len(values):
        return values
    lowest = int(values.min())
    stretch = int(values.max()) - lowest + 1
    lifted = np.maximum.accumulate(values - lowest + group * stretch)
    return lifted - group * stretch + lowest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    extent: Intervals
    owner: Int
    part: Int


def _first_come(claim: Claim) -> tuple[Intervals, Int]:
    """The ranges without what an earlier one covers already."""
    order = np.lexsort((-claim.extent.end, claim.extent.start))
    start, end = claim.extent.start[order], claim.extent.end[order]
    reach = np.maximum.accumulate(np.concatenate([start[:1], end[:-1]]))
    begin = np.maximum(start, reach)
    kept = begin < end
    return Intervals(begin[kept], end[kept]), claim.owner[order][kept]


def _cut(extent: Intervals, owner: Int, division: Division) -> _Pieces:
    """Ranges cut at the borders of parts; what lies outside the steps is left out."""
    edges = division.edges
    first = np.searchsorted(edges, extent.start, side="right")
    count = np.searchsorted(edges, extent.end, side="left") - first + 1
    count = np.where(extent.end > extent.start, count, 0)
    row = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    bounds = np.concatenate([extent.start[:1], edges, extent.end[:1]])  # the ends are never used
    begin = np.where(place > first[row], bounds[place], extent.start[row])
    end = np.where(place < (first + count)[row] - 1, bounds[place + 1], extent.end[row])
    part = division.part[place]
    kept = part >= 0
    return _Pieces(
        extent=Intervals(begin[kept], end[kept]), owner=owner[row][kept], part=part[kept]
    )


def _add(sums: Float, pieces: _Pieces, place: int, ns: Int) -> None:
    """Add up by owner; nobody is the last."""
    rows = pieces.part == place
    sums += np.bincount(
        np.where(pieces.owner[rows] < 0, len(sums) - 1, pieces.owner[rows]),
        weights=ns[rows],
        minlength=len(sums),
    )
