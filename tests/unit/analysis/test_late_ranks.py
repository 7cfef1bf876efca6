"""Late ranks: lateness against a direct computation, episodes against all ranges of steps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import compare_with_others, find_episodes, find_late_ranks

MS = 1e6


@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_an_episode_is_no_shorter_range_with_a_larger_score(late: list[bool]) -> None:
    """Every episode is late in more than three quarters, and nothing that is as sure is missed."""
    is_late = np.array(late * 2)
    episodes = find_episodes(is_late, np.ones(len(is_late)))
    scores = np.where(is_late, 1, -3)
    sums = np.concatenate([[0], np.cumsum(scores)])
    best = max(int(sums[b] - sums[a]) for a in range(len(sums)) for b in range(a + 1, len(sums)))
    episode_scores = [int(sums[e.last + 1] - sums[e.first]) for e in episodes]
    assert max(episode_scores, default=0) == (best if best >= math.log2(len(is_late)) + 10 else 0)
    for episode in episodes:
        inside = is_late[episode.first : episode.last + 1]
        assert episode.late_count == inside.sum()
        assert inside.mean() > 0.75
        assert inside[0]
        assert inside[-1]
    for earlier, later in itertools.pairwise(episodes):
        assert earlier.last < later.first


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
def test_lateness_is_the_waiting_of_the_others_minus_ones_own(count: int) -> None:
    random = np.random.default_rng(count)
    communication = random.uniform(1, 9, (count, 30)) * MS
    communication[:, :5] = 4 * MS  # ties
    late = find_late_ranks(communication, communication + 50 * MS, {"forward": communication})
    for step in range(30):
        transfer = communication[:, step].min()
        waiting = communication[:, step] - transfer
        assert late.transfer_ns[step] == transfer
        for rank in range(count):
            median = np.median(np.delete(waiting, rank))
            assert late.lateness_ns[rank, step] == pytest.approx(median - waiting[rank])
    for rank in range(count):
        median = np.median(np.delete(communication, rank, axis=0), axis=0)
        excess = (communication[rank] - median).mean()
        assert late.ranks[rank].excess_ns["forward"] == pytest.approx(excess)


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
    late = find_late_ranks(communication, np.full_like(communication, 50 * MS), {})
    assert len(late.ranks[0].episodes) == 1


@pytest.mark.parametrize("block", [1, 100, 1 << 20])
@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_a_rank_is_compared_with_the_median_of_the_others(
    count: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepscope.analysis.late_ranks._BLOCK_VALUES", block)
    values = np.random.default_rng(count).integers(-3, 3, (count, 90)).astype(float)  # with ties
    expected = [
        row - np.median(np.delete(values, index, axis=0), axis=0)
        for index, row in enumerate(values)
    ]
    np.testing.assert_array_equal(compare_with_others(values), expected)
