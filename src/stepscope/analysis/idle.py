"""Why a stream was idle.

A gap lies between the moment at which all earlier work of a stream has ended and the start of
its next work. Work that starts before earlier work has ended makes no gap, so the gaps of a
stream and the union of its work sum to its span. A gap is a

    host wait     when the runtime call that launched the next work began after the gap did:
                  the device had nothing to do;
    kernel wait   else, when it is shorter than a threshold: the time the device takes from one
                  kernel to the next;
    other         else: the work was queued and waited for something, such as an event of another
                  stream, or its launch is not in the recording.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.device_work import DeviceWork, RuntimeCalls

KERNEL_WAIT_BELOW_NS = 30_000
"""Longest gap that may pass as the device's own: 30 us. Back-to-back launches leave 1 to 5 us,
with some tens where a kernel depends on another stream's; 30 ns, as some documents have it,
is below the resolution of most recorders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamIdle:
    """The gaps of one stream; `busy + host_wait + kernel_wait + other = span`."""

    track: int
    device: int
    work_count: int
    span_ns: int
    """From the first start to the last end."""
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
        """All gaps."""
        return self.host_wait_ns + self.kernel_wait_ns + self.other_ns

    def __post_init__(self) -> None:
        if self.busy_ns + self.idle_ns != self.span_ns:
            raise ArithmeticError(f"Time of a stream is not conserved: {self}")


def stream_idle(
    work: DeviceWork, calls: RuntimeCalls, *, kernel_wait_below_ns: int = KERNEL_WAIT_BELOW_NS
) -> list[StreamIdle]:
    """The gaps of every stream, by stream."""
    if not len(work):
        return []
    place = calls.places(work.launch)
    launched = calls.start[place] if len(calls.start) else np.zeros(len(work), dtype=np.int64)
    launched = np.where(place >= 0, launched, np.iinfo(np.int64).min)
    order = np.lexsort((work.end, work.start, work.track))
    tracks, first = np.unique(work.track[order], return_index=True)
    found = []
    for track, rows in zip(tracks.tolist(), np.split(order, first[1:]), strict=True):
        start, end = work.start[rows], work.end[rows]
        reach = np.maximum.accumulate(end)
        gap = np.maximum(start[1:] - reach[:-1], 0)
        host = (gap > 0) & (launched[rows][1:] > reach[:-1])
        kernel = (gap > 0) & ~host & (gap < kernel_wait_below_ns)
        other = (gap > 0) & ~host & ~kernel
        span = int(reach[-1] - start[0])
        found.append(
            StreamIdle(
                track=track,
                device=int(work.device[rows[0]]),
                work_count=len(rows),
                span_ns=span,
                busy_ns=span - int(gap.sum()),
                host_wait_ns=int(gap[host].sum()),
                kernel_wait_ns=int(gap[kernel].sum()),
                other_ns=int(gap[other].sum()),
                host_wait_count=int(host.sum()),
                kernel_wait_count=int(kernel.sum()),
                other_count=int(other.sum()),
                longest_host_wait_ns=int(gap[host].max(initial=0)),
            )
        )
    return found
