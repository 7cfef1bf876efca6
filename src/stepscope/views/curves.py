"""Buckets of curves over a trace."""

from __future__ import annotations

from stepscope.analysis import Buckets, cut_into_buckets
from stepscope.errors import UsageError
from stepscope.quantities import count, duration
from stepscope.run import Trace
from stepscope.views.options import ViewOptions

MAX_BUCKETS = 100_000


def choose_buckets(trace: Trace, options: ViewOptions) -> Buckets | None:
    """Choose buckets over one trace, of the requested width.

    They cover the range in which the profiler was active, or else the range of all events.
    """
    start_ns, end_ns = find_profiled_range(trace)
    width_ns = options.bucket_ns
    if width_ns is not None and (end_ns - start_ns) // width_ns > MAX_BUCKETS:
        raise UsageError(
            f"Buckets of {duration(width_ns)} cut {trace.name} into more than "
            f"{count(MAX_BUCKETS)} pieces. Choose wider buckets with --bucket."
        )
    return cut_into_buckets(start_ns, end_ns, width_ns)


def find_profiled_range(trace: Trace) -> tuple[int, int]:
    """Find the range in which the profiler was active, clipped to the selected range."""
    marks = trace.columns(
        "other_events",
        ("start_ns", "duration_ns"),
        condition="category = 'Trace' AND name LIKE 'PyTorch Profiler%' AND duration_ns > 0",
    )
    if not len(marks["start_ns"]):
        return trace.extent
    start_ns = int(marks["start_ns"].min())
    end_ns = int((marks["start_ns"] + marks["duration_ns"]).max())
    return start_ns, end_ns if trace.within is None else min(end_ns, trace.within[1])
