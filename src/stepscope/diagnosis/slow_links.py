"""A link of one node that is slower than those of the others."""

from __future__ import annotations

from stepscope.quantities import memory, percent
from stepscope.run import Run, SharedSteps

MIN_TRANSFER_RATIO = 0.2
"""Share of step time from which transfer matters."""
MIN_QUEUE_FACTOR = 4.0
"""The send queue of a node with a slow link is larger than that of any other node by this."""
MIN_QUEUE_BYTES = 16 << 10


def describe_slow_link(run: Run, steps: SharedSteps) -> str | None:
    """Describe the link that collectives wait for; None if there is none.

    All ranks wait alike for a slow link, so none is late. But what cannot be sent at once fills the
    send queues of the node before it.
    """
    transfer_ns = steps.communication_ns.min(axis=0).sum()
    transfer_ratio = float(transfer_ns / steps.wall_ns.mean(axis=0).sum())
    nodes = {rank.process.node for rank in run.ranks}
    queues = {
        node: value
        for node in sorted(nodes)
        if (metrics := run.metrics.get(node)) is not None
        and (value := metrics.mean("network_unsent_bytes")) is not None
    }
    if transfer_ratio < MIN_TRANSFER_RATIO or len(queues) < 2 or len(queues) < len(nodes):
        return None
    node = max(queues, key=lambda name: queues[name])
    largest = queues.pop(node)
    next_largest = max(queues.values())
    if largest < max(MIN_QUEUE_BYTES, MIN_QUEUE_FACTOR * next_largest):
        return None
    return (
        f"Transfer takes {percent(transfer_ratio)} of step time, over a slow link from {node}: "
        f"{memory(largest)} wait to be sent there on average, on other nodes at most "
        f"{memory(next_largest)}."
    )
