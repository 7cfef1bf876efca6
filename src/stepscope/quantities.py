"""How numbers and durations are written: three significant digits, all before the point."""

from __future__ import annotations

SCALES = (
    ("d", 86_400e9, 3_600_000e9),
    ("h", 3_600e9, 3_600e9),
    ("s", 1e9, 1e9),
    ("ms", 1e6, 1e6),
    ("us", 1e3, 1e3),
)
"""Units of durations in nanoseconds, and from when on they are used: days from a thousand hours,
since machines are paid by the hour."""


def digits(value: float) -> str:
    """Three significant digits, and all before the point; no idle zeros.

    >>> digits(5.9), digits(40.0), digits(13.46), digits(1234.5), digits(999.7)
    ('5.9', '40', '13.5', '1,234', '1,000')
    """
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def duration(ns: float) -> str:
    """A duration in the unit that suits it.

    >>> duration(86_400_000), duration(5.9 * 3600e9), duration(1_817_181e9), duration(1e16)
    ('86.4 ms', '5.9 h', '505 h', '116 d')
    """
    for unit, size, least in SCALES:
        if abs(ns) >= least:
            return f"{digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"
