"""Names as long as a picture has room for."""

from __future__ import annotations

LONGEST = 500
"""Characters; `timeline-slice` has the whole name."""


def shown(name: str) -> str:
    """A name, cut where it is longer than anybody reads.

    >>> shown("aten::mm")
    'aten::mm'
    """
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
