"""The longest common subsequence of two sequences.

What both begin and end with is matched first. For the middle, row after row of the table of
lengths L[i][j] (of the first i elements of one and the first j of the other) is kept as one bit per
j: 1 where L[i][j] = L[i][j-1], 0 where it is one more. With such rows as whole numbers, a row
follows from the one before it in a few operations on whole machine words (the bit-parallel
formulation of Hyyrö, "Bit-parallel LCS-length computation revisited", 2004):

    next = (row + (row & where)) | (row & ~where)

with `where` the bits of the elements that equal the row's. So n against m elements take
O(n m / w) time and n m / 8 bytes; 5 000 against 5 000 some ten milliseconds and 3 MB.
"""

from __future__ import annotations

from collections.abc import Sequence

MOST_CELLS = 2_000_000_000
"""Of a larger table (250 MB) the halves of both sequences are aligned by themselves, which may
find less than the longest."""

Pairs = list[tuple[int, int]]


def common_subsequence(one: Sequence[int], other: Sequence[int]) -> Pairs:
    """Places of the elements of a longest common subsequence, in ascending order.

    >>> common_subsequence([1, 2, 3, 4], [2, 9, 4])
    [(1, 0), (3, 2)]
    """
    begin, shortest = 0, min(len(one), len(other))
    while begin < shortest and one[begin] == other[begin]:
        begin += 1
    end = 0
    while end < shortest - begin and one[-1 - end] == other[-1 - end]:
        end += 1
    stop_one, stop_other = len(one) - end, len(other) - end
    middle = _middle(one[begin:stop_one], other[begin:stop_other])
    return [
        *((place, place) for place in range(begin)),
        *((begin + i, begin + j) for i, j in middle),
        *((stop_one + place, stop_other + place) for place in range(end)),
    ]


def _middle(one: Sequence[int], other: Sequence[int]) -> Pairs:
    if not one or not other:
        return []
    if len(one) * len(other) > MOST_CELLS:
        half, other_half = len(one) // 2, len(other) // 2
        behind = common_subsequence(one[half:], other[other_half:])
        return [
            *common_subsequence(one[:half], other[:other_half]),
            *((half + i, other_half + j) for i, j in behind),
        ]
    return _traced_back(_rows(one, other), len(other))


def _rows(one: Sequence[int], other: Sequence[int]) -> list[int]:
    """Rows of the table after the first 0, 1, … elements."""
    where: dict[int, int] = {}
    for place, element in enumerate(other):
        where[element] = where.get(element, 0) | 1 << place
    every = (1 << len(other)) - 1
    rows = [every]
    for element in one:
        row, found = rows[-1], where.get(element, 0)
        rows.append(((row + (row & found)) | (row & ~found)) & every)
    return rows


def _traced_back(rows: Sequence[int], width: int) -> Pairs:
    """The matches, from the last corner of the table to its first.

    Where a column adds nothing to a row it can be left out. Where it does and did in the row before
    as well, both rows have the same length there, so the row can be left out; and where it did not,
    the two elements match.
    """
    pairs = []
    i, j = len(rows) - 1, width
    while i and j:
        if rows[i] >> (j - 1) & 1:
            j -= 1
        elif rows[i - 1] >> (j - 1) & 1:
            i, j = i - 1, j - 1
            pairs.append((i, j))
        else:
            i -= 1
    return pairs[::-1]
