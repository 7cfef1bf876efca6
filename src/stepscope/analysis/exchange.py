"""Gradient exchange that backward passes do not hide."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope.schema import DdpFact


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
