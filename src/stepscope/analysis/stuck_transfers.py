"""Transfer between two ranks at which a job is stuck, and the ranks that others wait for.

A rank that waits for a transfer waits for the other rank of it, which may wait itself, as the
stages of a pipeline do. So the ranks form a graph, whose ends do not wait: they hold up the others.
A graph without an end has a cycle, of ranks that wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepscope.analysis.stuck_collectives import Call

RECEIVE = "recv"


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckTransfer:
    """Transfer in which a rank waits for one that holds up the others."""

    call: Call
    rank: int
    """Rank that waits in it."""
    waiting: list[int]
    """All ranks that wait for a transfer."""
    missing: list[int]
    """Ranks that others wait for and that wait for none; empty in a cycle."""
    cycle: list[int] = field(default_factory=list)
    """Ranks that wait for each other, if there is no such rank."""


def find_stuck_transfer(pending: Mapping[int, Sequence[Call]]) -> StuckTransfer | None:
    """Find the transfer at which the job is stuck; None if no rank waits for one.

    Args:
        pending: transfers that have not ended, of each rank that waits. All have a peer.
    """
    edges = {rank: {call.peer for call in calls} for rank, calls in pending.items() if calls}
    missing = {peer for peers in edges.values() for peer in peers if peer not in edges}
    receiving = {
        call.peer for calls in pending.values() for call in calls if RECEIVE in call.kind.lower()
    }
    missing = (missing & receiving) or missing  # a send may end without the other rank
    cycle = {rank for rank in edges if rank in _reach(edges, rank)}
    candidates = [
        (call.t_ns, rank, call)
        for rank, calls in pending.items()
        for call in calls
        if call.peer in (missing or cycle)
    ]
    if not candidates:
        return None
    _, rank, call = min(candidates)
    return StuckTransfer(
        call=call,
        rank=rank,
        waiting=sorted(edges),
        missing=sorted(peer for peer in missing if peer is not None),
        cycle=[] if missing else sorted(cycle),
    )


def _reach(edges: Mapping[int, set[int | None]], start: int) -> set[int | None]:
    """Return the ranks that a rank waits for, directly or through others."""
    reached: set[int | None] = set()
    new = set(edges[start])
    while new:
        reached |= new
        new = {peer for rank in new if rank is not None for peer in edges.get(rank, ())} - reached
    return reached
