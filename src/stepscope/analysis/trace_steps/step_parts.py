"""Parts of a trace's steps: the work of the device, and what the host did while it had none.

Each instant of a step belongs to one part, the first in this order that is active:

    compute          kernels that do not communicate, sets, and copies within the device
    communication    kernels of collectives, and collectives that the host itself executes, with
                     the hooks on gradients that prepare them
    copy_to_device   copies from host memory
    copy_to_host     copies to host memory for which the host waits
    copy_out         copies to host memory for which it does not wait
    blocked          what is waited for is not in the trace (`find_blocked`)
    copy_to_device   the runtime calls that start copies from host memory, and those in which the
                     host waits for them (`host_time`)
    queued           idle time of the device that ends with work whose launch had ended before the
                     idle time began: from one kernel to the next, or a wait for another stream
    data_loader      fetches of batches
    compilation      torch.compile compiles
    allocation       runtime calls that allocate or release memory
    waiting          a process that does not train has no work (`host_time`)
    long_call        another runtime call that takes at least `LONG_CALL_NS`
    python           the host calls no operator and no runtime for at least `LONG_PYTHON_NS`
    synchronization  idle time of the device that began while the host waited for it, until the
                     device has more than `SHORT_WORK_NS` of work again: the host had nothing
                     prepared. Of each step at most the time of such waits: without them, the host
                     does the rest all the same. After waits for copies to the device it is
                     `copy_to_device`
    dispatch         the host runs operators or runtime calls
    python           none of these

From `blocked` on the device has no work. Without a device, fetches and compiles come first, then
operators that take long themselves (`operators.WORK_NS`): `compute` is that time of theirs, and
what they call is `dispatch`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
import numpy as np

from stepscope import intervals
from stepscope.analysis.trace_steps.trace_steps import expose_in_order

STEP_PARTS = (
    "compute",
    "communication",
    "copy_to_device",
    "copy_to_host",
    "copy_out",
    "blocked",
    "queued",
    "data_loader",
    "compilation",
    "allocation",
    "waiting",
    "long_call",
    "synchronization",
    "dispatch",
    "python",
)
"""Parts by priority."""
DATA_PARTS = ("copy_to_device", "data_loader")
"""Parts in which the device waits for data."""
OVERHEAD_PARTS = tuple(
    part
    for part in STEP_PARTS
    if part not in {"compute", "communication", "blocked", "queued", "waiting", *DATA_PARTS}
)
"""Parts in which the device waits for the host to give it work."""
PART_NAMES = {
    "compute": "computation",
    "communication": "exposed communication",
    "copy_to_device": "copies to the device",
    "copy_to_host": "copies to the host",
    "copy_out": "copies to the host without a wait",
    "blocked": "waits for what is not in the trace",
    "queued": "idle between queued work",
    "data_loader": "fetching batches",
    "compilation": "compiling",
    "allocation": "allocating device memory",
    "waiting": "no work for the host",
    "long_call": "long runtime calls",
    "synchronization": "idle after a wait of the host for the device",
    "dispatch": "calling operators",
    "python": "Python between operators",
}
"""Names of the parts in sentences."""
LONG_PYTHON_NS = 5_000_000
"""Python that runs for so long between two calls is work of its own, also after a wait."""
LONG_CALL_NS = 5_000_000
"""A runtime call that takes so long does more than launch work: a first use of the device, pinning
of memory, or a wait."""
LONG_GAP_NS = 100_000
"""Gaps between queued work are a few microseconds long; in longer ones the device waits."""
MAX_COPY_NS_PER_BYTE = 4
"""Time of copying a byte of memory that is not pinned: a quarter of a gigabyte per second, a tenth
of what hosts reach."""
SHORT_WORK_NS = 20_000
"""Work of a device that hides no more than a call or two of the host."""
_ALLOCATION = re.compile(r"(cuda|hip)(Malloc|Free)|cuMem(Alloc|Free)(?!Host)")
_NO_ALLOCATION = re.compile(r"(Malloc|Free)(Async|Host)|FreeArray")
_COMPILATION = re.compile(
    r"\(dynamo_timed\)|torch/_dynamo/convert_frame|CachingAutotuner\.benchmark"
    # The module holds wrappers of compiled calls as well.
    r"|torch/_inductor/compile_fx\.py\(\d+\): (_?compile_fx|fw_compiler|codegen_and_compile)"
)


class StepActivity(msgspec.Struct, frozen=True, kw_only=True):
    """Times of activity in one trace; overlaps are allowed."""

    compute: intervals.Intervals = intervals.EMPTY
    communication: intervals.Intervals = intervals.EMPTY
    hooks: intervals.Intervals = intervals.EMPTY
    """Hooks on gradients, where the host itself executes collectives: they are communication, also
    where operators compute in them."""
    blocked: intervals.Intervals = intervals.EMPTY
    """Idle time of the device in which it, or the host, waits for what is not in the trace."""
    queued: intervals.Intervals = intervals.EMPTY
    """Idle time before work that had been launched when it began."""
    copy_to_device: intervals.Intervals = intervals.EMPTY
    copy_calls: intervals.Intervals = intervals.EMPTY
    """Runtime calls that start copies to the device."""
    copy_to_host: intervals.Intervals = intervals.EMPTY
    """Copies for which the host waits."""
    copy_out: intervals.Intervals = intervals.EMPTY
    """Copies to the host for which it does not wait."""
    data_loader: intervals.Intervals = intervals.EMPTY
    compilation: intervals.Intervals = intervals.EMPTY
    allocation: intervals.Intervals = intervals.EMPTY
    waiting: intervals.Intervals = intervals.EMPTY
    """Times in which the host has no work, of a trace that does not train."""
    long_calls: intervals.Intervals = intervals.EMPTY
    """Runtime calls of `LONG_CALL_NS` that neither copy, allocate nor wait for the device."""
    copy_waits: intervals.Intervals = intervals.EMPTY
    """Runtime calls in which the host waits for copies to the device."""
    waits: intervals.Intervals = intervals.EMPTY
    """Other runtime calls in which the host waits for the device."""
    host: intervals.Intervals = intervals.EMPTY
    """Operators and runtime calls."""
    device: intervals.Intervals = intervals.EMPTY
    """All work of the device."""


def allocates_memory(name: str) -> bool:
    """Return True if a runtime call allocates or releases memory and so waits for the device.

    >>> allocates_memory("cudaMalloc"), allocates_memory("cudaMallocAsync")
    (True, False)
    """
    return bool(_ALLOCATION.match(name)) and not _NO_ALLOCATION.search(name)


def is_compilation(name: str) -> bool:
    """Return True if a range or a Python function is that of a compiler.

    >>> is_compilation("_compile.compile_inner (dynamo_timed)")
    True
    """
    return _COMPILATION.search(name) is not None


def divide_steps(extent: intervals.Intervals, activity: StepActivity) -> dict[str, intervals.Int]:
    """Divide each step into parts.

    Args:
        extent: the steps.
        activity: times of activity in the trace.

    Returns:
        Nanoseconds of each part of `STEP_PARTS` in each step; they sum to the step's duration.
    """
    waits = {"copy_wait": activity.copy_waits, "synchronization": activity.waits}
    idle = {
        name: find_idle_after_waits(extent, activity.device, calls) for name, calls in waits.items()
    }
    ordered = {
        "compute": activity.compute,
        "communication": activity.communication,
        "copy_to_device": activity.copy_to_device,
        "copy_to_host": activity.copy_to_host,
        "copy_out": activity.copy_out,
        "blocked": activity.blocked,
        "copy_call": intervals.unite(activity.copy_calls, activity.copy_waits),
        "queued": activity.queued,
        "data_loader": activity.data_loader,
        "compilation": activity.compilation,
        "allocation": activity.allocation,
        "waiting": activity.waiting,
        "long_call": activity.long_calls,
        "long_python": _find_long_python(extent, activity),
        **idle,
        "dispatch": activity.host,
    }
    parts = expose_in_order(extent, ordered, rest="python")
    without_waits = expose_in_order(
        extent, ordered | dict.fromkeys(idle, intervals.EMPTY), rest="python"
    )
    waited_ns = {
        name: np.minimum(parts[name], intervals.overlap(extent, intervals.union(calls)))
        for name, calls in waits.items()
    }
    idle_ns = parts["copy_wait"] + parts["synchronization"]
    rest_ns = idle_ns - waited_ns["copy_wait"] - waited_ns["synchronization"]
    dispatch_ns = without_waits["dispatch"] - parts["dispatch"]
    moved_ns = np.rint(rest_ns / np.maximum(idle_ns, 1) * dispatch_ns).astype(np.int64)
    called_ns = parts.pop("copy_call") + waited_ns["copy_wait"]
    long_python_ns = parts.pop("long_python")
    del parts["copy_wait"]
    return parts | {
        "copy_to_device": parts["copy_to_device"] + called_ns,
        "synchronization": waited_ns["synchronization"],
        "dispatch": parts["dispatch"] + moved_ns,
        "python": parts["python"] + rest_ns - moved_ns + long_python_ns,
    }


def _find_long_python(extent: intervals.Intervals, activity: StepActivity) -> intervals.Intervals:
    """Find the times inside the steps in which the host calls nothing for `LONG_PYTHON_NS`."""
    if not len(extent.start):
        return intervals.EMPTY
    calls = intervals.unite(activity.host, activity.data_loader, activity.compilation)
    gaps = intervals.find_gaps(calls, (int(extent.start[0]), int(extent.end[-1])))
    is_long = gaps.end - gaps.start >= LONG_PYTHON_NS
    return intervals.Intervals(gaps.start[is_long], gaps.end[is_long])


def find_idle_after_waits(
    extent: intervals.Intervals, device: intervals.Intervals, waits: intervals.Intervals
) -> intervals.Intervals:
    """Find the idle times of a device that began while the host waited for it, and those right
    after these and `SHORT_WORK_NS` of work.

    The end of the last step ends an idle time too.
    """
    busy = intervals.union(device)
    if not len(busy.start) or not len(waits.start) or not len(extent.start):
        return intervals.EMPTY
    end = max(int(extent.end[-1]), int(busy.end[-1]))
    start, stop = busy.end, np.append(busy.start[1:], end)
    waiting = intervals.union(waits)
    began_waiting = intervals.contains(intervals.Intervals(waiting.start, waiting.end + 1), start)
    is_short = busy.end[1:] - busy.start[1:] <= SHORT_WORK_NS
    began_waiting[1:] |= began_waiting[:-1] & is_short
    return intervals.Intervals(start[began_waiting], stop[began_waiting])


def find_idle_before_queued(
    start: intervals.Int, end: intervals.Int, launched: intervals.Int
) -> intervals.Intervals:
    """Find the idle times of a device that end with work whose launch had ended before.

    Args:
        start, end: work of the device.
        launched: end of the launching call of each; the largest integer where it is not known.
    """
    order = np.argsort(start, kind="stable")
    start, launched = start[order], launched[order]
    reach = np.maximum.accumulate(end[order])
    rows = np.flatnonzero((start[1:] > reach[:-1]) & (launched[1:] <= reach[:-1]))
    return intervals.Intervals(reach[rows], start[rows + 1])


def find_blocked(
    device: intervals.Intervals,
    queued: intervals.Intervals,
    *,
    waits: intervals.Intervals,
    copy_calls: intervals.Intervals,
    copy_bytes: intervals.Int,
) -> intervals.Intervals:
    """Find the idle time of a device in which what is waited for is not in the trace: other
    processes and devices, work from before the recording, records that were lost.

    That is idle time before queued work of more than `LONG_GAP_NS`, idle time of at least
    `LONG_CALL_NS` while the host waits for the device, and what a call that copies takes longer
    than its bytes need, from that time on.

    Args:
        device: work of the device.
        queued: its idle time that ends with work whose launch had ended before.
        waits: runtime calls in which the host waits for the device.
        copy_calls: runtime calls that start copies to the device.
        copy_bytes: their bytes.
    """
    is_long = queued.end - queued.start > LONG_GAP_NS
    long_gaps = intervals.Intervals(queued.start[is_long], queued.end[is_long])
    waited = intervals.subtract(intervals.union(waits), intervals.union(device))
    is_long = waited.end - waited.start >= LONG_CALL_NS
    long_waits = intervals.Intervals(waited.start[is_long], waited.end[is_long])
    excess_end = copy_calls.end - MAX_COPY_NS_PER_BYTE * copy_bytes
    is_long = excess_end - copy_calls.start >= LONG_CALL_NS
    excess = intervals.Intervals(copy_calls.start[is_long], excess_end[is_long])
    return intervals.unite(long_gaps, long_waits, excess)


def divide_host_steps(
    extent: intervals.Intervals,
    activity: StepActivity,
    work: intervals.Intervals,
    work_ns: intervals.Int,
) -> dict[str, intervals.Int]:
    """Divide each step of a trace without a device into parts.

    Args:
        extent: the steps.
        activity: times of activity; `compute`, `device` and `waits` do not count.
        work: operators that take long themselves.
        work_ns: time of each of them without the operators that it calls.

    Returns:
        As of `divide_steps`.
    """
    ordered: Mapping[str, intervals.Intervals] = {
        "data_loader": activity.data_loader,
        "hooks": activity.hooks,
        # Stages of the compiler are operators that take long themselves.
        "compilation": activity.compilation,
        "compute": work,
        "communication": activity.communication,
        "dispatch": activity.host,
        "waiting": activity.waiting,
    }
    exposed = expose_in_order(extent, ordered, rest="python")
    if not len(extent.start):
        return dict.fromkeys(STEP_PARTS, np.empty(0, dtype=np.int64))
    row = np.searchsorted(extent.start, work.start, side="right") - 1
    inside = (row >= 0) & (work.start < extent.end[np.maximum(row, 0)])
    apart = intervals.unite(activity.data_loader, activity.hooks, activity.compilation)
    inside &= intervals.overlap(work, apart) == 0
    sums = np.bincount(row[inside], weights=work_ns[inside], minlength=len(extent.start))
    # Operators of several threads run at the same time: a step has no more than its own time.
    compute = np.minimum(sums.astype(np.int64), exposed["compute"])
    dispatch = exposed["dispatch"] + exposed["compute"] - compute
    communication = exposed["communication"] + exposed.pop("hooks")
    none = np.zeros_like(compute)
    return {
        **dict.fromkeys(STEP_PARTS, none),
        **exposed,
        "compute": compute,
        "communication": communication,
        "dispatch": dispatch,
    }
