"""Rounding of the parts of a sum to whole numbers that still add up to it."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor


def apportion(parts: Sequence[float], total: int) -> list[int]:
    """Round each part down or up, so that the parts sum to the total.

    The remainder after rounding down goes to the parts with the largest fractions (Hamilton's
    method of apportionment).

    Args:
        parts: numbers that sum to about the total; a difference is spread evenly.
        total: sum of the result.

    >>> apportion([0.5, 1.25, 1.25], 3)
    [1, 1, 1]
    """
    if not parts:
        return []
    integers = [floor(part) for part in parts]
    share, remainder = divmod(total - sum(integers), len(parts))
    by_fraction = sorted(range(len(parts)), key=lambda index: integers[index] - parts[index])
    for index in range(len(parts)):
        integers[index] += share
    for index in by_fraction[:remainder]:
        integers[index] += 1
    return integers
