"""Link out of one node that is slower than those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_TRANSFER_RATIO = 0.2
"""Share of step time from which transfer matters."""
MIN_WAITING_RATIO = 0.5
"""Share of the transfer time for which bytes wait before a slow link. Bytes that wait for a shorter
part of the steps, such as those of an upload, do not count."""
MIN_UNSENT_BYTES = 4 << 10
"""Bytes that wait: more than what is on the way at any time between two near nodes."""
MIN_WAITING_COUNT = 10
"""Samples with waiting bytes below which they may be chance."""
MIN_OTHER_FACTOR = 4.0
"""Bytes wait so many times as long before a slow link as on any other node."""


class SendQueue(NamedTuple):
    """Samples of the bytes that one node has not sent yet."""

    sample_count: int = 0
    waiting_count: int = 0
    """Samples in which bytes waited."""

    @classmethod
    def of(cls, unsent_bytes: NDArray[np.float64]) -> SendQueue:
        """Count samples; NaN is none."""
        samples = unsent_bytes[np.isfinite(unsent_bytes)]
        return cls(len(samples), int((samples >= MIN_UNSENT_BYTES).sum()))

    def add(self, later: SendQueue) -> SendQueue:
        """Return the samples of both."""
        return SendQueue(
            self.sample_count + later.sample_count, self.waiting_count + later.waiting_count
        )

    @property
    def waiting_ratio(self) -> float:
        """Share of the samples in which bytes waited."""
        return self.waiting_count / self.sample_count


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowLink:
    """Slow link out of one node."""

    node: str
    transfer_ratio: float
    """Share of the transfer in step time."""
    waiting_ratio: float
    """Share of the time for which bytes wait to be sent on the node."""
    other_waiting_ratio: float
    """The largest such share of another node."""


def find_slow_link(transfer_ratio: float, queues: Mapping[str, SendQueue]) -> SlowLink | None:
    """Find the slow link that collectives wait for; None if there is none.

    All ranks wait alike for a slow link, so none is late. But bytes wait to be sent on the node
    before it only: in a ring, the others have nothing to send until these have arrived.

    Args:
        transfer_ratio: share of the time in which all ranks communicate in step time.
        queues: samples during the steps by node, of all nodes of the job.
    """
    is_complete = all(queue.sample_count for queue in queues.values())
    if transfer_ratio < MIN_TRANSFER_RATIO or len(queues) < 2 or not is_complete:
        return None
    ratios = {node: queue.waiting_ratio for node, queue in sorted(queues.items())}
    node = max(ratios, key=lambda name: ratios[name])
    ratio = ratios.pop(node)
    other_ratio = max(ratios.values())
    min_ratio = max(MIN_WAITING_RATIO * transfer_ratio, MIN_OTHER_FACTOR * other_ratio)
    if ratio < min_ratio or queues[node].waiting_count < MIN_WAITING_COUNT:
        return None
    return SlowLink(
        node=node,
        transfer_ratio=transfer_ratio,
        waiting_ratio=ratio,
        other_waiting_ratio=other_ratio,
    )
