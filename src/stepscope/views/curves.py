"""The buckets of curves over a recording."""

from __future__ import annotations

from stepscope.analysis import Buckets, cut_into_buckets
from stepscope.errors import UsageError
from stepscope.run import Trace
from stepscope.views.options import ViewOptions

MOST_BUCKETS = 100_000


def buckets_of(trace: Trace, options: ViewOptions) -> Buckets | None:
    """Buckets over one recording, as wide as was asked for.

    They cover the range in which the recorder says it was recording, else that of all events.
    """
    start_ns, end_ns = recorded_range(trace)
    width = options.bucket_ns
    if width is not None and (end_ns - start_ns) // width > MOST_BUCKETS:
        raise UsageError(
            f"Buckets of {width} ns cut {trace.name} into more than {MOST_BUCKETS:,} pieces: "
            "choose wider ones with --bucket."
        )
    return cut_into_buckets(start_ns, end_ns, width)


def recorded_range(trace: Trace) -> tuple[int, int]:
    """When the recorder was recording, as far as that is looked at."""
    found = trace.columns(
        "other_events",
        ("start_ns", "duration_ns"),
        condition="category = 'Trace' AND name LIKE 'PyTorch Profiler%' AND duration_ns > 0",
    )
    if not len(found["start_ns"]):
        return trace.extent
    start, end = found["start_ns"], found["start_ns"] + found["duration_ns"]
    last = int(end.max()) if trace.within is None else min(int(end.max()), trace.within[1])
    return int(start.min()), last
