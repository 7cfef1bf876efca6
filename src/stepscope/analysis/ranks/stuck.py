"""Collective or transfer at which a job is stuck: the ranks that wait, and those they wait for.

Every rank numbers the collectives of a process group. The job is stuck at the first one that some
rank has called and that has not ended:

    missing    members of the group whose last number is smaller
    differing  members that have called something else under this number: another kind, or, where
               all members have to pass the same, other sizes or types
    unknown    members of which no calls were read: they may have called it or not

Of two groups the one counts whose missing ranks wait nowhere themselves: a rank that waits in
another group is held up by somebody else. If half of the ranks have called one thing and half
another, the calls before decide: the rank differs whose call does not follow them as it did before.

Transfer between two ranks at which a job is stuck, and the ranks that others wait for. A rank that
waits for a transfer waits for the other rank of it, which may wait itself, as the stages of a
pipeline do. So the ranks form a graph, whose ends do not wait: they hold up the others. A graph
without an end has a cycle, of ranks that wait for each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

UNEVEN_KINDS = ("all_to_all", "alltoall", "gather", "scatter", "allgatherv", "reduce_scatterv")
"""Kinds whose members may pass tensors of different sizes."""
EVEN_KINDS = ("all_gather", "allgather", "reduce_scatter")
"""Kinds whose names contain one of `UNEVEN_KINDS` and whose members pass equal sizes."""
MIN_CONTEXT, MAX_CONTEXT = 2, 16
"""Calls before the one in question that have to be equal to earlier ones."""


class Call(NamedTuple):
    """Collective or transfer that one rank has called."""

    group: str
    number: int
    kind: str
    sizes: str
    dtypes: str
    has_ended: bool
    t_ns: int
    peer: int | None = None
    """Other rank of a transfer between two ranks; None for a collective."""

    @property
    def signature(self) -> tuple[str, str, str]:
        """Facts on which all ranks have to agree."""
        lower = self.kind.lower()
        is_even = lower.lstrip("_").startswith(EVEN_KINDS)
        if not is_even and any(kind in lower for kind in UNEVEN_KINDS):
            return self.kind, "", self.dtypes
        return self.kind, self.sizes, self.dtypes


class DifferingCall(msgspec.Struct, frozen=True, kw_only=True):
    """Call of a rank that is not what the others have called."""

    rank: int
    call: Call
    has_skipped: bool
    """True if it is what should follow: the rank has left out the collective."""


class StuckCollective(msgspec.Struct, frozen=True, kw_only=True):
    """Collective at which ranks wait."""

    call: Call
    """As those have called it that wait for the others."""
    waiting: list[int]
    """Ranks that have called it."""
    missing: list[int]
    """Ranks that have not called it."""
    differing: list[DifferingCall]
    is_tied: bool
    """True if the ranks disagree, and nothing tells which are right: `differing` has all."""
    unknown: list[int] = msgspec.field(default_factory=list)
    """Ranks of the group of which no calls were read."""


def find_stuck_collective(
    calls: Mapping[int, Sequence[Call]], groups: Mapping[str, Sequence[int]]
) -> StuckCollective | None:
    """Find the collective at which the job is stuck; None if no rank waits in one.

    Args:
        calls: latest calls of each rank that was read, in the order of the calls.
        groups: ranks of process groups by name; of other groups the ranks that have called.
    """
    open_groups = {call.group for sequence in calls.values() for call in sequence if is_open(call)}
    candidates = [
        candidate
        for group in sorted(open_groups)
        if (candidate := _examine_group(group, calls, groups.get(group))) is not None
    ]
    if not candidates:
        return None
    waiting = {rank for rank, sequence in calls.items() if any(map(is_open, sequence))}

    def order(candidate: StuckCollective) -> tuple[int, int]:
        if any(rank not in waiting for rank in candidate.missing):
            return 0, candidate.call.t_ns
        if candidate.differing:
            return 1, candidate.call.t_ns
        if candidate.unknown:
            return 2, candidate.call.t_ns
        return (3 if candidate.missing else 4), candidate.call.t_ns

    return min(candidates, key=order)


def find_last_collective(
    calls: Mapping[int, Sequence[Call]], groups: Mapping[str, Sequence[int]]
) -> StuckCollective | None:
    """Find the collective at which a job has failed: the last one of a group that not all of its
    ranks have called, or not all in the same way. None if there is no such.

    When processes end, recorders count their last collective as ended, though it was not.

    Args:
        calls, groups: as of `find_stuck_collective`; the calls are complete.
    """
    last: dict[str, int] = {}
    for sequence in calls.values():
        for call in sequence:
            last[call.group] = max(last.get(call.group, 0), call.number)
    reopened = {
        rank: [call._replace(has_ended=call.number < last[call.group]) for call in sequence]
        for rank, sequence in calls.items()
    }
    stuck = find_stuck_collective(reopened, groups)
    return stuck if stuck is not None and (stuck.missing or stuck.differing) else None


def is_open(call: Call) -> bool:
    """Return True for a call that has not ended."""
    return not call.has_ended


def _examine_group(
    group: str, calls: Mapping[int, Sequence[Call]], members: Sequence[int] | None
) -> StuckCollective | None:
    by_rank = {
        rank: {call.number: call for call in sequence if call.group == group}
        for rank, sequence in calls.items()
    }
    if members is None:
        members = [rank for rank, numbered in by_rank.items() if numbered]
    number = min(
        (n for numbered in by_rank.values() for n, call in numbered.items() if is_open(call)),
        default=None,
    )
    if number is None:
        return None
    last = {rank: max(by_rank[rank], default=0) for rank in members if rank in by_rank}
    missing = [rank for rank in last if last[rank] < number]
    arrived = {rank: by_rank[rank][number] for rank in members if number in by_rank.get(rank, {})}
    differing, is_tied = _find_differing(arrived, by_rank)
    agreeing = [rank for rank in arrived if rank not in {one.rank for one in differing}]
    rank = min(agreeing or arrived)
    return StuckCollective(
        call=arrived[rank],
        waiting=sorted(agreeing or arrived),
        missing=sorted(missing),
        differing=differing,
        is_tied=is_tied,
        unknown=sorted(rank for rank in members if rank not in by_rank),
    )


def _find_differing(
    arrived: Mapping[int, Call], by_rank: Mapping[int, Mapping[int, Call]]
) -> tuple[list[DifferingCall], bool]:
    """Find the ranks whose call differs from that of the majority, or from what came before."""
    counts = Counter(call.signature for call in arrived.values())
    if len(counts) < 2:
        return [], False
    (first, first_count), (_, second_count) = counts.most_common(2)
    number = next(iter(arrived.values())).number
    expected = first if first_count > second_count else None
    history = _predict(by_rank, number)
    if expected is None and history is not None and history[0] in counts:
        expected = history[0]
    following = history[1] if history is not None else None
    is_tied = expected is None
    differing = [
        DifferingCall(
            rank=rank,
            call=call,
            has_skipped=not is_tied and following is not None and call.signature == following,
        )
        for rank, call in sorted(arrived.items())
        if call.signature != expected
    ]
    return differing, is_tied


Signature = tuple[str, str, str]


def _predict(
    by_rank: Mapping[int, Mapping[int, Call]], number: int
) -> tuple[Signature, Signature | None] | None:
    """Predict a call and the one after it from the calls before, which all ranks agree on.

    The latest earlier position is used at which the longest sequence of calls before is the same.
    """
    earlier: dict[int, set[Signature]] = defaultdict(set)
    for numbered in by_rank.values():
        for n, call in numbered.items():
            if n < number:
                earlier[n].add(call.signature)
    agreed = {
        n: next(iter(signatures)) for n, signatures in earlier.items() if len(signatures) == 1
    }
    best: tuple[int, int] | None = None
    for position in sorted(agreed, reverse=True):
        length = 0
        while (
            length < MAX_CONTEXT
            and agreed.get(number - 1 - length) is not None
            and agreed.get(position - 1 - length) == agreed.get(number - 1 - length)
        ):
            length += 1
        if length >= MIN_CONTEXT and (best is None or length > best[0]):
            best = length, position
    if best is None:
        return None
    position = best[1]
    return agreed[position], agreed.get(position + 1)


RECEIVE = "recv"


class StuckTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """Transfer in which a rank waits for one that holds up the others."""

    call: Call
    rank: int
    """Rank that waits in it."""
    waiting: list[int]
    """All ranks that wait for a transfer."""
    missing: list[int]
    """Ranks that others wait for and that wait for none; empty in a cycle."""
    cycle: list[int] = msgspec.field(default_factory=list)
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
