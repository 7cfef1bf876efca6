"""The calls at which ranks are stuck, drawn call by call."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import (
    Call,
    StuckCollective,
    find_last_collective,
    find_stuck_collective,
    find_stuck_transfer,
)

PATTERN = ("a", "b", "c")
"""Calls of a step; the letter is the size."""


def draw(text: str, group: str = "g", *, open_from: int | None = None) -> list[Call]:
    """Draw the calls of a rank: a letter is an all-reduce of that size, `B` a broadcast of b."""
    return [
        Call(
            group,
            number,
            "broadcast" if letter.isupper() else "all_reduce",
            letter.lower(),
            "Float",
            open_from is None or number < open_from,
            number,
        )
        for number, letter in enumerate(text, 1)
    ]


def stuck_in(calls: list[list[Call]], groups: dict[str, list[int]]) -> StuckCollective:
    """Find where ranks are stuck, each with its calls."""
    stuck = find_stuck_collective(dict(enumerate(calls)), groups)
    assert stuck is not None
    return stuck


def open_last(text: str) -> list[Call]:
    return draw(text, open_from=len(text))


@pytest.mark.parametrize(
    ("calls", "ranks", "missing", "unknown", "waiting"),
    [
        ([open_last("abcab"), draw("abca"), open_last("abcab")], 3, [1], [], [0, 2]),
        ([open_last("a"), []], 2, [1], [], [0]),  # without any call
        ([open_last("ab"), open_last("ab")], 4, [], [2, 3], [0, 1]),  # of those that were not read
    ],
)
def test_a_rank_that_has_not_called_is_missing(
    calls: list[list[Call]], ranks: int, missing: list[int], unknown: list[int], waiting: list[int]
) -> None:
    stuck = stuck_in(calls, {"g": list(range(ranks))})
    assert (stuck.missing, stuck.unknown, stuck.waiting) == (missing, unknown, waiting)
    assert (stuck.call.number, stuck.differing) == (len(calls[0]), [])


@pytest.mark.parametrize(
    ("texts", "differing", "is_tied"),
    [
        (["abcab", "abcax", "abcab"], [1], False),  # the minority, by size or by kind
        (["abcab", "abcaB", "abcab"], [1], False),
        (["abcabcabx", "abcabcabc"], [0], False),  # of two, the one that leaves the pattern
        (["ab", "ac"], [0, 1], True),  # there is no pattern
    ],
)
def test_a_rank_that_differs(texts: list[str], differing: list[int], is_tied: bool) -> None:
    stuck = stuck_in([open_last(text) for text in texts], {"g": list(range(len(texts)))})
    assert [(one.rank, one.has_skipped) for one in stuck.differing] == [
        (rank, False) for rank in differing
    ]
    assert stuck.is_tied == is_tied
    assert is_tied or stuck.waiting == [rank for rank in range(len(texts)) if rank not in differing]


def test_a_rank_that_waits_in_another_group_is_held_up_by_somebody_else() -> None:
    # Rank 0 waits for rank 1 in g; rank 1 waits for rank 2 in h; rank 2 waits nowhere.
    first = [*draw("a", "g"), *draw("ab", "h", open_from=2)]
    stuck = stuck_in([open_last("ab"), first, draw("a", "h")], {"g": [0, 1], "h": [1, 2]})
    assert (stuck.call.group, stuck.missing) == ("h", [2])


def test_sizes_may_differ_where_ranks_pass_different_ones() -> None:
    calls = [[Call("g", 1, "alltoall_base", str(rank), "Float", False, 1)] for rank in range(3)]
    assert stuck_in(calls, {"g": [0, 1, 2]}).differing == []


@given(st.integers(2, 6), st.integers(7, 20), st.data())
def test_a_rank_that_leaves_out_a_call_is_named(
    rank_count: int, position: int, data: st.DataObject
) -> None:
    culprit = data.draw(st.integers(0, rank_count - 1))
    right = "".join(PATTERN[n % 3] for n in range(position + 1))
    wrong = right[:-1] + PATTERN[(position + 1) % 3]
    number = len(right)
    calls = {
        rank: draw(wrong if rank == culprit else right, open_from=number)
        for rank in range(rank_count)
    }
    stuck = find_stuck_collective(calls, {"g": list(range(rank_count))})
    assert [(one.rank, one.has_skipped) for one in stuck.differing] == [(culprit, True)]


def test_no_rank_that_waits_means_not_stuck() -> None:
    assert find_stuck_collective({0: draw("abc"), 1: draw("ab")}, {"g": [0, 1]}) is None


def test_after_the_end_the_last_call_counts_as_open() -> None:
    ended = {0: draw("abca"), 1: draw("abc")}
    stuck = find_last_collective(ended, {"g": [0, 1]})
    assert (stuck.call.number, stuck.missing) == (4, [1])
    assert find_last_collective({0: draw("ab"), 1: draw("ab")}, {"g": [0, 1]}) is None


def transfer(kind: str, peer: int, t_ns: int = 0) -> Call:
    return Call("0", 1, kind, "4", "float32", False, t_ns, peer)


def test_no_rank_that_waits_is_no_stuck_transfer() -> None:
    assert find_stuck_transfer({}) is None
    assert find_stuck_transfer({0: []}) is None


@given(st.integers(2, 8), st.data())
def test_the_stage_that_does_not_wait_is_missing(count: int, data: st.DataObject) -> None:
    """Stages before it wait for gradients of the next one, stages after it for activations."""
    faulty = data.draw(st.integers(0, count - 1))
    pending = {
        rank: [transfer("irecv", rank + 1 if rank < faulty else rank - 1, rank)]
        for rank in range(count)
        if rank != faulty
    }
    stuck = find_stuck_transfer(pending)
    assert (stuck.missing, stuck.cycle) == ([faulty], [])
    assert stuck.waiting == sorted(pending)
    assert stuck.call.peer == faulty


def test_ranks_in_a_cycle_wait_for_each_other() -> None:
    pending = {0: [transfer("irecv", 1)], 1: [transfer("irecv", 0)], 2: [transfer("irecv", 1)]}
    stuck = find_stuck_transfer(pending)
    assert (stuck.missing, stuck.cycle) == ([], [0, 1])


def test_a_send_that_nobody_waits_for_blames_no_rank_beside_the_one_that_does_not_send() -> None:
    pending = {1: [transfer("isend", 2), transfer("irecv", 0)]}
    stuck = find_stuck_transfer(pending)
    assert stuck.missing == [0]


def test_a_send_alone_waits_for_its_receiver() -> None:
    stuck = find_stuck_transfer({0: [transfer("isend", 2)]})
    assert (stuck.missing, stuck.call.kind) == ([2], "isend")
