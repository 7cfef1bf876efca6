"""How much of the backward passes is gradient exchange that nothing hides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def exposed_exchange_ratio(account: Mapping[str, Any]) -> float:
    """Share of the backward passes of a step, from DistributedDataParallel's own account.

    DDP's exchange time minus its overlap with the backward computation is what one backward pass
    waited for: `exposed`, beside `compute`. The account is of the iterations that DDP samples, the
    first ten above all, so that only its proportions are used. Of m backward passes of a step, k
    exchange gradients, so that the share is

        k exposed / (m compute + k exposed)

    Args:
        account: the fact `ddp` of a process; `pass_count` and `exchange_count` are m and k, summed
            over `step_count` steps. Where they are missing, every pass exchanges.
    """
    exposed = max(0, account["backward_comm_ns"] - account["backward_overlap_ns"])
    passes = account.get("pass_count") or 1
    exchanges = account.get("exchange_count", passes)
    whole = passes * account["backward_compute_ns"] + exchanges * exposed
    return float(exchanges * exposed / whole) if whole else 0.0


def exchanges_per_step(account: Mapping[str, Any]) -> float:
    """Backward passes of a step that exchange gradients; 1 where they were not counted."""
    steps = account.get("step_count")
    return account["exchange_count"] / steps if steps else 1.0
