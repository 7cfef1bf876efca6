"""Memory blocks: allocations paired with their releases.

An allocation and the next event at the same address of the same device form a pair if that event
is a release. An allocation without one was not released within the trace; a release without an
allocation freed a block from before the trace. If an address is allocated again, its earlier block
had been released: the profiler lost that event, and the block is no longer alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.memory_curve import DeviceMemory
from stepscope.analysis.operator_tree import OperatorTree
from stepscope.intervals import Int
from stepscope.schema import field_label

_ALLOCATORS = ("aten::empty", "aten::new_empty")
"""Operators that allocate on behalf of their callers, which are more informative."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MemoryBlocks:
    """Blocks of one device; events are indices into `DeviceMemory`, -1 for one not recorded."""

    size_bytes: Int
    allocation: Int
    """Event of the allocation."""
    release: Int
    """Event of the release."""
    freed: Int
    """First event after which the block no longer exists: its release, or the next allocation of
    its address."""

    @property
    def events(self) -> Int:
        """Event that identifies each block: its allocation, otherwise its release."""
        return np.where(self.allocation >= 0, self.allocation, self.release)

    def alive_at(self, event: int) -> Int:
        """Find the indices of the blocks that are allocated and not yet released after an event."""
        allocated = (self.allocation >= 0) & (self.allocation <= event)
        return np.flatnonzero(allocated & ((self.freed < 0) | (self.freed > event)))


def pair_blocks(device: DeviceMemory, address: Int) -> MemoryBlocks:
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


@dataclass(frozen=True, slots=True, eq=False)
class OperatorLabels:
    """Labels of the operators of some events."""

    tree: OperatorTree
    codes: Int
    """Code of each label, -1 outside every operator."""

    def text(self, code: int) -> str | None:
        """Label such as `aten::mul`, or `aten::mul (aten::empty)` for an allocator it called."""
        if code < 0:
            return None
        operator, caller = divmod(code, len(self.tree.names) + 1)
        name = self.tree.names[operator]
        return f"{self.tree.names[caller - 1]} ({name})" if caller else name


def label_operators(tree: OperatorTree, rows: Int) -> OperatorLabels:
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
    allocated_after_ns: Annotated[int | None, field_label("allocated at")]
    released_after_ns: Annotated[int | None, field_label("released at")]
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


def look_up_times(device: DeviceMemory, events: NDArray[Any]) -> Int:
    """Look up the times of events, -1 for one that was not recorded."""
    return np.where(events >= 0, device.t_ns[np.maximum(events, 0)], -1)
