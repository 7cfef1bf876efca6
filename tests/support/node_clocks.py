"""Collectives of many nodes on clocks with a known offset and drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import CollectiveTimes

EPOCH_NS = 1_700_000_000_000_000_000
Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class TimedNodes:
    """Calls on the clocks of their nodes, and the truth."""

    calls: CollectiveTimes
    start: Float
    """True start of each call, nanoseconds since the start of the job."""
    offset_ns: Float
    """Clock minus true time at the start of the job, by node."""
    drift: Float
    """Rate of the clock minus 1, by node."""

    def read(self, node: int, true_ns: Float) -> Float:
        """Return what the clock of a node shows, nanoseconds since the epoch."""
        return true_ns + self.offset_ns[node] + self.drift[node] * true_ns


def draw_nodes(
    seed: int,
    count: int = 64,
    *,
    collectives: int = 600,
    seconds: float = 300,
    late_ms: float = 5,
    transfer_ms: float = 1,
    offset_s: float = 5,
    drift_ppm: float = 50,
    groups: Sequence[Sequence[int]] = (),
    unequal_ends: bool = False,
) -> TimedNodes:
    """Draw collectives of nodes that arrive at random and end after the last has arrived.

    Args:
        seed: of the random numbers.
        count: number of nodes.
        collectives: number of collectives.
        seconds: duration of the job.
        late_ms: mean lateness of a rank.
        transfer_ms: mean time from the last arrival to the end.
        offset_s: largest offset of a clock.
        drift_ppm: largest drift of a clock.
        groups: nodes of the collectives, in turn; all nodes by default.
        unequal_ends: let nodes end the later the larger their number is.
    """
    random = np.random.default_rng(seed)
    offset = random.uniform(-offset_s, offset_s, count) * 1e9
    drift = random.uniform(-drift_ppm, drift_ppm, count) * 1e-6
    members = [np.array(group) for group in groups] or [np.arange(count)]
    nodes, numbers, starts, ends = [], [], [], []
    for number, begin in enumerate(np.sort(random.uniform(0, seconds * 1e9, collectives))):
        group = members[number % len(members)]
        start = begin + random.exponential(late_ms * 1e6, len(group))
        end = start.max() + 1e4 + random.exponential(transfer_ms * 1e6)
        end = end + random.exponential(transfer_ms * 2e5, len(group))
        end = end + (group * transfer_ms * 1e6 / count if unequal_ends else 0)
        nodes.append(group)
        numbers.append(np.full(len(group), number))
        starts.append(start)
        ends.append(end)
    node, start, end = np.concatenate(nodes), np.concatenate(starts), np.concatenate(ends)

    def read(time: Float) -> NDArray[np.int64]:
        return EPOCH_NS + np.rint(time + offset[node] + drift[node] * time).astype(np.int64)

    calls = CollectiveTimes(
        node=node,
        collective=np.concatenate(numbers),
        start_ns=read(start),
        end_ns=read(end),
        is_exact=np.ones(len(node), dtype=np.bool_),
    )
    return TimedNodes(calls=calls, start=start, offset_ns=offset, drift=drift)
