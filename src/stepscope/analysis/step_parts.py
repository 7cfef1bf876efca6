"""Parts of a trace's steps: the work of the device, and what the host did while it had none.

Each instant of a step belongs to one part, the first in this order that is active:

    compute          kernels that do not communicate, sets, and copies within the device
    communication    kernels of collectives, and collectives that the host itself executes
    copy_to_device   copies from host memory; the runtime calls that start them
    copy_to_host     copies to host memory
    data_loader      fetches of batches
    compilation      torch.compile compiles
    allocation       runtime calls that allocate or release memory
    synchronization  idle time of the device that began while the host waited for it, until the
                     device has work again: the host had nothing prepared
    dispatch         the host runs operators or runtime calls
    python           none of these

From `data_loader` on the device has no work. Without a device, `compute` is the time of operators
that take long themselves (`operators.WORK_NS`), as far as the parts before it leave room; the other
operators are `dispatch`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.trace_steps import expose_in_order
from stepscope.intervals import EMPTY, Int, Intervals, contains, overlap, union, unite

STEP_PARTS = (
    "compute",
    "communication",
    "copy_to_device",
    "copy_to_host",
    "data_loader",
    "compilation",
    "allocation",
    "synchronization",
    "dispatch",
    "python",
)
"""Parts by priority."""
DATA_PARTS = ("copy_to_device", "data_loader")
"""Parts in which the device waits for data."""
OVERHEAD_PARTS = tuple(
    part for part in STEP_PARTS if part not in {"compute", "communication", *DATA_PARTS}
)
"""Parts in which the device waits for the host to give it work."""
PART_NAMES = {
    "compute": "computation",
    "communication": "exposed communication",
    "copy_to_device": "copies to the device",
    "copy_to_host": "copies to the host",
    "data_loader": "fetching batches",
    "compilation": "compiling",
    "allocation": "allocating device memory",
    "synchronization": "idle after a wait of the host for the device",
    "dispatch": "calling operators",
    "python": "Python between operators",
}
"""Names of the parts in sentences."""
_ALLOCATION = re.compile(
    r"(cuda|hip|cu)(Malloc|Free|HostAlloc|HostFree|HostMalloc|Mem(Alloc|Free))"
)
_NO_ALLOCATION = re.compile(r"MallocAsync|FreeAsync|GraphExec")
_COMPILATION = re.compile(
    r"\(dynamo_timed\)|torch/_dynamo/convert_frame|torch/_inductor/compile_fx"
    r"|CachingAutotuner\.benchmark"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepActivity:
    """Times of activity in one trace; overlaps are allowed."""

    compute: Intervals = EMPTY
    communication: Intervals = EMPTY
    copy_to_device: Intervals = EMPTY
    """Copies, and the runtime calls that start them."""
    copy_to_host: Intervals = EMPTY
    data_loader: Intervals = EMPTY
    compilation: Intervals = EMPTY
    allocation: Intervals = EMPTY
    waits: Intervals = EMPTY
    """Runtime calls in which the host waits for the device."""
    host: Intervals = EMPTY
    """Operators and runtime calls."""
    device: Intervals = EMPTY
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


def divide_steps(extent: Intervals, activity: StepActivity) -> dict[str, Int]:
    """Divide each step into parts.

    Args:
        extent: the steps.
        activity: times of activity in the trace.

    Returns:
        Nanoseconds of each part of `STEP_PARTS` in each step; they sum to the step's duration.
    """
    idle = find_idle_after_waits(extent, activity.device, activity.waits)
    ordered: Mapping[str, Intervals] = {
        "compute": activity.compute,
        "communication": activity.communication,
        "copy_to_device": activity.copy_to_device,
        "copy_to_host": activity.copy_to_host,
        "data_loader": activity.data_loader,
        "compilation": activity.compilation,
        "allocation": activity.allocation,
        "synchronization": idle,
        "dispatch": activity.host,
    }
    return expose_in_order(extent, ordered, rest="python")


def find_idle_after_waits(extent: Intervals, device: Intervals, waits: Intervals) -> Intervals:
    """Find the idle times of a device that began while the host waited for it.

    The end of the last step ends an idle time too.
    """
    busy = union(device)
    if not len(busy.start) or not len(waits.start) or not len(extent.start):
        return EMPTY
    end = max(int(extent.end[-1]), int(busy.end[-1]))
    start, stop = busy.end, np.append(busy.start[1:], end)
    began_waiting = contains(union(waits), start)
    return Intervals(start[began_waiting], stop[began_waiting])


def divide_host_steps(
    extent: Intervals, activity: StepActivity, work: Intervals, work_ns: Int
) -> dict[str, Int]:
    """Divide each step of a trace without a device into parts.

    Args:
        extent: the steps.
        activity: times of activity; `compute`, `device` and `waits` do not count.
        work: operators that take long themselves.
        work_ns: time of each of them without the operators that it calls.

    Returns:
        As of `divide_steps`.
    """
    parts = divide_steps(extent, activity)
    apart = unite(
        activity.data_loader, activity.communication, activity.compilation, activity.allocation
    )
    row = np.searchsorted(extent.start, work.start, side="right") - 1
    inside = contains(extent, work.start) & (overlap(work, apart) == 0)
    sums = np.bincount(row[inside], weights=work_ns[inside], minlength=len(extent.start))
    # Operators of several threads run at the same time: a step has no more than its own time.
    compute = np.minimum(sums.astype(np.int64), parts["dispatch"])
    return parts | {"compute": compute, "dispatch": parts["dispatch"] - compute}
