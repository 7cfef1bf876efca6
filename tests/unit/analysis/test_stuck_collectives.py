"""The collective at which ranks are stuck, drawn call by call."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from stepscope.analysis import Call, find_last_collective, find_stuck_collective

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


def test_a_rank_that_has_not_called_is_missing() -> None:
    calls = {0: draw("abcab", open_from=5), 1: draw("abca"), 2: draw("abcab", open_from=5)}
    stuck = find_stuck_collective(calls, {"g": [0, 1, 2]})
    assert stuck is not None
    assert (stuck.call.number, stuck.missing, stuck.waiting) == (5, [1], [0, 2])
    assert stuck.differing == []


def test_a_rank_without_any_call_is_missing() -> None:
    stuck = find_stuck_collective({0: draw("a", open_from=1), 1: []}, {"g": [0, 1]})
    assert stuck is not None
    assert stuck.missing == [1]


def test_of_a_rank_that_was_not_read_nothing_is_known() -> None:
    calls = {0: draw("ab", open_from=2), 1: draw("ab", open_from=2)}
    stuck = find_stuck_collective(calls, {"g": [0, 1, 2, 3]})
    assert stuck is not None
    assert (stuck.missing, stuck.unknown) == ([], [2, 3])


@pytest.mark.parametrize("letter", ["x", "B"])
def test_the_minority_differs(letter: str) -> None:
    calls = {rank: draw("abcab", open_from=5) for rank in range(3)}
    calls[1] = draw("abca" + letter, open_from=5)
    stuck = find_stuck_collective(calls, {"g": [0, 1, 2]})
    assert stuck is not None
    assert [(one.rank, one.has_skipped) for one in stuck.differing] == [(1, False)]
    assert not stuck.is_tied


def test_of_two_ranks_the_one_differs_that_leaves_the_pattern() -> None:
    calls = {0: draw("abcabcabx", open_from=9), 1: draw("abcabcabc", open_from=9)}
    stuck = find_stuck_collective(calls, {"g": [0, 1]})
    assert stuck is not None
    assert [one.rank for one in stuck.differing] == [0]
    assert stuck.waiting == [1]


def test_two_ranks_without_a_pattern_are_tied() -> None:
    calls = {0: draw("ab", open_from=2), 1: draw("ac", open_from=2)}
    stuck = find_stuck_collective(calls, {"g": [0, 1]})
    assert stuck is not None
    assert stuck.is_tied
    assert [one.rank for one in stuck.differing] == [0, 1]


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
    assert stuck is not None
    assert [(one.rank, one.has_skipped) for one in stuck.differing] == [(culprit, True)]


def test_a_rank_that_waits_in_another_group_is_held_up_by_somebody_else() -> None:
    # Rank 0 waits for rank 1 in g; rank 1 waits for rank 2 in h; rank 2 waits nowhere.
    calls = {
        0: draw("ab", "g", open_from=2),
        1: [*draw("a", "g"), *draw("ab", "h", open_from=2)],
        2: draw("a", "h"),
    }
    stuck = find_stuck_collective(calls, {"g": [0, 1], "h": [1, 2]})
    assert stuck is not None
    assert (stuck.call.group, stuck.missing) == ("h", [2])


def test_sizes_may_differ_where_ranks_pass_different_ones() -> None:
    calls = {
        rank: [Call("g", 1, "alltoall_base", str(rank), "Float", False, 1)] for rank in range(3)
    }
    stuck = find_stuck_collective(calls, {"g": [0, 1, 2]})
    assert stuck is not None
    assert stuck.differing == []


def test_no_rank_that_waits_means_not_stuck() -> None:
    assert find_stuck_collective({0: draw("abc"), 1: draw("ab")}, {"g": [0, 1]}) is None


def test_after_the_end_the_last_call_counts_as_open() -> None:
    ended = {0: draw("abca"), 1: draw("abc")}
    stuck = find_last_collective(ended, {"g": [0, 1]})
    assert stuck is not None
    assert (stuck.call.number, stuck.missing) == (4, [1])
    assert find_last_collective({0: draw("ab"), 1: draw("ab")}, {"g": [0, 1]}) is None
