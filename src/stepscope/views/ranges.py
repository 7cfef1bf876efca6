"""Views of a range of time.

A view whose payload is `Ranged` looks at what begins in the range, by the same formulas: it is
handed the signals of the range; see `diagnosis.within`. One that means something else by its range
says so itself.
"""

from __future__ import annotations

import msgspec

from stepscope.run import RunRange

RANGE_OF = (
    "what begins in the range, whole; times that work covers, as in gpu-time and distributed, are "
    "cut at its ends"
)
_LISTED = 8


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """The range that a payload is about."""

    from_after_ns: int
    """After the run's origin."""
    to_after_ns: int
    """Exclusive."""
    range_of: str
    """What of the run belongs to it."""
    notes: list[str]
    """Recordings that are left out."""


class Ranged(msgspec.Struct, frozen=True, kw_only=True):
    """A payload that can be restricted to a range of time."""

    range: TimeRange | None = None
    """Null for the whole run."""


def time_range(within: RunRange) -> TimeRange:
    """The range that signals are of."""
    origin = within.clock.origin_ns
    names = [trace.name for trace in within.left_out]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return TimeRange(
        from_after_ns=within.start_ns - origin,
        to_after_ns=within.end_ns - origin,
        range_of=RANGE_OF,
        notes=[
            f"left out, because they do not reach into the range: {', '.join(names[:_LISTED])}"
            f"{more}"
        ]
        if names
        else [],
    )
