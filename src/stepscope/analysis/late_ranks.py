"""Late ranks: own lateness, waiting and transfer by rank and step, and episodes of lateness.

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
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.cores import available_cores

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Range of steps in which a rank is late."""

    first: int
    """Index of the first step."""
    last: int
    """Index of the last step."""
    late_count: int
    lateness_ns: float
    """Median over its late steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRank:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRanks:
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

    with ThreadPoolExecutor(available_cores()) as executor:
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
