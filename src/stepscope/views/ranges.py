"""Views of a range of time.

A view whose payload is `Ranged` receives `run.within(…)` and applies the same formulas to events
that start in the range. A view that defines its range differently fills `range` itself.
"""

from __future__ import annotations

import msgspec

from stepscope.run import Run
from stepscope.schema import Payload
from stepscope.views.names import list_names

RANGE_OF = (
    "events that start in the range, in full; covered times, as in gpu-time and distributed, are "
    "clipped to the range"
)


class TimeRange(msgspec.Struct, frozen=True, kw_only=True):
    """Range of time that a payload is about."""

    from_after_ns: int
    """Start, after the run's origin."""
    to_after_ns: int
    """End, exclusive."""
    range_of: str
    """Part of the run that belongs to the range."""
    notes: list[str]
    """Excluded traces."""


class Ranged(Payload, frozen=True, kw_only=True):
    """Payload that can be restricted to a range of time."""

    range: TimeRange | None = None
    """Null for the whole run."""


def describe_range(run: Run) -> TimeRange:
    """Describe the range that a run is restricted to."""
    origin = run.clock.origin_ns
    names = [trace.name for trace in run.left_out]
    return TimeRange(
        from_after_ns=run.period.start_ns - origin,
        to_after_ns=run.period.end_ns - origin,
        range_of=RANGE_OF,
        notes=[f"excluded traces, outside the range: {list_names(names)}"] if names else [],
    )
