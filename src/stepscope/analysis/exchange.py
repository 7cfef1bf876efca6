"""Share of backward passes spent on exposed gradient exchange."""

from __future__ import annotations

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
