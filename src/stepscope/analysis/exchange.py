"""Share of backward passes spent on exposed gradient exchange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compute_exposed_exchange_ratio(account: Mapping[str, Any]) -> float:
    """Compute the exposed share of gradient exchange in the backward passes of a step.

    DistributedDataParallel reports communication time and its overlap with backward compute; the
    difference is the exposed exchange time of one backward pass. DDP samples only some iterations,
    mainly the first ten, so only the proportions of its figures are used. With m backward passes
    in a step, of which k exchange gradients, the share is

        k exposed / (m compute + k exposed)

    Args:
        account: the fact `ddp` of a process; `pass_count` and `exchange_count` are m and k, summed
            over `step_count` steps. Without them, every pass counts as an exchange.
    """
    exposed_ns = max(0, account["backward_comm_ns"] - account["backward_overlap_ns"])
    passes = account.get("pass_count") or 1
    exchanges = account.get("exchange_count", passes)
    total_ns = passes * account["backward_compute_ns"] + exchanges * exposed_ns
    return float(exchanges * exposed_ns / total_ns) if total_ns else 0.0


def count_exchanges_per_step(account: Mapping[str, Any]) -> float:
    """Count the backward passes per step that exchange gradients; 1 if they were not counted."""
    steps = account.get("step_count")
    return account["exchange_count"] / steps if steps else 1.0
