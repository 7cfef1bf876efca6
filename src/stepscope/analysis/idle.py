"""Idle time of streams, by reason.

A gap is the time from the end of all earlier work of a stream to the start of its next work.
Work that starts before earlier work has ended makes no gap, so the gaps of a stream and the union
of its work sum to its span. A gap is a

    host wait     if the runtime call that launched the next work started after the gap did: the
                  device had nothing to do;
    kernel wait   otherwise, if it is shorter than a threshold: the time the device takes from
                  one kernel to the next;
    other         otherwise: the work was queued and waited for something, such as an event of
                  another stream, or its launch is not in the trace.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.device_work import DeviceWork, RuntimeCalls

KERNEL_WAIT_BELOW_NS = 30_000
"""Upper limit of a kernel wait: 30 us. Back-to-back launches leave gaps of 1 to 5 us, and some
tens of us if a kernel depends on another stream; 30 ns, which some documents state, is below the
resolution of most profilers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamIdle:
    """Gaps of one stream; `busy + host_wait + kernel_wait + other = span`."""

    track: int
    device: int
    work_count: int
    span_ns: int
    """Time from the first start to the last end."""
    busy_ns: int
    host_wait_ns: int
    kernel_wait_ns: int
    other_ns: int
    host_wait_count: int
    kernel_wait_count: int
    other_count: int
    longest_host_wait_ns: int

    @property
    def idle_ns(self) -> int:
        """Total time of all gaps."""
        return self.host_wait_ns + self.kernel_wait_ns + self.other_ns

    def __post_init__(self) -> None:
        if self.busy_ns + self.idle_ns != self.span_ns:
            raise ArithmeticError(f"Time of a stream is not conserved: {self}")


def measure_stream_idle(
    work: DeviceWork, calls: RuntimeCalls, *, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS
) -> list[StreamIdle]:
    """Classify the gaps of each stream, ordered by stream."""
    if not len(work):
        return []
    call_index = calls.find_rows(work.launch)
    launched = calls.start[call_index] if len(calls.start) else np.zeros(len(work), dtype=np.int64)
    launched = np.where(call_index >= 0, launched, np.iinfo(np.int64).min)
    order = np.lexsort((work.end, work.start, work.track))
    tracks, first = np.unique(work.track[order], return_index=True)
    streams = []
    for track, rows in zip(tracks.tolist(), np.split(order, first[1:]), strict=True):
        start, end = work.start[rows], work.end[rows]
        reach = np.maximum.accumulate(end)
        gap = np.maximum(start[1:] - reach[:-1], 0)
        host_wait = (gap > 0) & (launched[rows][1:] > reach[:-1])
        kernel_wait = (gap > 0) & ~host_wait & (gap < kernel_wait_below_ns)
        unexplained = (gap > 0) & ~host_wait & ~kernel_wait
        span_ns = int(reach[-1] - start[0])
        streams.append(
            StreamIdle(
                track=track,
                device=int(work.device[rows[0]]),
                work_count=len(rows),
                span_ns=span_ns,
                busy_ns=span_ns - int(gap.sum()),
                host_wait_ns=int(gap[host_wait].sum()),
                kernel_wait_ns=int(gap[kernel_wait].sum()),
                other_ns=int(gap[unexplained].sum()),
                host_wait_count=int(host_wait.sum()),
                kernel_wait_count=int(kernel_wait.sum()),
                other_count=int(unexplained.sum()),
                longest_host_wait_ns=int(gap[host_wait].max(initial=0)),
            )
        )
    return streams
