"""Gradient exchange that backward passes do not hide, and lateness of ranks at collectives.

Lateness of ranks at collectives, from the times at which they called them. Calls of several ranks
with the same group and number are one collective, which cannot end before its last rank has called
it:

    lateness of a rank at a collective = its call - the first call of any rank
    wait that a rank causes            = its call - the call before it, where it was last

Only collectives that at least two ranks have called with the same kind count. Times of ranks on
several machines differ by the offsets of their clocks as well, which this module does not know.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema

MIN_RECORDED_RATIO = 0.5
"""Recorded exchange is used if all calls of this share of the steps were recorded."""


class RecordedCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives that one process has called, in the order of its recorder."""

    t_ns: intervals.Int
    """Time of each call."""
    seq: intervals.Int
    """Number of each call; a gap is a call that was not recorded."""


def measure_exchange(
    steps: intervals.Intervals,
    passes: intervals.Intervals,
    calls: RecordedCalls,
    explicit: intervals.Intervals,
) -> NDArray[np.float64]:
    """Measure the exposed exchange in the backward passes of each step.

    A backward pass that exchanges gradients ends when the exchange has ended. From its last call of
    a collective on, the rank has nothing else to do:

        exposed exchange = end of the pass - last call of a collective in it

    Both are times of one rank, so clocks of nodes do not matter.

    Args:
        steps: steps of the rank, in order.
        passes: its backward passes, in order; those inside others, such as the passes of reentrant
            checkpoints, do not count.
        calls: its collectives.
        explicit: collectives of its script, whose time is communication anyway.

    Returns:
        Nanoseconds by step; NaN for a step whose calls are not all recorded, and for the last ones,
        without a call after them.
    """
    passes, explicit = intervals.take_outermost(passes), intervals.take_outermost(explicit)
    t_ns = calls.t_ns
    gaps = np.concatenate([[0], np.cumsum(np.diff(calls.seq) != 1)])
    before = np.maximum(np.searchsorted(t_ns, steps.start) - 1, 0)
    after = np.searchsorted(t_ns, steps.end)
    is_complete = after < len(t_ns)
    is_complete[is_complete] = gaps[after[is_complete]] == gaps[before[is_complete]]
    in_script = np.searchsorted(explicit.start, t_ns, side="right") - 1
    if len(explicit.start):
        t_ns = t_ns[(in_script < 0) | (t_ns >= explicit.end[in_script])]
    last = np.searchsorted(t_ns, passes.end) - 1
    last_ns = t_ns[last] if len(t_ns) else passes.start
    exposed = np.where((last >= 0) & (last_ns >= passes.start), passes.end - last_ns, 0)
    step = np.searchsorted(steps.start, passes.start, side="right") - 1
    is_inside = step >= 0
    is_inside[is_inside] = passes.start[is_inside] < steps.end[step[is_inside]]
    exchange = np.bincount(step[is_inside], weights=exposed[is_inside], minlength=len(steps.start))
    return np.where(is_complete, exchange, np.nan)


def compute_exposed_exchange_ratio(account: schema.DdpFact) -> float:
    """Compute the exposed share of gradient exchange in the backward passes of a step.

    DistributedDataParallel reports communication time and its overlap with backward compute; the
    difference is the exposed exchange time of one backward pass. DDP samples only some iterations,
    mainly the first ten, so only the proportions of its figures are used. With m backward passes
    in a step, of which k exchange gradients, the share is

        k exposed / (m compute + k exposed)

    Args:
        account: DDP statistics of a process; `pass_count` and `exchange_count` are m and k, summed
            over `step_count` steps. Without them, every pass counts as an exchange.
    """
    exposed_ns = max(0, account.backward_comm_ns - account.backward_overlap_ns)
    passes = account.pass_count or 1
    exchanges = passes if account.exchange_count is None else account.exchange_count
    total_ns = passes * account.backward_compute_ns + exchanges * exposed_ns
    return float(exchanges * exposed_ns / total_ns) if total_ns else 0.0


def count_exchanges_per_step(account: schema.DdpFact) -> float:
    """Count the backward passes per step that exchange gradients; 1 if they were not counted."""
    if not account.step_count or account.exchange_count is None:
        return 1.0
    return account.exchange_count / account.step_count


def estimate_backward_compute(
    backward_ns: NDArray[np.float64], exchange_ratios: Sequence[float | None]
) -> NDArray[np.float64]:
    """Estimate the compute in the backward passes of each rank and step; the rest is exchange.

    The exchange of all ranks ends at the same time, so the rank that starts its backward pass last
    has the shortest one. With m, the shortest backward pass of a step, the mean compute of a rank
    whose exchange DDP has timed is

        c = min((1 - exposed share) x mean backward pass, mean of m)

    and its compute in a step is c + m - mean of m: a step with more to compute has more of it on
    all ranks. The second bound counts where DDP's timing, mostly of the first iterations, does not
    contain a rank that became slow later.

    Args:
        backward_ns: backward passes by rank and step.
        exchange_ratios: exposed share of each rank by DDP's timing; None for a rank whose backward
            passes contain no exchange.
    """
    shortest = backward_ns.min(axis=0)
    compute = backward_ns.copy()
    for row, ratio in enumerate(exchange_ratios):
        if ratio is not None:
            mean = min((1 - ratio) * backward_ns[row].mean(), shortest.mean())
            compute[row] = mean + shortest - shortest.mean()
    return compute


class RankArrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of collectives of all ranks; arrays have one entry per call."""

    rank: intervals.Int
    """Index of the rank."""
    group: intervals.Int
    """Code of the process group."""
    number: intervals.Int
    """Number of the collective within its group."""
    kind: intervals.Int
    """Code of the kind of call."""
    t_ns: intervals.Int
    """Time of the call."""


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of calls; arrays have one entry per call."""

    is_matched: NDArray[np.bool_]
    """True for a call that another rank has made with the same group, number and kind."""
    lateness_ns: intervals.Int
    """Time after the first call; 0 for an unmatched call."""
    caused_wait_ns: intervals.Int
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


class RankLateness(msgspec.Struct, frozen=True, kw_only=True):
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


def summarize_lateness(
    rank: intervals.Int, lateness: Lateness, rank_count: int
) -> list[RankLateness]:
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
