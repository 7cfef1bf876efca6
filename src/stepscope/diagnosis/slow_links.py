"""A link of one node that is slower than those of the others."""

from __future__ import annotations

from stepscope.analysis import SendQueue, find_slow_link
from stepscope.rules import UNSENT_METRIC, describe_slow_link
from stepscope.run import Rank, Run, SharedSteps, read_recorded_collectives


def report_slow_link(run: Run, steps: SharedSteps) -> str | None:
    """Describe the slow link that collectives wait for; None if there is none.

    What cannot be sent at once waits on the node before the link if collectives are sent by TCP: by
    a backend of the host.
    """
    transfer_ns = steps.communication_ns.min(axis=0).sum()
    transfer_ratio = float(transfer_ns / steps.wall_ns.mean(axis=0).sum())
    ranks = {rank.process.node: rank for rank in run.ranks}
    link = find_slow_link(
        transfer_ratio, {node: _count_samples(run, rank) for node, rank in ranks.items()}
    )
    if link is None:
        return None
    recorded = read_recorded_collectives(run)
    is_sent_by_host = not isinstance(recorded, str) and bool(recorded.is_on_host.all())
    return describe_slow_link(link) if is_sent_by_host else None


def _count_samples(run: Run, rank: Rank) -> SendQueue:
    """Count the samples of the send queue of a rank's node during the steps of the rank."""
    metrics, times = run.metrics.get(rank.process.node), rank.table.steps.unpack()
    if metrics is None:
        return SendQueue()
    during = metrics.between(int(times.start[0]), int(times.end[-1]))
    return SendQueue.of(during.series(UNSENT_METRIC))
