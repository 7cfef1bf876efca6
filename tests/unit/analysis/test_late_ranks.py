"""Late ranks, and the first rank of a chain of late ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import (
    GroupArrivals,
    LateChains,
    compare_with_others,
    find_episodes,
    find_late_chains,
    find_late_ranks,
)

MS = 1_000_000


def list_maximal(scores: list[int], first: int = 0) -> list[tuple[int, int]]:
    """List the ranges with the largest score, and those before and after each, as defined."""
    sums = [0, *itertools.accumulate(scores)]
    ranges = [(a, b) for a in range(len(scores)) for b in range(a + 1, len(scores) + 1)]
    # Of equal ones, the shortest: an extension by a score of 0 adds nothing.
    a, b = max(ranges, key=lambda ends: (sums[ends[1]] - sums[ends[0]], ends[0] - ends[1]))
    if sums[b] - sums[a] <= 0:
        return []
    before = list_maximal(scores[:a], first) if a else []
    after = list_maximal(scores[b:], first + b) if b < len(scores) else []
    return [*before, (first + a, first + b), *after]


def bits_beyond_chance(late: int, count: int) -> float:
    """Likelihood of the most likely share against a coin toss, in bits."""
    share = Fraction(late, count)
    likelihood = share**late * (1 - share) ** (count - late)
    return math.log2(likelihood * 2**count)


@given(st.lists(st.sampled_from([True, True, False]), min_size=2, max_size=40))
def test_episodes_are_the_maximal_ranges_that_chance_does_not_explain(late: list[bool]) -> None:
    is_late = np.array(late * 2)
    episodes = find_episodes(is_late, np.ones(len(is_late)))
    min_bits = math.log2(len(is_late)) + 10
    expected = []
    for start, end in list_maximal(np.where(is_late, 1, -2).tolist()):
        late_count = int(is_late[start:end].sum())
        if bits_beyond_chance(late_count, end - start) >= min_bits:
            expected.append((start, end - 1, late_count))
    assert [(e.first, e.last, e.late_count) for e in episodes] == expected
    assert all(e.late_count > 2 / 3 * (e.last - e.first + 1) for e in episodes)


def test_a_coin_toss_makes_no_rank_late() -> None:
    random = np.random.default_rng(0)
    tosses = random.random((4000, 100)) < 0.5
    runs_with_episodes = sum(bool(find_episodes(row, np.ones(100))) for row in tosses)
    assert runs_with_episodes <= 4000 * 2 / 1000


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_lateness_is_the_waiting_of_the_others_minus_ones_own(count: int) -> None:
    random = np.random.default_rng(count)
    communication = random.uniform(1, 9, (count, 30)) * MS
    communication[:, :5] = 4 * MS  # ties
    late = find_late_ranks(communication, communication + 50 * MS, {})
    for step in range(30):
        transfer = communication[:, step].min()
        waiting = communication[:, step] - transfer
        assert late.transfer_ns[step] == transfer
        for rank in range(count):
            median = np.median(np.delete(waiting, rank))
            assert late.lateness_ns[rank, step] == pytest.approx(median - waiting[rank])


def draw(late_ms: dict[tuple[int, range], float], ranks: int = 4, steps: int = 200) -> np.ndarray:
    """Draw exposed communication of ranks, some of which arrive late in a range of steps."""
    random = np.random.default_rng(1)
    arrival = random.normal(0, 0.2, (ranks, steps)) * MS
    for (rank, numbers), lateness in late_ms.items():
        arrival[rank, list(numbers)] += lateness * MS
    return arrival.max(axis=0) - arrival + 3 * MS


def test_a_persistently_late_rank() -> None:
    communication = draw({(2, range(200)): 11})
    late = find_late_ranks(communication, np.full_like(communication, 100 * MS), {})
    (episode,) = late.ranks[2].episodes
    assert (episode.first, episode.last, episode.late_count) == (0, 199, 200)
    assert episode.lateness_ns == pytest.approx(11 * MS, rel=0.02)
    assert late.ranks[2].last_count == 200
    assert [rank.episodes for rank in late.ranks].count([]) == 3


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_the_excess_is_that_of_the_late_steps_over_the_other_ranks(count: int) -> None:
    communication = draw({(1, range(50, 150)): 20}, count)
    communication[:, 100] = 3 * MS  # none is late in one of these steps
    forward = np.random.default_rng(count).uniform(1, 9, communication.shape) * MS
    phases = {"forward": forward, "backward": np.zeros_like(forward)}
    late = find_late_ranks(communication, np.full_like(communication, 100 * MS), phases)
    excess = forward[1] - np.median(np.delete(forward, 1, axis=0), axis=0)
    expected = excess[[step for step in range(50, 150) if step != 100]].mean()
    assert late.ranks[1].excess_ns == {"forward": pytest.approx(expected), "backward": 0}
    assert [rank.excess_ns for rank in late.ranks if not rank.episodes] == [{}] * (count - 1)


def test_change_points_of_a_transient_lateness() -> None:
    communication = draw({(1, range(60, 110)): 20, (3, range(150, 200)): 9})
    late = find_late_ranks(communication, np.full_like(communication, 100 * MS), {})
    (first,), (second,) = late.ranks[1].episodes, late.ranks[3].episodes
    assert (first.first, first.last) == (60, 109)
    assert (second.first, second.last) == (150, 199)
    assert late.ranks[0].episodes == late.ranks[2].episodes == []


def test_two_late_ranks_of_four_are_both_found() -> None:
    communication = draw({(1, range(200)): 20, (2, range(200)): 20})
    late = find_late_ranks(communication, np.full_like(communication, 100 * MS), {})
    # Half of the ranks are late: the others of a late rank have its lateness at the median.
    assert [bool(rank.episodes) for rank in late.ranks] == [False, True, True, False]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_an_even_job_has_no_late_rank(seed: int, ranks: int) -> None:
    random = np.random.default_rng(seed)
    arrival = random.normal(0, 10, (ranks, 1000)) * MS  # a tenth of the step
    communication = arrival.max(axis=0) - arrival + 3 * MS
    late = find_late_ranks(communication, np.full_like(communication, 100 * MS), {})
    assert all(rank.episodes == [] for rank in late.ranks)


def test_lateness_of_less_than_five_percent_of_the_step_does_not_count() -> None:
    communication = draw({(0, range(200)): 4})
    late = find_late_ranks(communication, np.full_like(communication, 100 * MS), {})
    assert late.ranks[0].episodes == []
    wall = np.full_like(communication, 50 * MS)
    wall[3] *= 9  # the median of the ranks counts
    assert len(find_late_ranks(communication, wall, {}).ranks[0].episodes) == 1


@pytest.mark.parametrize("block", [1, 100, 1 << 20])
@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_a_rank_is_compared_with_the_median_of_the_others(
    count: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.analysis.ranks.late_ranks._BLOCK_VALUES", block)
    values = np.random.default_rng(count).integers(-3, 3, (count, 90)).astype(float)  # with ties
    expected = [
        row - np.median(np.delete(values, index, axis=0), axis=0)
        for index, row in enumerate(values)
    ]
    np.testing.assert_array_equal(compare_with_others(values), expected)
    np.testing.assert_array_equal(compare_with_others(values, [1]), expected[1:2])


DP, PP, TP = 2, 2, 2
Delay = Callable[[int, int, str], int]


def play(delay: Delay, *, steps: int = 10, seed: int = 1) -> tuple[GroupArrivals, list[str]]:
    """Play a job in which each rank computes, then meets its tensor, pipeline and data group.

    Args:
        delay: extra work in nanoseconds by rank, step and the group before which it is done.

    Returns:
        The arrivals, and the kind of group by number of the collective.
    """
    random = np.random.default_rng(seed)
    now = dict.fromkeys(range(DP * PP * TP), 0)
    rows, kinds = [], []
    for step in range(steps):
        for kind, axis in (("tp", 2), ("pp", 1), ("dp", 0)):
            coordinates = {r: np.unravel_index(r, (DP, PP, TP)) for r in now}
            for key in sorted({tuple(np.delete(at, axis)) for at in coordinates.values()}):
                members = [r for r in now if tuple(np.delete(coordinates[r], axis)) == key]
                for rank in members:
                    work = 5 * MS + int(random.integers(0, 50_000)) + delay(rank, step, kind)
                    now[rank] += work
                    rows.append((rank, len(kinds), now[rank]))
                end = max(now[rank] for rank in members) + 100_000
                now.update(dict.fromkeys(members, end))
                kinds.append(kind)
    rank, collective, t_ns = np.array(rows, dtype=np.int64).T
    return GroupArrivals(rank=rank, collective=collective, t_ns=t_ns), kinds


def late_firsts(chains: LateChains, kinds: list[str], kind: str) -> set[int]:
    """Return the first ranks of the chains of all collectives of a kind that are clearly late."""
    late = chains.lateness_ns > 2 * MS
    is_kind = np.array([kinds[number] == kind for number in chains.collective])
    return set(chains.first_rank[late & is_kind].tolist())


@pytest.mark.parametrize("culprit", range(8))
@pytest.mark.parametrize("group", ["tp", "pp", "dp"])
def test_the_first_rank_of_the_chain_is_found(culprit: int, group: str) -> None:
    arrivals, kinds = play(
        lambda rank, step, kind: 11 * MS if (rank, kind) == (culprit, group) else 0
    )
    chains = find_late_chains(arrivals)
    assert late_firsts(chains, kinds, "dp") == {culprit}
    late = chains.lateness_ns > 2 * MS
    assert set(chains.first_rank[late].tolist()) == {culprit}
    if group == "tp":  # the rank itself is last at its tensor group, others at the later ones
        assert chains.links[late].max() >= 2


def test_two_culprits_are_told_apart_by_step() -> None:
    arrivals, kinds = play(
        lambda rank, step, kind: 11 * MS if kind == "tp" and rank == (3 if step < 5 else 6) else 0
    )
    chains = find_late_chains(arrivals)
    late = chains.lateness_ns > 2 * MS
    half = len(kinds) // 2
    assert set(chains.first_rank[late & (chains.collective < half)].tolist()) == {3}
    assert set(chains.first_rank[late & (chains.collective >= half)].tolist()) == {6}


def test_lateness_is_that_of_the_last_rank_over_the_median_of_the_others() -> None:
    arrivals = GroupArrivals(
        rank=np.array([0, 1, 2, 3]),
        collective=np.array([7, 7, 7, 7]),
        t_ns=np.array([10, 40, 20, 11]),
    )
    chains = find_late_chains(arrivals)
    assert chains.collective.tolist() == [7]
    assert chains.last_rank.tolist() == chains.first_rank.tolist() == [1]
    assert chains.lateness_ns.tolist() == [29]


def test_an_even_job_has_no_late_collective() -> None:
    arrivals, _ = play(lambda rank, step, kind: 0)
    assert find_late_chains(arrivals).lateness_ns.max() < MS


def test_no_calls_no_chains() -> None:
    nothing = np.empty(0, dtype=np.int64)
    chains = find_late_chains(GroupArrivals(rank=nothing, collective=nothing, t_ns=nothing))
    assert len(chains.collective) == 0
