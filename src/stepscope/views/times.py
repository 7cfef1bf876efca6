"""Moments as text."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_time(epoch_ns: int) -> str:
    """Format nanoseconds since 1970 in UTC, to the second.

    >>> utc_time(1_640_485_617_250_000_000)
    '2021-12-26 02:26:57 UTC'
    """
    return datetime.fromtimestamp(epoch_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
