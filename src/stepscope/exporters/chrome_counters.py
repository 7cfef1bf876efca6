"""Counters of a trace for its export: queue depth of each stream, and bandwidth of copies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from stepscope.analysis import (
    ACTIVITY_COPY_COLUMNS,
    Buckets,
    cut_into_buckets,
    find_launches,
    measure_copy_bandwidth,
    measure_queue_depths,
)
from stepscope.run import Trace, calls_of, device_work_of, streams_of

MAX_VALUES = 2_000
"""Values of one counter."""


def counter_events(trace: Trace, pid: int | str, base_ns: int) -> Iterator[str]:
    """Yield the counters of a trace: the largest queue depth and the mean bandwidth in each of at
    most `MAX_VALUES` equal times.

    Args:
        trace: the trace.
        pid: number of the process that shows the counters.
        base_ns: base of the times in the file.
    """
    start_ns, end_ns = trace.extent
    buckets = cut_into_buckets(start_ns, end_ns, max(1, -(-(end_ns - start_ns) // MAX_VALUES)))
    if buckets is None:
        return
    launches = find_launches(device_work_of(trace, "keep"), calls_of(trace))
    for queue in measure_queue_depths(launches, buckets, streams=streams_of(trace)):
        name = f"queue depth of stream {'unknown' if queue.stream is None else queue.stream}"
        yield from _write_counter(name, "launches", queue.depth_curve, buckets, pid, base_ns)
    copies = trace.columns("copies", ("start_ns", *ACTIVITY_COPY_COLUMNS))
    for row in measure_copy_bandwidth(copies, buckets):
        values = [rate / 1e9 for rate in row.curve_bytes_per_s]
        name = f"bandwidth of {row.direction}"
        yield from _write_counter(name, "GB/s", values, buckets, pid, base_ns)


def _write_counter(  # noqa: PLR0917 - one event each
    name: str, series: str, values: Iterable[float], buckets: Buckets, pid: int | str, base_ns: int
) -> Iterator[str]:
    """Yield the events of one counter; a value that does not change is not repeated."""
    previous = None
    for start_ns, value in zip(buckets.edges.tolist(), values, strict=False):
        if value != previous:
            event = {"ph": "C", "name": name, "pid": pid, "tid": 0}
            text = msgspec.json.encode(event | {"args": {series: value}}).decode()
            microseconds, rest = divmod(start_ns - base_ns, 1000)
            yield f'{text[:-1]},"ts":{microseconds}.{rest:03}}}'
        previous = value
