"""Longest common subsequence of two sequences.

The common start and end are matched first. For the rest, each row of the table of lengths L[i][j]
(of the first i elements of one and the first j of the other sequence) is stored as one bit per j: 1
where L[i][j] = L[i][j-1], 0 where it is one more. With rows as integers, a row follows from the one
before in a few operations on whole machine words (the bit-parallel formulation of Hyyrö,
"Bit-parallel LCS-length computation revisited", 2004):

    next = (row + (row & matches)) | (row & ~matches)

where `matches` has the bits of the elements that equal the row's element. So n against m elements
take O(n m / w) time and n m / 8 bytes; 5,000 against 5,000 about ten milliseconds and 3 MB.
"""

from __future__ import annotations

from collections.abc import Sequence

MAX_CELLS = 2_000_000_000
"""Cells of the largest table (250 MB). Beyond it, the halves of both sequences are aligned
separately, and the result may be shorter than the longest common subsequence."""

Pairs = list[tuple[int, int]]


def find_common_subsequence(base_items: Sequence[int], other_items: Sequence[int]) -> Pairs:
    """Find a longest common subsequence; returns pairs of indices, ascending.

    >>> find_common_subsequence([1, 2, 3, 4], [2, 9, 4])
    [(1, 0), (3, 2)]
    """
    start, max_length = 0, min(len(base_items), len(other_items))
    while start < max_length and base_items[start] == other_items[start]:
        start += 1
    tail = 0
    while tail < max_length - start and base_items[-1 - tail] == other_items[-1 - tail]:
        tail += 1
    base_end, other_end = len(base_items) - tail, len(other_items) - tail
    middle = _align_middle(base_items[start:base_end], other_items[start:other_end])
    return [
        *((index, index) for index in range(start)),
        *((start + i, start + j) for i, j in middle),
        *((base_end + index, other_end + index) for index in range(tail)),
    ]


def _align_middle(base_items: Sequence[int], other_items: Sequence[int]) -> Pairs:
    if not base_items or not other_items:
        return []
    if len(base_items) * len(other_items) > MAX_CELLS:
        base_half, other_half = len(base_items) // 2, len(other_items) // 2
        second = find_common_subsequence(base_items[base_half:], other_items[other_half:])
        return [
            *find_common_subsequence(base_items[:base_half], other_items[:other_half]),
            *((base_half + i, other_half + j) for i, j in second),
        ]
    return _trace_back(_compute_rows(base_items, other_items), len(other_items))


def _compute_rows(base_items: Sequence[int], other_items: Sequence[int]) -> list[int]:
    """Compute the rows of the table after the first 0, 1, … elements."""
    positions: dict[int, int] = {}
    for index, element in enumerate(other_items):
        positions[element] = positions.get(element, 0) | 1 << index
    mask = (1 << len(other_items)) - 1
    rows = [mask]
    for element in base_items:
        row, matches = rows[-1], positions.get(element, 0)
        rows.append(((row + (row & matches)) | (row & ~matches)) & mask)
    return rows


def _trace_back(rows: Sequence[int], width: int) -> Pairs:
    """Trace the matches from the last corner of the table to its first.

    A column that adds nothing to a row is skipped. Where it adds to this row and to the row before,
    both rows have the same length there, so the row is skipped; where it adds to this row only, the
    two elements match.
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
