"""The rank that made others late through tensor, pipeline and data groups, in played jobs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stepscope.analysis import GroupArrivals, LateChains, find_late_chains

DP, PP, TP = 2, 2, 2
MS = 1_000_000
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
