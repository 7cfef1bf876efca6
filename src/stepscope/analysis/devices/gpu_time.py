"""Device time divided into compute, exposed communication, exposed copies and idle, with reasons.

Over the kernels, copies and sets of one rank, or of one of its devices, with U(x) for the time
covered by any of x, in integer nanoseconds:

    total          last end - first start; clipped to the range of time, if there is one
    busy           |U(all)|
    idle           total - busy
    compute        |U(kernels that do not communicate, sets)|
    memset         |U(sets)|, included in compute
    comm           |U(kernels of collectives)|
    exposed_comm   |U(comm) minus U(compute)|
    exposed_memcpy |U(copies) minus U(compute) minus U(comm)|

so that compute + exposed_comm + exposed_memcpy + idle = total.

Nothing is rounded. Work on one stream may overlap; it counts once. Work launched before the
window counts unless the caller has removed it.

Idle time of streams, by reason. A gap is the time from the end of all earlier work of a stream to
the start of its next work. Work that starts before earlier work has ended makes no gap, so the gaps
of a stream and the union of its work sum to its span. A gap is a

    host wait     if the runtime call that launched the next work started after the gap did: the
                  device had nothing to do;
    kernel wait   otherwise, if it is shorter than a threshold: the time the device takes from
                  one kernel to the next;
    other         otherwise: the work was queued and waited for something, such as an event of
                  another stream, or its launch is not in the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.devices.device_work import MEMCPY, MEMSET, DeviceWork, RuntimeCalls


class GpuTime(msgspec.Struct, frozen=True, kw_only=True):
    """Breakdown of device time; the module's docstring has the formulas."""

    total_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    memset_ns: int
    comm_ns: int
    exposed_comm_ns: int
    exposed_memcpy_ns: int
    same_stream_overlap_count: int
    gpu_event_count: int

    def __post_init__(self) -> None:
        parts = self.compute_ns + self.exposed_comm_ns + self.exposed_memcpy_ns + self.idle_ns
        if parts != self.total_ns or self.busy_ns + self.idle_ns != self.total_ns:
            raise ArithmeticError(f"GPU time is not conserved: {self}")


def measure_gpu_time(work: DeviceWork, within: tuple[int, int] | None = None) -> GpuTime | None:
    """Break down the time of all devices together; None without device work.

    Args:
        work: all device work.
        within: range of time to restrict the breakdown to.
    """
    if not len(work):
        return None
    first, last = int(work.start.min()), int(work.end.max())
    if within is not None:
        first, last, work = max(first, within[0]), min(last, within[1]), work.clip(within)
        if first > last:
            return None
    memcpy = work.kind == MEMCPY
    compute = work.compute | (work.kind == MEMSET)
    compute_ns = _measure_covered(work, compute)
    with_comm_ns = _measure_covered(work, ~memcpy)
    busy_ns = _measure_covered(work, np.ones(len(work), dtype=np.bool_))
    total_ns = last - first
    return GpuTime(
        total_ns=total_ns,
        busy_ns=busy_ns,
        idle_ns=total_ns - busy_ns,
        compute_ns=compute_ns,
        memset_ns=_measure_covered(work, work.kind == MEMSET),
        comm_ns=_measure_covered(work, work.communication),
        exposed_comm_ns=with_comm_ns - compute_ns,
        exposed_memcpy_ns=busy_ns - with_comm_ns,
        same_stream_overlap_count=count_same_stream_overlaps(work),
        gpu_event_count=len(work),
    )


def measure_gpu_time_by_device(
    work: DeviceWork, within: tuple[int, int] | None = None
) -> dict[int, GpuTime]:
    """Break down the time of each device, from its first start to its last end."""
    times = {}
    for device in np.unique(work.device).tolist():
        time = measure_gpu_time(work.take(work.device == device), within)
        if time is not None:
            times[device] = time
    return times


def count_same_stream_overlaps(work: DeviceWork) -> int:
    """Count the work that starts before earlier work of its stream has ended."""
    order = np.lexsort((work.end, work.start, work.track))
    track, start = work.track[order], work.start[order]
    # Streams are shifted to follow each other, so that one running maximum works for all.
    number = np.cumsum(np.diff(track, prepend=track[:1]) != 0)
    first = int(work.start.min()) if len(work) else 0
    shift = number * (int(work.end.max()) - first + 1) if len(work) else number
    reach = np.maximum.accumulate(work.end[order] - first + shift)
    return int((start[1:] - first + shift[1:] < reach[:-1]).sum())


def _measure_covered(work: DeviceWork, rows: NDArray[np.bool_]) -> int:
    return intervals.union(intervals.Intervals(work.start[rows], work.end[rows])).total_ns


KERNEL_WAIT_BELOW_NS = 30_000
"""Upper limit of a kernel wait: 30 us. Back-to-back launches leave gaps of 1 to 5 us, and some
tens of us if a kernel depends on another stream; 30 ns, which some documents state, is below the
resolution of most profilers."""


class StreamIdle(msgspec.Struct, frozen=True, kw_only=True):
    """One stream, from its first work to its last; busy and the three waits sum to the span."""

    stream: int | None
    device: int
    work_count: Annotated[int, schema.field_label("work")]
    span_ns: int
    busy_ns: int
    idle_ns: int
    host_wait_ns: int
    """Gaps in which the runtime call that launched the next work started after the stream became
    idle."""
    kernel_wait_ns: int
    """Gaps between queued work, each shorter than `kernel_wait_below_ns`."""
    other_ns: int
    """Longer gaps between queued work, and gaps before work whose launch is unknown."""
    host_wait_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of `idle_ns`; null without idle time."""
    kernel_wait_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of `idle_ns`; null without idle time."""
    other_ratio: Annotated[float | None, schema.field_label(display="bar")]
    """Share of `idle_ns`; null without idle time."""
    host_wait_count: int
    kernel_wait_count: int
    other_count: Annotated[int, schema.field_label("other gaps")]
    longest_host_wait_ns: int

    def __post_init__(self) -> None:
        waits_ns = self.host_wait_ns + self.kernel_wait_ns + self.other_ns
        if self.idle_ns != waits_ns or self.busy_ns + self.idle_ns != self.span_ns:
            raise ArithmeticError(f"Time of a stream is not conserved: {self}")


def measure_stream_idle(
    work: DeviceWork,
    calls: RuntimeCalls,
    *,
    streams: Mapping[int, int | None] = MappingProxyType({}),
    kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS,
) -> list[StreamIdle]:
    """Classify the gaps of each stream, ordered by stream.

    Args:
        work: device work of one trace.
        calls: its runtime calls.
        streams: number of the stream of each track; None where it has no number.
        kernel_wait_below_ns: upper limit of a kernel wait.
    """
    if not len(work):
        return []
    call_index = calls.find_rows(work.launch)
    launched = calls.start[call_index] if len(calls.start) else np.zeros(len(work), dtype=np.int64)
    launched = np.where(call_index >= 0, launched, np.iinfo(np.int64).min)
    order = np.lexsort((work.end, work.start, work.track))
    tracks, first = np.unique(work.track[order], return_index=True)
    idle_times = []
    for track, rows in zip(tracks.tolist(), np.split(order, first[1:]), strict=True):
        start, end = work.start[rows], work.end[rows]
        reach = np.maximum.accumulate(end)
        gap = np.maximum(start[1:] - reach[:-1], 0)
        host_wait = (gap > 0) & (launched[rows][1:] > reach[:-1])
        kernel_wait = (gap > 0) & ~host_wait & (gap < kernel_wait_below_ns)
        unexplained = (gap > 0) & ~host_wait & ~kernel_wait
        span_ns, idle_ns = int(reach[-1] - start[0]), int(gap.sum())
        idle_times.append(
            StreamIdle(
                stream=streams.get(track),
                device=int(work.device[rows[0]]),
                work_count=len(rows),
                span_ns=span_ns,
                busy_ns=span_ns - idle_ns,
                idle_ns=idle_ns,
                host_wait_ns=int(gap[host_wait].sum()),
                kernel_wait_ns=int(gap[kernel_wait].sum()),
                other_ns=int(gap[unexplained].sum()),
                host_wait_ratio=_share(gap, host_wait),
                kernel_wait_ratio=_share(gap, kernel_wait),
                other_ratio=_share(gap, unexplained),
                host_wait_count=int(host_wait.sum()),
                kernel_wait_count=int(kernel_wait.sum()),
                other_count=int(unexplained.sum()),
                longest_host_wait_ns=int(gap[host_wait].max(initial=0)),
            )
        )
    return idle_times


def _share(gap: intervals.Int, mask: NDArray[np.bool_]) -> float | None:
    total_ns = int(gap.sum())
    return int(gap[mask].sum()) / total_ns if total_ns else None
