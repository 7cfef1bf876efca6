"""Lateness of ranks at collectives, from the times at which they called them.

Calls of several ranks with the same group and number are one collective, which cannot end before
its last rank has called it:

    lateness of a rank at a collective = its call - the first call of any rank
    wait that a rank causes            = its call - the call before it, where it was last

Only collectives that at least two ranks have called with the same kind count. Times of ranks on
several machines differ by the offsets of their clocks as well, which this module does not know.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankArrivals:
    """Calls of collectives of all ranks; arrays have one entry per call."""

    rank: Int
    """Index of the rank."""
    group: Int
    """Code of the process group."""
    number: Int
    """Number of the collective within its group."""
    kind: Int
    """Code of the kind of call."""
    t_ns: Int
    """Time of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Lateness of calls; arrays have one entry per call."""

    is_matched: NDArray[np.bool_]
    """True for a call that another rank has made with the same group, number and kind."""
    lateness_ns: Int
    """Time after the first call; 0 for an unmatched call."""
    caused_wait_ns: Int
    """Time for which all others had to wait for this call; 0 unless it was the last."""
    is_last: NDArray[np.bool_]
    """True for the last call of a matched collective; of equal times, that of the highest rank."""
    mismatch_count: int
    """Collectives that ranks have called with different kinds."""


def measure_lateness(arrivals: RankArrivals) -> Lateness:
    """Measure the lateness of every call."""
    count = len(arrivals.t_ns)
    lateness, caused = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    is_matched, is_last = np.zeros(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    if not count:
        return Lateness(
            is_matched=is_matched,
            lateness_ns=lateness,
            caused_wait_ns=caused,
            is_last=is_last,
            mismatch_count=0,
        )
    keys = (arrivals.rank, arrivals.t_ns, arrivals.number, arrivals.group)
    order = np.lexsort(keys)
    group, number = arrivals.group[order], arrivals.number[order]
    t_ns, kind, rank = arrivals.t_ns[order], arrivals.kind[order], arrivals.rank[order]
    starts_collective = np.ones(count, dtype=np.bool_)
    starts_collective[1:] = (group[1:] != group[:-1]) | (number[1:] != number[:-1])
    first = np.flatnonzero(starts_collective)
    sizes = np.diff(np.append(first, count))
    last = first + sizes - 1
    has_one_kind = np.minimum.reduceat(kind, first) == np.maximum.reduceat(kind, first)
    has_ranks = np.minimum.reduceat(rank, first) != np.maximum.reduceat(rank, first)
    counts = has_one_kind & has_ranks
    collective = np.repeat(np.arange(len(first)), sizes)
    is_matched[order] = counts[collective]
    lateness[order] = np.where(counts[collective], t_ns - t_ns[first][collective], 0)
    last_rows = order[last[counts]]
    is_last[last_rows] = True
    caused[last_rows] = t_ns[last[counts]] - t_ns[last[counts] - 1]
    return Lateness(
        is_matched=is_matched,
        lateness_ns=lateness,
        caused_wait_ns=caused,
        is_last=is_last,
        mismatch_count=int((~has_one_kind & has_ranks).sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLateness:
    """Lateness of one rank over its matched collectives."""

    call_count: int
    matched_count: int
    last_count: int
    """Matched collectives at which it was last."""
    median_ns: float | None
    """Median of its lateness; None without matched collectives, like the others."""
    p95_ns: float | None
    mean_ns: float | None
    caused_wait_ns: int
    """Total time for which the others waited for it alone."""


def summarize_lateness(rank: Int, lateness: Lateness, rank_count: int) -> list[RankLateness]:
    """Summarize the lateness of each rank.

    Args:
        rank: index of the rank of each call.
        lateness: lateness of the calls.
        rank_count: number of ranks.
    """
    summaries = []
    for index in range(rank_count):
        is_of_rank = rank == index
        matched = is_of_rank & lateness.is_matched
        values = lateness.lateness_ns[matched]
        is_known = len(values) > 0
        summaries.append(
            RankLateness(
                call_count=int(is_of_rank.sum()),
                matched_count=len(values),
                last_count=int((matched & lateness.is_last).sum()),
                median_ns=float(np.median(values)) if is_known else None,
                p95_ns=float(np.quantile(values, 0.95)) if is_known else None,
                mean_ns=float(values.mean()) if is_known else None,
                caused_wait_ns=int(lateness.caused_wait_ns[matched].sum()),
            )
        )
    return summaries
