"""Gradient exchange that backward passes do not hide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int, Intervals, take_outermost
from stepscope.schema import DdpFact

MIN_RECORDED_RATIO = 0.5
"""Recorded exchange is used if all calls of this share of the steps were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCalls:
    """Collectives that one process has called, in the order of its recorder."""

    t_ns: Int
    """Time of each call."""
    seq: Int
    """Number of each call; a gap is a call that was not recorded."""


def measure_exchange(
    steps: Intervals, passes: Intervals, calls: RecordedCalls, explicit: Intervals
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
    passes, explicit = take_outermost(passes), take_outermost(explicit)
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


def compute_exposed_exchange_ratio(account: DdpFact) -> float:
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


def count_exchanges_per_step(account: DdpFact) -> float:
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
