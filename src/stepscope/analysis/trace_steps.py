"""The steps of a recording and what each is spent on.

A step begins as a range `ProfilerStep#N` on the host; a recording without any has one step, "0",
over all its host events. The shadow of such a range on a device is no step.

Where devices worked, a step reaches until what it launched is done. In order,

    start = max(end of the step before, host start)
    end   = max(host end, last end of device work whose runtime call lies inside the host range)

with, for the first step, as "end of the step before" the later of the first host start and the
last end of device work that no step launched and that was over before the first step's first
device work. A step without device work ends at max(host end, start).

Last, what the recorder cut off is left out: trailing steps without device work, then the last
one that is left when it has less than 0.8 times the device work of the step before it.

The time of a step is divided among categories, the first of them that is active at a moment
having it:

    kernel          kernels that do not communicate
    memcpy, memset  copies and sets of device memory
    communication   kernels of collectives, and collectives that the host itself carries out
    runtime         calls of the device's runtime or driver
    data_loader     fetches of batches: what device work did not hide
    cpu_exec        any other operator, annotation or Python function
    other           nothing of these
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.device_work import MEMCPY, MEMSET, DeviceWork, RuntimeCalls
from stepscope.intervals import EMPTY, Int, Intervals, overlap, union

STEP_PREFIX = "ProfilerStep#"
CATEGORIES = (
    "kernel",
    "memcpy",
    "memset",
    "communication",
    "runtime",
    "data_loader",
    "cpu_exec",
    "other",
)
"""By priority."""
WHOLE = "0"
"""Name of the only step of a recording that has none."""
CUT_OFF_BELOW = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSteps:
    """Steps as the host marked them, by start; each name once."""

    names: list[str]
    extent: Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSteps:
    """Steps that reach until their device work is done; one entry each."""

    names: list[str]
    host: Intervals
    extent: Intervals
    device_work_count: Int
    """Device work whose runtime call lies inside the host range."""
    cut_off: list[str]
    """Names of the last steps that were left out as incomplete."""

    @property
    def wall_ns(self) -> Int:
        """Durations."""
        return self.extent.end - self.extent.start


def is_step(name: str) -> bool:
    """The name of a step's range.

    >>> is_step("ProfilerStep#12"), is_step("ProfilerStep")
    (True, False)
    """
    return name.startswith(STEP_PREFIX) and name[len(STEP_PREFIX) :].isdigit()


def is_data_loader(name: str) -> bool:
    """The name of a fetch of a batch.

    >>> is_data_loader("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    True
    """
    return name.startswith("enumerate(DataPipe)#") or (
        name.startswith("enumerate(DataLoader)#") and name.endswith(".__next__")
    )


def host_steps(names: list[str], start: Int, end: Int) -> HostSteps | None:
    """Steps from the ranges that are named so; of several with one name the first counts."""
    order = [int(row) for row in np.argsort(start, kind="stable") if is_step(names[row])]
    first: dict[str, int] = {}
    for row in order:
        first.setdefault(names[row].removeprefix(STEP_PREFIX), row)
    if not first:
        return None
    rows = np.array(list(first.values()), dtype=np.int64)
    return HostSteps(names=list(first), extent=Intervals(start[rows], end[rows]))


def whole_recording(start_ns: int, end_ns: int) -> HostSteps:
    """One step, over everything."""
    return HostSteps(names=[WHOLE], extent=Intervals(np.array([start_ns]), np.array([end_ns])))


def find_trace_steps(host: HostSteps, work: DeviceWork, calls: RuntimeCalls) -> TraceSteps:
    """Extends steps of the host over their device work and leaves out what was cut off."""
    count = len(host.names)
    step = _launched_in(host, work, calls)
    launched = step >= 0
    work_count = np.bincount(step[launched], minlength=count)
    none = np.iinfo(np.int64)
    first, last = np.full(count, none.max), np.full(count, none.min)
    np.minimum.at(first, step[launched], work.start[launched])
    np.maximum.at(last, step[launched], work.end[launched])
    start, end = host.extent.start.copy(), host.extent.end.copy()
    if launched.any():
        before = ~launched & (work.end < first[0]) if work_count[0] else np.zeros_like(launched)
        previous = max(int(start[0]), int(work.end[before].max(initial=start[0])))
        for i in range(count):  # each start depends on the end before it
            start[i] = max(previous, start[i])
            end[i] = max(end[i], start[i], last[i] if work_count[i] else start[i])
            previous = int(end[i])
    kept = _complete(work_count) if launched.any() else count
    return TraceSteps(
        names=host.names[:kept],
        host=Intervals(host.extent.start[:kept], host.extent.end[:kept]),
        extent=Intervals(start[:kept], end[:kept]),
        device_work_count=work_count[:kept],
        cut_off=host.names[kept:],
    )


def _launched_in(host: HostSteps, work: DeviceWork, calls: RuntimeCalls) -> Int:
    """The step in whose host range the launch of each piece of work lies, -1 for none."""
    place = calls.find_rows(work.launch)
    found = np.full(len(work), -1, dtype=np.int64)
    rows = np.flatnonzero(place >= 0)
    begin, end = calls.start[place[rows]], calls.end[place[rows]]
    step = np.searchsorted(host.extent.start, begin, side="right").astype(np.int64) - 1
    inside = (step >= 0) & (end <= host.extent.end[np.maximum(step, 0)])
    found[rows] = np.where(inside, step, -1)
    return found


def _complete(work_count: Int) -> int:
    """How many of the first steps are whole."""
    kept = int(np.flatnonzero(work_count)[-1]) + 1
    if kept > 1 and work_count[kept - 1] < CUT_OFF_BELOW * work_count[kept - 2]:
        kept -= 1
    return kept


def device_categories(work: DeviceWork) -> dict[str, Intervals]:
    """When devices were in each category that is theirs."""
    return {
        "kernel": _some(work, work.compute),
        "memcpy": _some(work, work.kind == MEMCPY),
        "memset": _some(work, work.kind == MEMSET),
        "communication": _some(work, work.communication),
    }


def together(one: Mapping[str, Intervals], other: Mapping[str, Intervals]) -> dict[str, Intervals]:
    """When each category was active, by either account."""
    both = {name: _joined(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def break_down(extent: Intervals, parts: Mapping[str, Intervals]) -> dict[str, Int]:
    """Nanoseconds of each category in each step; they sum to the step's duration.

    Args:
        extent: the steps.
        parts: when each category was active, overlaps allowed; a category may be absent.
    """
    wall = extent.end - extent.start
    taken, used = EMPTY, np.zeros(len(wall), dtype=np.int64)
    times: dict[str, Int] = {}
    for category in CATEGORIES[:-1]:
        taken = _joined(taken, parts.get(category, EMPTY))
        covered = overlap(extent, taken)
        times[category] = covered - used
        used = covered
    times["other"] = wall - used
    return times


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Computation and communication inside some ranges; one entry per range.

    Sets of memory are no computation here. What is left of a range is
    `computation + communication - overlap` short of its duration.
    """

    computation_ns: Int
    communication_ns: Int
    overlap_ns: Int


def computation_and_communication(extent: Intervals, work: DeviceWork) -> Overlap:
    """How far kernels of collectives run beside other kernels."""
    compute = union(_some(work, work.compute))
    communication = union(_some(work, work.communication))
    computation_ns = overlap(extent, compute)
    communication_ns = overlap(extent, communication)
    either_ns = overlap(extent, _joined(compute, communication))
    return Overlap(
        computation_ns=computation_ns,
        communication_ns=communication_ns,
        overlap_ns=computation_ns + communication_ns - either_ns,
    )


def _some(work: DeviceWork, rows: NDArray[np.bool_]) -> Intervals:
    return Intervals(work.start[rows], work.end[rows])


def _joined(one: Intervals, other: Intervals) -> Intervals:
    return union(
        Intervals(np.concatenate([one.start, other.start]), np.concatenate([one.end, other.end]))
    )
