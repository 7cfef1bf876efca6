"""Parts of a sum as whole numbers that still sum to it."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor


def whole_parts(parts: Sequence[float], total: int) -> list[int]:
    """Each part rounded down or up, so that they sum to the total.

    What rounding down leaves over goes to the parts with the largest remainders (Hamilton's
    method of apportionment).

    Args:
        parts: they sum to about the total; where they do not, the difference is spread evenly.
        total: of all of them.

    >>> whole_parts([0.5, 1.25, 1.25], 3)
    [1, 1, 1]
    """
    if not parts:
        return []
    whole = [floor(part) for part in parts]
    each, left = divmod(total - sum(whole), len(parts))
    largest = sorted(range(len(parts)), key=lambda place: whole[place] - parts[place])
    for place in range(len(parts)):
        whole[place] += each
    for place in largest[:left]:
        whole[place] += 1
    return whole
