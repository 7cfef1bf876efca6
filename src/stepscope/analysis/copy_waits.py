"""Waits of the host for copies between host and device memory.

Of the calls of one thread that launch work or wait for the device, a copy's wait is the next one
after its own call, if it is a wait: nothing else was launched in between. The host waits for the
copy if the call that started it, or that wait, lasts until the copy is done.

The wait belongs to the copy if one operator makes both calls, as `aten::copy_` does for memory
that is not pinned, or without `non_blocking`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls:
    """Runtime calls; arrays have one entry per call, in any order."""

    track: Int
    """Thread."""
    start: Int
    end: Int
    operator: Int
    """Id of the operator that made the call; below 0 for none."""
    is_wait: NDArray[np.bool_]
    """True for calls in which the host waits for a device, whatever they launch."""
    is_launch: NDArray[np.bool_]
    """True for calls that launch work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyWaits:
    """Waits for some copies; arrays have one entry per copy."""

    is_waited_for: NDArray[np.bool_]
    """False where no call is known to have started the copy."""
    call: Int
    """Index of the call that started the copy if it lasts until the copy is done, else -1."""
    wait: Int
    """Index of the wait that the operator of the copy makes, else -1."""


def find_copy_waits(calls: HostCalls, start_call: Int, end: Int) -> CopyWaits:
    """Find the waits for some copies.

    Args:
        calls: runtime calls of the trace.
        start_call: index of the call that started each copy, -1 where it is not known.
        end: end of each copy.
    """
    if not len(calls.start) or not len(start_call):
        none = np.full(len(start_call), -1, dtype=np.int64)
        return CopyWaits(is_waited_for=none >= 0, call=none, wait=none)
    is_started = start_call >= 0
    is_blocking = is_started & (calls.end[start_call] >= end)
    following = _find_following(calls)[start_call]
    has_wait = is_started & (following >= 0) & calls.is_wait[following]
    is_of_copy = has_wait & (calls.operator[start_call] >= 0)
    is_of_copy &= calls.operator[following] == calls.operator[start_call]
    return CopyWaits(
        is_waited_for=is_blocking | (has_wait & (calls.end[following] >= end)),
        call=np.where(is_blocking, start_call, -1),
        wait=np.where(is_of_copy, following, -1),
    )


def _find_following(calls: HostCalls) -> Int:
    """Find the next call of the same thread that launches work or waits, -1 for none."""
    order = np.lexsort((calls.start, calls.track))
    matters = np.flatnonzero((calls.is_wait | calls.is_launch)[order])
    position = np.searchsorted(matters, np.arange(len(order)), side="right")
    row = np.append(order[matters], -1)[position]
    row[(row >= 0) & (calls.track[row] != calls.track[order])] = -1
    following = np.empty(len(order), dtype=np.int64)
    following[order] = row
    return following
