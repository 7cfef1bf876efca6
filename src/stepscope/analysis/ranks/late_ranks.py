"""Late ranks: lateness, waiting, transfer, episodes, chains of groups, slow links.

All ranks of a synchronized step leave their exchange together, so the rank that starts it last has
the shortest exposed communication. All times are durations on a rank's own clock, so clocks of
nodes do not matter:

    transfer   shortest exposed communication of any rank in the step
    waiting    exposed communication of a rank - transfer
    lateness   median waiting of the other ranks - waiting of the rank: by how much it is later than
               they are; negative if it is earlier

A rank is late in a step if its lateness exceeds a share of the step. An episode is a range of steps
of which more than two thirds are late: a maximal scoring subsequence of +1 for a late step and -2
for another one (Ruzzo and Tompa, "A linear time algorithm for finding all maximal scoring
subsequences", ISMB 1999). It counts if chance does not explain it. If a share p of m steps is late,
the likelihood of that exceeds that of a coin toss by m (1 - H(p)) bits, where H is the binary
entropy (https://en.wikipedia.org/wiki/Binary_entropy_function). An episode has at least
log2(n) + 10 bits in a run of n steps.

First late rank of a chain of groups: the one that made the others late. With tensor, pipeline and
data groups, a rank may arrive late at a collective only because another rank was late at its
previous one, in another group. No rank leaves a collective before its last rank has arrived:

    release of a rank at a collective   latest arrival at the previous collective of the rank
    lateness of the last rank           its arrival - median arrival of the other ranks
    inherited lateness                  its release - median release of the other ranks

If at least half of the lateness is inherited, the last rank of that previous collective is asked
in its place, and so on. Where the lateness is the rank's own, the chain starts; also where the rank
arrived at the previous collective almost as late as the last one did. Arrivals are times
of one clock: those of several nodes need `clock_alignment`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import cores, intervals
from stepscope.analysis.arrays.columns import group_rows

Float = NDArray[np.float64]

MIN_LATE_RATIO = 0.05
"""A rank is late in a step from this share of the step on."""
MISS_SCORE = 2
"""Late steps that make up for one that is not: two thirds of an episode are late."""
SURE_BITS = 10
"""A rank that is late by a coin toss has an episode once in a thousand runs."""
PERSISTENT_RATIO = 0.75
"""Share of the steps in episodes from which lateness is persistent."""
_BLOCK_VALUES = 1 << 18
"""Values that a core compares at once, which bounds the memory for the copies."""


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """Range of steps in which a rank is late."""

    first: int
    """Index of the first step."""
    last: int
    """Index of the last step."""
    late_count: int
    lateness_ns: float
    """Median over its late steps."""


class LateRank(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of one rank."""

    late_count: int
    """Steps in which it is late."""
    last_count: int
    """Steps in which it is the last."""
    lateness_ns: float
    """Median of its lateness over its late steps; over all steps where none is late."""
    mean_lateness_ns: float
    mean_waiting_ns: float
    episodes: list[Episode]
    """Ranges of steps in which it is late, none by chance."""
    excess_ns: Mapping[str, float]
    """Mean time by which each phase exceeds the median of the other ranks, in the late steps of
    its episodes; empty without episodes."""

    @property
    def episode_ns(self) -> float:
        """Lateness summed over the late steps of its episodes."""
        return sum(episode.late_count * episode.lateness_ns for episode in self.episodes)


class LateRanks(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness of all ranks."""

    lateness_ns: Float
    """Shape (ranks, steps)."""
    transfer_ns: Float
    """Transfer by step."""
    ranks: list[LateRank]


def find_late_ranks(
    communication_ns: Float, wall_ns: Float, phase_ns: Mapping[str, Float]
) -> LateRanks:
    """Find the ranks that are late.

    Args:
        communication_ns: exposed communication, shape (ranks, steps), at least two ranks and one
            step.
        wall_ns: duration of the steps, same shape.
        phase_ns: own work by phase, same shape each.
    """
    transfer = communication_ns.min(axis=0)
    waiting = communication_ns - transfer
    lateness = compare_with_others(-waiting)
    limit = MIN_LATE_RATIO * np.median(wall_ns, axis=0)
    is_late = lateness > limit
    last = communication_ns.argmin(axis=0)
    episodes = [find_episodes(*row) for row in zip(is_late, lateness, strict=True)]
    excess = _measure_excess(phase_ns, is_late, episodes)
    ranks = []
    for rank in range(len(lateness)):
        late = is_late[rank] if is_late[rank].any() else np.ones_like(is_late[rank])
        ranks.append(
            LateRank(
                late_count=int(is_late[rank].sum()),
                last_count=int((is_late[rank] & (last == rank)).sum()),
                lateness_ns=float(np.median(lateness[rank][late])),
                mean_lateness_ns=float(lateness[rank].mean()),
                mean_waiting_ns=float(waiting[rank].mean()),
                episodes=episodes[rank],
                excess_ns=excess.get(rank, {}),
            )
        )
    return LateRanks(lateness_ns=lateness, transfer_ns=transfer, ranks=ranks)


def _measure_excess(
    phase_ns: Mapping[str, Float], is_late: NDArray[np.bool_], episodes: Sequence[Sequence[Episode]]
) -> dict[int, dict[str, float]]:
    """Measure the mean excess by rank with episodes and phase; see `LateRank.excess_ns`."""
    ranks = [rank for rank, rank_episodes in enumerate(episodes) if rank_episodes]
    if not ranks:
        return {}
    compared = np.zeros((len(ranks), is_late.shape[1]), dtype=bool)
    for row, rank in enumerate(ranks):
        for episode in episodes[rank]:
            inside = slice(episode.first, episode.last + 1)
            compared[row, inside] = is_late[rank, inside]
    excess: dict[int, dict[str, float]] = {rank: {} for rank in ranks}
    for name in phase_ns:
        times = phase_ns[name]  # of thousands of ranks, one phase at a time fits into memory
        is_used = bool(times.any())
        rows = compare_with_others(times, ranks) if is_used else np.zeros(compared.shape)
        for rank, row, steps in zip(ranks, rows, compared, strict=True):
            excess[rank][name] = float(row[steps].mean())
    return excess


def compare_with_others(values: Float, rows: Sequence[int] | None = None) -> Float:
    """Subtract from each row the median of the other rows, by column.

    Without row i, the sorted values of a column from its place on move up by one, so that the two
    middle values of the others are among three of all values.

    NumPy sorts without the interpreter lock, so that blocks of columns share the cores.

    Args:
        values: shape (rows, columns); at least two rows, and no NaN.
        rows: the rows to compare, each with all others; all by default.
    """
    count = len(values)
    compared = range(count) if rows is None else rows
    if count == 2:
        return np.array([values[row] - values[1 - row] for row in compared])
    difference = np.empty((len(compared), values.shape[1]))
    width = max(1, _BLOCK_VALUES // count)

    def compare_block(first: int) -> None:
        columns = slice(first, first + width)
        difference[:, columns] = _compare_block(values[:, columns], rows)

    with ThreadPoolExecutor(cores.available_cores()) as executor:
        for _ in executor.map(compare_block, range(0, values.shape[1], width)):
            pass
    return difference


def _compare_block(block: Float, rows: Sequence[int] | None) -> Float:
    count, middle = len(block), (len(block) - 1) // 2
    # With one pivot, a partition takes a third of the time that it takes with three. Adding 0 turns
    # -0.0 into 0.0.
    ranked = np.partition(block, middle, axis=0)
    pivot, above = ranked[middle] + 0.0, ranked[middle + 1 :].min(axis=0) + 0.0
    compared = block if rows is None else block[rows]
    median = np.where(compared <= pivot, above, pivot)
    if count % 2:
        below = ranked[:middle].max(axis=0)
        median = np.where(compared <= below, pivot, below) / 2 + median / 2
    difference: Float = compared - median
    return difference


def find_episodes(is_late: NDArray[np.bool_], lateness_ns: Float) -> list[Episode]:
    """Find the episodes in which a rank is late, in the order of time.

    Args:
        is_late: by step.
        lateness_ns: by step.
    """
    count = len(is_late)
    min_bits = math.log2(max(count, 2)) + SURE_BITS
    if is_late.sum() < min_bits:
        return []
    edges = np.flatnonzero(np.diff(is_late.astype(np.int8), prepend=1 - int(is_late[0]))).tolist()
    runs = zip(edges, [*edges[1:], count], strict=True)
    scores = [
        (start, end, (end - start) * (1 if is_late[start] else -MISS_SCORE)) for start, end in runs
    ]
    episodes = []
    for first, end in _find_maximal(scores):
        is_late_inside = is_late[first:end]
        late_count = int(is_late_inside.sum())
        if _exceed_chance(late_count, end - first) >= min_bits:
            lateness = float(np.median(lateness_ns[first:end][is_late_inside]))
            episodes.append(
                Episode(first=first, last=end - 1, late_count=late_count, lateness_ns=lateness)
            )
    return episodes


def _exceed_chance(late_count: int, step_count: int) -> float:
    """Return the bits by which the likelihood of late steps exceeds that of a coin toss."""
    shares = (late_count / step_count, 1 - late_count / step_count)
    entropy = -sum(share * math.log2(share) for share in shares if share > 0)
    return step_count * (1 - entropy)


def _find_maximal(runs: Sequence[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Find start and end of all maximal scoring subsequences of runs of (start, end, score)."""
    candidates: list[tuple[int, int, int, int]] = []  # start, end, sum before, sum with it
    total = 0
    for start, end, score in runs:
        before, total = total, total + score
        if score <= 0:
            continue
        candidate = (start, end, before, total)
        while True:
            index = len(candidates) - 1
            while index >= 0 and candidates[index][2] >= candidate[2]:
                index -= 1
            if index < 0 or candidates[index][3] >= candidate[3]:
                break
            candidate = (candidates[index][0], end, candidates[index][2], total)
            del candidates[index:]
        candidates.append(candidate)
    return [(start, end) for start, end, _, _ in candidates]


MIN_INHERITED_RATIO = 0.5
"""Share of the lateness of a rank from which another rank made it late."""


class GroupArrivals(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals of ranks at matched collectives of any groups; one entry per call."""

    rank: intervals.Int
    """Index of the rank."""
    collective: intervals.Int
    """Number that the calls of one collective have in common."""
    t_ns: intervals.Int
    """Arrival, nanoseconds of one clock."""


class LateChains(msgspec.Struct, frozen=True, kw_only=True):
    """Origins of lateness; one entry per collective of at least two ranks, by its number."""

    collective: intervals.Int
    last_rank: intervals.Int
    """Rank that arrived last."""
    lateness_ns: NDArray[np.float64]
    """Its arrival minus the median of the other ranks'."""
    first_rank: intervals.Int
    """Rank with which the chain of lateness started; the last rank itself if it is its own."""
    links: intervals.Int
    """Collectives between the two; 0 if they are the same rank at the same collective."""


def find_late_chains(arrivals: GroupArrivals) -> LateChains:
    """Find the first late rank of every collective."""
    groups = group_rows(arrivals.collective)
    order = np.lexsort((arrivals.t_ns, groups.group))
    counts = groups.counts()
    first = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    last_call = order[first + counts - 1] if len(groups) else np.empty(0, dtype=np.int64)
    previous = _find_previous_calls(arrivals)
    latest = arrivals.t_ns[last_call]
    source = np.where(previous >= 0, groups.group[previous], -1)
    release = np.where(previous >= 0, latest[source], arrivals.t_ns.min(initial=0))
    lateness = np.zeros(len(groups))
    inherited = np.zeros(len(groups))
    held_up = np.zeros(len(groups))
    for index in np.flatnonzero(counts > 1).tolist():
        calls = order[first[index] : first[index] + counts[index]]
        lateness[index] = latest[index] - np.median(arrivals.t_ns[calls[:-1]])
        inherited[index] = release[calls[-1]] - np.median(release[calls[:-1]])
        held_up[index] = release[calls[-1]] - arrivals.t_ns[previous[calls[-1]]]
    origin, links = np.arange(len(groups)), np.zeros(len(groups), dtype=np.int64)
    for index in np.argsort(latest, kind="stable").tolist():  # causes come before effects
        before = source[last_call[index]] if len(last_call) else -1
        enough_ns = MIN_INHERITED_RATIO * lateness[index]
        is_inherited = inherited[index] >= enough_ns > 0
        if before < 0 or not is_inherited or latest[before] > latest[index]:
            continue
        was_last = arrivals.rank[last_call[before]] == arrivals.rank[last_call[index]]
        if was_last or held_up[index] >= enough_ns:
            origin[index], links[index] = origin[before], links[before] + 1
    shared = np.flatnonzero(counts > 1)
    return LateChains(
        collective=arrivals.collective[groups.first][shared],
        last_rank=arrivals.rank[last_call][shared],
        lateness_ns=lateness[shared],
        first_rank=arrivals.rank[last_call][origin[shared]],
        links=links[shared],
    )


def _find_previous_calls(arrivals: GroupArrivals) -> intervals.Int:
    """Find the call of the same rank before each call; -1 for its first."""
    order = np.lexsort((arrivals.t_ns, arrivals.rank))
    previous = np.full(len(order), -1, dtype=np.int64)
    same = arrivals.rank[order[1:]] == arrivals.rank[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous


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


class SlowLink(msgspec.Struct, frozen=True, kw_only=True):
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
