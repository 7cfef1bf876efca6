"""Memory blocks, and memory at the peak by operator and by purpose.

    held(o)   sum of the sizes of the blocks that operator o allocated, at or before the event
              that reached the peak, and that were not yet released after it
    before    peak - sum of held: allocated before the start of the trace

The purpose of a block is inferred from the times of its allocation and release. Times are those of
the outermost operators on the host; a backward pass ends at the start of the next operator that
is neither a gradient's nor inside one.

    gradients          allocated in a backward pass and not released before its end
    activations        allocated by other operators, alive at the start of the next backward pass,
                       and released after that
    optimizer state    allocated in an optimizer's step and not released before its end
    temporary          released before the end of the pass that allocated it
    loaded batches     allocated while a batch was loaded
    unknown            the rest: without a later backward pass, or never released

Without backward operators in the trace, purposes are unknown.

A batch twice as large needs each of its blocks twice. Activations and loaded batches are of the
batch; temporary and unknown blocks may be; parameters, gradients and optimizer state are not:

    twice(t) = allocated(t) + sum of the sizes of the blocks of the batch that are alive at t

The peak of twice(t) without and with the blocks that may be of the batch is what it needs at least
and at most. Memory from before the trace counts as constant.

Memory blocks: allocations paired with their releases. An allocation and the next event at the same
address of the same device form a pair if that event is a release. An allocation without one was not
released within the trace; a release without an allocation freed a block from before the trace. If
an address is allocated again, its earlier block had been released: the profiler lost that event,
and the block is no longer alive.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis.arrays.columns import Columns, group_rows, make_intervals
from stepscope.analysis.devices.memory_use import DeviceMemory
from stepscope.analysis.kernel_classes import match_rows
from stepscope.analysis.operators.operator_tree import OperatorTree, is_excluded

BEFORE, ACTIVATIONS, GRADIENTS, OPTIMIZER, TEMPORARY, LOADED, UNKNOWN = (
    "before_recording",
    "activations",
    "gradients",
    "optimizer_state",
    "temporary",
    "loaded_batches",
    "not_told",
)
PURPOSES = (ACTIVATIONS, GRADIENTS, OPTIMIZER, TEMPORARY, LOADED, UNKNOWN)
OF_BATCH, PERHAPS_OF_BATCH = (ACTIVATIONS, LOADED), (TEMPORARY, UNKNOWN)
NO_BACKWARD = (
    "memory purposes are unknown: the trace has no backward operators to distinguish activations "
    "from gradients"
)
_ENGINE = ("autograd::engine::", "torch::autograd::")


class MemoryHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Memory allocated by one operator and held at the peak."""

    operator: Annotated[str | None, schema.field_label("allocated by")]
    """`caller (operator)` if it only allocates for others; null outside operators."""
    block_count: int
    held_bytes: int
    held_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of the peak."""


class MemoryPurpose(msgspec.Struct, frozen=True, kw_only=True):
    """Memory held at the peak for one purpose."""

    purpose: str
    held_bytes: int
    held_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of the peak."""


class MemoryPeak(msgspec.Struct, frozen=True, kw_only=True):
    """Holders and purposes of the memory at the peak."""

    share_of: str
    after_ns: Annotated[int, schema.field_label("time")]
    allocated_bytes: int
    before_bytes: Annotated[int | None, schema.field_label("allocated before the trace")]
    """Memory held since before the trace; null if the trace has no totals."""
    block_count: int
    """Blocks allocated in the trace and held at the peak."""
    holder_count: Annotated[int, schema.field_label("owners")]
    holders: Annotated[list[MemoryHolder], schema.field_label("owners")]
    purposes: list[MemoryPurpose]
    twice_low_bytes: Annotated[int | None, schema.field_label("a batch twice as large, at least")]
    """Null where purposes are unknown."""
    twice_high_bytes: Annotated[int | None, schema.field_label("a batch twice as large, at most")]
    missing: str | None


class Passes(msgspec.Struct, frozen=True, eq=False):
    """Passes of the steps on the host: backward, optimizer, loading and other."""

    backward_start: intervals.Int
    """Starts of the outermost backward operators, ascending."""
    other_start: intervals.Int
    """Starts of the outermost other operators, ascending."""
    optimizer: intervals.Intervals
    loading: intervals.Intervals

    def backward_end(self, times: intervals.Int) -> intervals.Int:
        """End of the backward pass that runs at each time: the start of the next other operator."""
        return _find_next(self.other_start, times)

    def next_backward(self, times: intervals.Int) -> intervals.Int:
        """Start of the next backward operator after each time."""
        return _find_next(self.backward_start, times)


_NEVER = np.iinfo(np.int64).max


def find_passes(tree: OperatorTree, operators: Columns, annotations: Columns) -> Passes:
    """Find the passes of the steps of a trace.

    Args:
        tree: operators of the trace.
        operators: `start_ns` and `forward_thread` of the same rows.
        annotations: `name`, `start_ns`, `duration_ns` of the annotations on the host.
    """
    backward = is_backward(tree, operators["forward_thread"])
    excluded = tree.mask(is_excluded)
    outermost = np.append(excluded, True)[tree.parent] & ~excluded  # row -1 is the appended one
    start = operators["start_ns"]
    optimizer = _find_ranges(annotations, "Optimizer.step#")
    loading = _find_ranges(annotations, "enumerate(Data")
    other_start = np.sort(start[outermost & ~backward])
    return Passes(
        backward_start=np.sort(start[outermost & backward]),
        other_start=other_start[~intervals.contains(loading, other_start)],
        optimizer=optimizer,
        loading=loading,
    )


def is_backward(tree: OperatorTree, forward_thread: intervals.Int) -> NDArray[np.bool_]:
    """Mask the operators that compute gradients, without those inside them."""
    has_backward_name = tree.mask(
        lambda name: name.startswith(_ENGINE) or name.rstrip("0123456789").endswith("Backward")
    )
    return has_backward_name | (forward_thread > 0)


def explain_peak(
    device: DeviceMemory,
    blocks: MemoryBlocks,
    event_operator: intervals.Int,
    tree: OperatorTree,
    *,
    passes: Passes | None,
    backward: NDArray[np.bool_],
    top: int = 0,
    start_ns: int = 0,
) -> MemoryPeak:
    """Explain the memory of a device at its peak.

    Args:
        device: events of the device.
        blocks: blocks of the device.
        event_operator: `operator` of every row of the table `memory_events`.
        tree: operators of the trace.
        passes: passes of its steps; None without backward operators.
        backward: mask over rows of `tree`, from `is_backward`.
        top: limit of holders, which are sorted by descending bytes; 0 for all.
        start_ns: time from which the time of the peak counts.
    """
    alive = blocks.alive_at(device.peak_index)
    size = blocks.size_bytes[alive]
    allocated = np.flatnonzero(blocks.allocation >= 0)
    rows = tree.find_rows(event_operator[device.rows[blocks.allocation[allocated]]])
    is_alive = np.isin(allocated, alive)
    operator_row = rows[is_alive]
    labels = label_operators(tree, operator_row)
    groups = group_rows(labels.codes)
    held_bytes, counts = groups.sums(size), groups.counts()
    peak_bytes = int(device.allocated_bytes[device.peak_index])
    before_bytes = peak_bytes - int(size.sum()) if device.absolute else None
    known_bytes = peak_bytes if device.absolute else 0
    purposes: dict[str, int] = {}
    missing: str | None = NO_BACKWARD
    twice: list[int | None] = [None, None]
    if passes is not None and device.absolute:
        in_backward = _is_within(tree, rows, backward)
        codes = _classify_purposes(device, blocks, allocated, passes, in_backward)
        twice = [
            _measure_twice(device, blocks, allocated[np.isin(codes, _codes_of(names))])
            for names in (OF_BATCH, OF_BATCH + PERHAPS_OF_BATCH)
        ]
        codes = codes[is_alive]
        sums = np.bincount(codes, weights=size, minlength=len(PURPOSES))
        purposes = {BEFORE: before_bytes or 0} | {
            name: int(sums[i]) for i, name in enumerate(PURPOSES) if sums[i]
        }
        missing = None
    return MemoryPeak(
        share_of="memory allocated at the peak",
        after_ns=int(device.t_ns[device.peak_index]) - start_ns,
        allocated_bytes=peak_bytes,
        before_bytes=before_bytes,
        block_count=len(alive),
        holders=[
            MemoryHolder(
                operator=labels.text(int(labels.codes[groups.first[g]])),
                block_count=int(counts[g]),
                held_bytes=int(held_bytes[g]),
                held_ratio=int(held_bytes[g]) / known_bytes if known_bytes else None,
            )
            for g in np.argsort(-held_bytes, kind="stable")[: top or None].tolist()
        ],
        holder_count=len(groups),
        purposes=[
            MemoryPurpose(
                purpose=purpose,
                held_bytes=size_bytes,
                held_ratio=size_bytes / known_bytes if known_bytes else 0.0,
            )
            for purpose, size_bytes in purposes.items()
        ],
        twice_low_bytes=twice[0],
        twice_high_bytes=twice[1],
        missing=missing,
    )


def _codes_of(names: tuple[str, ...]) -> list[int]:
    return [PURPOSES.index(name) for name in names]


def _measure_twice(device: DeviceMemory, blocks: MemoryBlocks, selected: intervals.Int) -> int:
    """Measure the peak with the selected blocks twice."""
    change = np.zeros(len(device.t_ns) + 1, dtype=np.int64)
    size = blocks.size_bytes[selected]
    np.add.at(change, blocks.allocation[selected], size)
    np.add.at(change, blocks.freed[selected], -size)  # -1, never freed: after the last event
    return int((device.allocated_bytes + np.cumsum(change[:-1])).max())


def _classify_purposes(
    device: DeviceMemory,
    blocks: MemoryBlocks,
    selected: intervals.Int,
    passes: Passes,
    in_backward: NDArray[np.bool_],
) -> intervals.Int:
    """Classify blocks by the rules at the top of this file, as indices into `PURPOSES`."""
    allocated = look_up_times(device, blocks.allocation[selected])
    released = look_up_times(device, blocks.release[selected])
    released = np.where(released < 0, _NEVER, released)
    in_optimizer = intervals.contains(passes.optimizer, allocated) & ~in_backward
    next_backward = passes.next_backward(allocated)
    pass_end = np.where(in_optimizer, _find_end(passes.optimizer, allocated), next_backward)
    pass_end = np.where(in_backward, passes.backward_end(allocated), pass_end)
    conditions = {
        LOADED: intervals.contains(passes.loading, allocated),
        TEMPORARY: (released < pass_end) & (in_backward | (pass_end < _NEVER)),
        GRADIENTS: in_backward,
        OPTIMIZER: in_optimizer,
        ACTIVATIONS: (next_backward < _NEVER) & (released < _NEVER),
    }
    codes = [PURPOSES.index(name) for name in conditions]
    return np.select(list(conditions.values()), codes, PURPOSES.index(UNKNOWN))


def _is_within(
    tree: OperatorTree, rows: intervals.Int, mask: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Mask the rows that a mask selects, or of which it selects an ancestor."""
    parent = np.append(tree.parent, -1)
    padded = np.append(mask, False)
    within = padded[rows]
    while (rows >= 0).any():
        rows = parent[rows]
        within |= padded[rows]
    return within


def _find_ranges(annotations: Columns, prefix: str) -> intervals.Intervals:
    rows = match_rows(annotations["name"], lambda name: name.startswith(prefix))
    return intervals.union(make_intervals(annotations, rows))


def _find_next(starts: intervals.Int, times: intervals.Int) -> intervals.Int:
    """Find the first of ascending starts after each time, `_NEVER` without one."""
    return np.append(starts, _NEVER)[np.searchsorted(starts, times, side="right")]


def _find_end(merged: intervals.Intervals, times: intervals.Int) -> intervals.Int:
    """Find the end of the interval of a union that covers each time, `_NEVER` without one."""
    index = np.searchsorted(merged.start, times, side="right") - 1
    return np.append(merged.end, _NEVER)[index]


_ALLOCATORS = ("aten::empty", "aten::new_empty")
"""Operators that allocate on behalf of their callers, which are more informative."""


class MemoryBlocks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Blocks of one device; events are indices into `DeviceMemory`, -1 for one not recorded."""

    size_bytes: intervals.Int
    allocation: intervals.Int
    """Event of the allocation."""
    release: intervals.Int
    """Event of the release."""
    freed: intervals.Int
    """First event after which the block no longer exists: its release, or the next allocation of
    its address."""

    @property
    def events(self) -> intervals.Int:
        """Event that identifies each block: its allocation, otherwise its release."""
        return np.where(self.allocation >= 0, self.allocation, self.release)

    def alive_at(self, event: int) -> intervals.Int:
        """Find the indices of the blocks that are allocated and not yet released after an event."""
        allocated = (self.allocation >= 0) & (self.allocation <= event)
        return np.flatnonzero(allocated & ((self.freed < 0) | (self.freed > event)))


def pair_blocks(device: DeviceMemory, address: intervals.Int) -> MemoryBlocks:
    """Pair the allocations and releases of a device.

    Args:
        device: events of the device.
        address: address of each row of the table; a missing one, -1, is never paired.
    """
    event_address = address[device.rows]
    order = np.argsort(event_address, kind="stable")
    is_allocation = device.size_bytes[order] > 0
    has_address = event_address[order] >= 0
    # True if the event before is at the same address.
    same = np.zeros(len(order) + 1, dtype=np.bool_)
    same[1:-1] = has_address[1:] & (event_address[order][1:] == event_address[order][:-1])
    allocations = np.flatnonzero(is_allocation)
    following = np.append(order, -1)[allocations + 1]
    freed = np.where(same[allocations + 1], following, -1)
    release = np.where(np.append(is_allocation, True)[allocations + 1], -1, freed)
    follows_allocation = same[:-1] & np.append(True, is_allocation[:-1])
    unpaired_releases = order[~is_allocation & ~follows_allocation]
    allocation = np.concatenate([order[allocations], np.full(len(unpaired_releases), -1)])
    release = np.concatenate([release, unpaired_releases])
    event = np.where(allocation >= 0, allocation, release)
    return MemoryBlocks(
        size_bytes=np.abs(device.size_bytes[event]),
        allocation=allocation,
        release=release,
        freed=np.concatenate([freed, unpaired_releases]),
    )


class OperatorLabels(msgspec.Struct, frozen=True, eq=False):
    """Labels of the operators of some events."""

    tree: OperatorTree
    codes: intervals.Int
    """Code of each label, -1 outside every operator."""

    def text(self, code: int) -> str | None:
        """Label such as `aten::mul`, or `aten::mul (aten::empty)` for an allocator it called."""
        if code < 0:
            return None
        operator, caller = divmod(code, len(self.tree.names) + 1)
        name = self.tree.names[operator]
        return f"{self.tree.names[caller - 1]} ({name})" if caller else name


def label_operators(tree: OperatorTree, rows: intervals.Int) -> OperatorLabels:
    """Label operator rows by name, and those that only allocate by their caller too."""
    allocates = np.append(tree.mask(lambda name: name.startswith(_ALLOCATORS)), False)
    parent = np.append(tree.parent, -1)  # row -1 is the appended one
    caller = np.where(allocates[rows], parent[rows], -1)
    while (is_allocator := allocates[caller]).any():
        caller = np.where(is_allocator, parent[caller], caller)
    name = np.append(tree.name.astype(np.int64), -1)
    codes = name[rows] * (len(tree.names) + 1) + name[caller] + 1
    return OperatorLabels(tree, np.where(rows >= 0, codes, -1))


class MemoryBlockRow(msgspec.Struct, frozen=True, kw_only=True):
    """Allocation with its release; times are null for events outside the trace."""

    operator: str | None
    """Operator that allocated the block, or that released it if the allocation is missing."""
    size_bytes: int
    allocated_after_ns: Annotated[int | None, schema.field_label("allocated at")]
    released_after_ns: Annotated[int | None, schema.field_label("released at")]
    lifetime_ns: int | None


def list_largest_blocks(
    device: DeviceMemory,
    blocks: MemoryBlocks,
    labels: OperatorLabels,
    *,
    containing: str = "",
    top: int = 0,
    start_ns: int = 0,
) -> tuple[list[MemoryBlockRow], int]:
    """List blocks by descending size.

    Args:
        device: events of the device.
        blocks: blocks of the device.
        labels: labels of the operators of `blocks.events`.
        containing: text that the operator's label must contain.
        top: limit; 0 for all.
        start_ns: time from which the times of the rows count.

    Returns:
        The blocks, and their count without the limit.
    """
    selected = np.arange(len(blocks.size_bytes))
    if containing:
        codes, inverse = np.unique(labels.codes, return_inverse=True)
        matches = [containing in (labels.text(code) or "") for code in codes.tolist()]
        selected = np.flatnonzero(np.array(matches, dtype=np.bool_)[inverse])
    order = selected[np.argsort(-blocks.size_bytes[selected], kind="stable")][: top or None]
    starts = look_up_times(device, blocks.allocation[order]).tolist()
    ends = look_up_times(device, blocks.release[order]).tolist()
    rows = [
        MemoryBlockRow(
            operator=labels.text(int(labels.codes[block])),
            size_bytes=int(blocks.size_bytes[block]),
            allocated_after_ns=start - start_ns if start >= 0 else None,
            released_after_ns=end - start_ns if end >= 0 else None,
            lifetime_ns=end - start if start >= 0 and end >= 0 else None,
        )
        for block, start, end in zip(order.tolist(), starts, ends, strict=True)
    ]
    return rows, len(selected)


def look_up_times(device: DeviceMemory, events: NDArray[Any]) -> intervals.Int:
    """Look up the times of events, -1 for one that was not recorded."""
    return np.where(events >= 0, device.t_ns[np.maximum(events, 0)], -1)
