"""A link of one node that is slower than those of the others."""

from __future__ import annotations

import numpy as np

from stepscope.quantities import memory, percent
from stepscope.run import Rank, Run, SharedSteps, read_recorded_collectives

MIN_TRANSFER_RATIO = 0.2
"""Share of step time from which transfer matters."""
MIN_QUEUE_FACTOR = 4.0
"""The send queue of a node with a slow link is larger than that of any other node by this."""
MIN_QUEUE_BYTES = 16 << 10


def describe_slow_link(run: Run, steps: SharedSteps) -> str | None:
    """Describe the link that collectives wait for; None if there is none.

    All ranks wait alike for a slow link, so none is late. But what cannot be sent at once fills the
    send queues of the node before it, if collectives are sent by TCP: by a backend of the host.
    """
    transfer_ns = steps.communication_ns.min(axis=0).sum()
    transfer_ratio = float(transfer_ns / steps.wall_ns.mean(axis=0).sum())
    ranks = {rank.process.node: rank for rank in run.ranks}
    if transfer_ratio < MIN_TRANSFER_RATIO or len(ranks) < 2:
        return None
    recorded = read_recorded_collectives(run)
    if isinstance(recorded, str) or set(recorded.is_on_host.tolist()) != {True}:
        return None
    queues = {
        node: value
        for node, rank in sorted(ranks.items())
        if (value := _measure_queue(run, rank, transfer_ratio)) is not None
    }
    if len(queues) < len(ranks):
        return None
    node = max(queues, key=lambda name: queues[name])
    largest = queues.pop(node)
    next_largest = max(queues.values())
    if largest < max(MIN_QUEUE_BYTES, MIN_QUEUE_FACTOR * next_largest):
        return None
    return (
        f"Transfer takes {percent(transfer_ratio)} of step time, over a slow link from {node}: "
        f"{memory(largest)} wait to be sent there for half of that time, on other nodes at most "
        f"{memory(next_largest)}."
    )


def _measure_queue(run: Run, rank: Rank, transfer_ratio: float) -> float | None:
    """Measure the bytes that wait to be sent on the node of a rank for half of the transfer time.

    What fills the queue for a shorter part of the steps, such as an upload, does not count: this is
    the quantile 1 - transfer ratio / 2 of the samples. None without any.
    """
    metrics, times = run.metrics.get(rank.process.node), rank.table.steps.unpack()
    if metrics is None:
        return None
    during = metrics.between(int(times.start[0]), int(times.end[-1]))
    values = during.series("network_unsent_bytes")
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    return float(np.quantile(values, 1 - transfer_ratio / 2, method="lower"))
