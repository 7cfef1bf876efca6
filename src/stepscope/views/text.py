"""Names at a length that a picture or a sentence has room for, and moments as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

MAX_NAME_LENGTH = 500
"""Characters; `timeline-slice` has the full name."""
MAX_LISTED_NAMES = 8


def shorten_name(name: str, limit: int = MAX_NAME_LENGTH) -> str:
    """Cut a name that is too long to be read, to at most *limit* characters.

    >>> shorten_name("aten::mm")
    'aten::mm'
    """
    return name if len(name) <= limit else name[: limit - 1] + "…"


def list_names(names: Sequence[str], limit: int = MAX_LISTED_NAMES) -> str:
    """Join names for a sentence, at most *limit* of them.

    >>> list_names(["a", "b"]), list_names([str(n) for n in range(10)])
    ('a, b', '0, 1, 2, 3, 4, 5, 6, 7 and 2 more')
    """
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def utc_time(epoch_ns: int) -> str:
    """Format nanoseconds since 1970 in UTC, to the second.

    >>> utc_time(1_640_485_617_250_000_000)
    '2021-12-26 02:26:57 UTC'
    """
    return datetime.fromtimestamp(epoch_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
