"""First late rank of a chain of groups: the one that made the others late.

With tensor, pipeline and data groups, a rank may arrive late at a collective only because another
rank was late at its previous one, in another group. No rank leaves a collective before its last
rank has arrived:

    release of a rank at a collective   latest arrival at the previous collective of the rank
    lateness of the last rank           its arrival - median arrival of the other ranks
    inherited lateness                  its release - median release of the other ranks

If at least half of the lateness is inherited, the last rank of that previous collective is asked
in its place, and so on. Where the lateness is the rank's own, the chain starts; also where the rank
arrived at the previous collective almost as late as the last one did. Arrivals are times
of one clock: those of several nodes need `clock_alignment`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.grouping import group_rows
from stepscope.intervals import Int

MIN_INHERITED_RATIO = 0.5
"""Share of the lateness of a rank from which another rank made it late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupArrivals:
    """Arrivals of ranks at matched collectives of any groups; one entry per call."""

    rank: Int
    """Index of the rank."""
    collective: Int
    """Number that the calls of one collective have in common."""
    t_ns: Int
    """Arrival, nanoseconds of one clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateChains:
    """Origins of lateness; one entry per collective of at least two ranks, by its number."""

    collective: Int
    last_rank: Int
    """Rank that arrived last."""
    lateness_ns: NDArray[np.float64]
    """Its arrival minus the median of the other ranks'."""
    first_rank: Int
    """Rank with which the chain of lateness started; the last rank itself if it is its own."""
    links: Int
    """Collectives between the two; 0 if they are the same rank at the same collective."""


def find_late_chains(arrivals: GroupArrivals) -> LateChains:
    """Find the first late rank of every collective."""
    groups = group_rows(arrivals.collective)
    order = np.lexsort((arrivals.t_ns, groups.group))
    counts = groups.counts()
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    last_call = order[first + counts - 1] if len(groups) else np.empty(0, dtype=np.int64)
    previous = _find_previous_calls(arrivals)
    latest = arrivals.t_ns[last_call]
    source = np.where(previous >= 0, groups.group[previous], -1)
    release = np.where(previous >= 0, latest[source], arrivals.t_ns.min(initial=0))
    lateness = np.zeros(len(groups))
    inherited = np.zeros(len(groups))
    held_up = np.zeros(len(groups))
    for index in np.flatnonzero(counts > 1).tolist():
        calls = order[first[index] : first[index] + counts[index]]
        lateness[index] = latest[index] - np.median(arrivals.t_ns[calls[:-1]])
        inherited[index] = release[calls[-1]] - np.median(release[calls[:-1]])
        held_up[index] = release[calls[-1]] - arrivals.t_ns[previous[calls[-1]]]
    origin, links = np.arange(len(groups)), np.zeros(len(groups), dtype=np.int64)
    for index in np.argsort(latest, kind="stable").tolist():  # causes come before effects
        before = source[last_call[index]] if len(last_call) else -1
        enough_ns = MIN_INHERITED_RATIO * lateness[index]
        is_inherited = inherited[index] >= enough_ns > 0
        if before < 0 or not is_inherited or latest[before] > latest[index]:
            continue
        was_last = arrivals.rank[last_call[before]] == arrivals.rank[last_call[index]]
        if was_last or held_up[index] >= enough_ns:
            origin[index], links[index] = origin[before], links[before] + 1
    shared = np.flatnonzero(counts > 1)
    return LateChains(
        collective=arrivals.collective[groups.first][shared],
        last_rank=arrivals.rank[last_call][shared],
        lateness_ns=lateness[shared],
        first_rank=arrivals.rank[last_call][origin[shared]],
        links=links[shared],
    )


def _find_previous_calls(arrivals: GroupArrivals) -> Int:
    """Find the call of the same rank before each call; -1 for its first."""
    order = np.lexsort((arrivals.t_ns, arrivals.rank))
    previous = np.full(len(order), -1, dtype=np.int64)
    same = arrivals.rank[order[1:]] == arrivals.rank[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous
