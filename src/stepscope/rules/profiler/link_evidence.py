"""Evidence of a slow link between nodes, collected while a job runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from stepscope.analysis import SendQueue, Series, SlowLink, find_slow_link, merge_series
from stepscope.quantities import percent
from stepscope.rules.inputs import RuleInputs

UNSENT_METRIC = "network_unsent_bytes"
MAX_PENDING = 100_000
"""Samples of a node kept until all ranks have reached them."""


@dataclass(slots=True)
class LinkEvidence:
    """Transfer time of the compared steps, and send queues of the nodes during them."""

    transfer_ns: int = 0
    wall_ns: int = 0
    queues: dict[str, SendQueue] = field(default_factory=dict)
    """By node."""
    pending: dict[str, Series] = field(default_factory=dict)
    """Samples of nodes from the last compared step on."""

    def add_samples(self, inputs: RuleInputs) -> None:
        """Add the samples of a range."""
        for device, series in inputs.series(UNSENT_METRIC).items():
            earlier = self.pending.get(device.node)
            samples = merge_series([series] if earlier is None else [earlier, series])
            self.pending[device.node] = Series(
                samples.t_ns[-MAX_PENDING:], samples.value[-MAX_PENDING:]
            )

    def add_steps(
        self, nodes: Iterable[str], *, transfer_ns: int, wall_ns: int, start_ns: int, end_ns: int
    ) -> SlowLink | None:
        """Add consecutive steps of all ranks.

        Args:
            nodes: those of the ranks.
            transfer_ns: time in which all ranks communicate.
            wall_ns: wall time.
            start_ns, end_ns: their extent.

        Returns:
            The slow link of the steps so far; None if there is none.
        """
        self.transfer_ns += transfer_ns
        self.wall_ns += wall_ns
        for node in set(nodes):
            samples = self.pending.get(node)
            queue = self.queues.get(node, SendQueue())
            if samples is not None:
                first, last = np.searchsorted(samples.t_ns, [start_ns, end_ns])
                queue = queue.add(SendQueue.of(samples.value[first:last]))
                self.pending[node] = Series(samples.t_ns[last:], samples.value[last:])
            self.queues[node] = queue
        return find_slow_link(self.transfer_ns / self.wall_ns, self.queues)


def describe_slow_link(link: SlowLink) -> str:
    """Describe a slow link in a sentence."""
    return (
        f"Transfer takes {percent(link.transfer_ratio)} of step time, over a slow link from "
        f"{link.node}: data wait to be sent there {percent(link.waiting_ratio)} of the time, on "
        f"other nodes at most {percent(link.other_waiting_ratio)}."
    )
