"""Values in sentences beside a threshold: with enough digits to show their side of it."""

from __future__ import annotations

from stepscope import quantities

MAX_DECIMALS = 9
"""A smaller difference from the threshold is rounding of the value."""


def fixed_beside(value: float, threshold: float, decimals: int = 1) -> str:
    """Format a number with that many decimals, or more to show its side of a threshold.

    >>> fixed_beside(5.25, 5), fixed_beside(5.0004, 5), fixed_beside(5, 5)
    ('5.3', '5.0004', '5.0')
    """
    return quantities.fixed(value, _count_decimals(value, threshold, decimals))


def percent_beside(ratio: float, threshold: float, decimals: int = 1) -> str:
    """Format a share with that many decimals, or more to show its side of a threshold.

    >>> percent_beside(0.63, 50), percent_beside(0.50004, 50), percent_beside(0.19996, 20)
    ('63.0%', '50.004%', '19.996%')
    >>> percent_beside(0.5, 50), percent_beside(0.07, 7), percent_beside(0.196, 20, 0)
    ('50.0%', '7.0%', '19.6%')

    Args:
        ratio: share, from 0 to 1.
        threshold: percentage, as parameters of rules have it.
        decimals: minimum count of decimals.
    """
    return quantities.percent(ratio, _count_decimals(100 * ratio, threshold, decimals))


def change_beside(ratio: float, threshold: float) -> str:
    """Format a relative change in whole percent, or finer to show its side of a threshold.

    >>> change_beside(0.25, 20), change_beside(0.2004, 20)
    ('+25%', '+20.04%')
    """
    return quantities.relative_change(ratio, _count_decimals(100 * ratio, threshold, 0))


def duration_beside(ns: float, threshold_ns: float) -> str:
    """Format a duration; where it would read like the threshold, in seconds or microseconds.

    >>> duration_beside(25e9, 20e9), duration_beside(1200.04e9, 1200e9)
    ('25 s', '1,200.04 s')
    >>> duration_beside(19.999e3, 20e3), duration_beside(20e3, 20e3)
    ('19.999 µs', '20 µs')
    """
    text = quantities.duration(ns)
    if ns == threshold_ns or text != quantities.duration(threshold_ns):
        return text
    unit, scale = ("s", 1e9) if threshold_ns >= 1e9 else ("µs", 1e3)
    return f"{fixed_beside(ns / scale, threshold_ns / scale, 0)} {unit}"


def share_beside(ratio: float, total: str, threshold: float) -> str:
    """Format a share with its total and its threshold.

    >>> share_beside(0.25, "step time", 20)
    '25.0% of step time (threshold 20%)'
    """
    limit = quantities.number(threshold, MAX_DECIMALS)
    return f"{percent_beside(ratio, threshold)} of {total} (threshold {limit}%)"


def _count_decimals(value: float, threshold: float, minimum: int) -> int:
    """Count the decimals with which a value is on its side of a threshold; the minimum where it
    equals the threshold."""
    for decimals in range(minimum, MAX_DECIMALS + 1):
        shown = float(quantities.fixed(value, decimals).replace(",", ""))
        if shown != threshold and (shown > threshold) == (value > threshold):
            return decimals
    return minimum
