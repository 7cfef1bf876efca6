"""Percentages in sentences that state a threshold."""

from __future__ import annotations

from stepscope.quantities import fixed, percent

MAX_DECIMALS = 9
"""A smaller difference from the threshold is rounding of the ratio."""


def percent_beside(ratio: float, threshold: float) -> str:
    """Format a share with enough decimals, at least one, to show its side of a threshold.

    >>> percent_beside(0.63, 50), percent_beside(0.50004, 50), percent_beside(0.19996, 20)
    ('63.0%', '50.004%', '19.996%')
    >>> percent_beside(0.5, 50), percent_beside(0.07, 7)
    ('50.0%', '7.0%')

    Args:
        ratio: share, from 0 to 1.
        threshold: percentage, as parameters of rules have it.
    """
    value = 100 * ratio
    for decimals in range(1, MAX_DECIMALS + 1):
        shown = float(fixed(value, decimals))
        if shown != threshold and (shown > threshold) == (value > threshold):
            return percent(ratio, decimals)
    return percent(ratio, 1)
