"""Blocks of memory: each allocation with its release.

An allocation and the next event at the same address of the same device belong together when that
is a release. An allocation without one was not released in the recording; a release without an
allocation freed what was there before it. An address that is allocated anew had been released:
the recorder lost that event, and the block before is not alive any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.memory_curve import DeviceMemory
from stepscope.analysis.operator_tree import OperatorTree
from stepscope.intervals import Int

_ALLOCATORS = ("aten::empty", "aten::new_empty")
"""Operators that allocate for whoever calls them: the caller says more."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Blocks:
    """Blocks of one device. Places are those of `DeviceMemory`, -1 for an event not recorded."""

    size_bytes: Int
    allocation: Int
    release: Int
    gone: Int
    """The event that shows that the block is no longer there: its release, or that the address
    was allocated anew."""

    @property
    def events(self) -> Int:
        """Place of the event by which each block is known: its allocation if there is one."""
        return np.where(self.allocation >= 0, self.allocation, self.release)

    def alive_at(self, place: int) -> Int:
        """Blocks allocated by the event at a place or before, and not yet released after it."""
        begun = (self.allocation >= 0) & (self.allocation <= place)
        return np.flatnonzero(begun & ((self.gone < 0) | (self.gone > place)))


def pair_blocks(device: DeviceMemory, address: Int) -> Blocks:
    """Allocations and releases of a device, paired.

    Args:
        device: its events.
        address: of every row of the table; a missing one, -1, makes no pair.
    """
    where = address[device.rows]
    order = np.argsort(where, kind="stable")
    grows = device.size_bytes[order] > 0
    known = where[order] >= 0
    same = np.zeros(len(order) + 1, dtype=np.bool_)  # whether the event before is at one address
    same[1:-1] = known[1:] & (where[order][1:] == where[order][:-1])
    begins = np.flatnonzero(grows)
    after = np.append(order, -1)[begins + 1]
    gone = np.where(same[begins + 1], after, -1)
    release = np.where(np.append(grows, True)[begins + 1], -1, gone)
    follows_allocation = same[:-1] & np.append(True, grows[:-1])
    orphans = order[~grows & ~follows_allocation]
    allocation = np.concatenate([order[begins], np.full(len(orphans), -1)])
    release = np.concatenate([release, orphans])
    event = np.where(allocation >= 0, allocation, release)
    return Blocks(
        size_bytes=np.abs(device.size_bytes[event]),
        allocation=allocation,
        release=release,
        gone=np.concatenate([gone, orphans]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class OperatorLabels:
    """What to call the operators of some events."""

    tree: OperatorTree
    codes: Int
    """Equal for equal labels, -1 outside every operator."""

    def text(self, code: int) -> str | None:
        """`aten::mul`, or `aten::mul (aten::empty)` for an allocation made on its behalf."""
        if code < 0:
            return None
        own, caller = divmod(code, len(self.tree.names) + 1)
        name = self.tree.names[own]
        return f"{self.tree.names[caller - 1]} ({name})" if caller else name


def label_operators(tree: OperatorTree, rows: Int) -> OperatorLabels:
    """Labels of operator rows: the name, and the caller's for an operator that only allocates."""
    allocates = np.append(tree.mask(lambda name: name.startswith(_ALLOCATORS)), False)
    parent = np.append(tree.parent, -1)  # row -1 is the one appended
    caller = np.where(allocates[rows], parent[rows], -1)
    while (again := allocates[caller]).any():
        caller = np.where(again, parent[caller], caller)
    name = np.append(tree.name.astype(np.int64), -1)
    codes = name[rows] * (len(tree.names) + 1) + name[caller] + 1
    return OperatorLabels(tree, np.where(rows >= 0, codes, -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRow:
    """One block; times are None for what happened outside the recording."""

    operator: str | None
    """That allocated it, or that released it when the allocation was not recorded."""
    size_bytes: int
    allocated_ns: int | None
    released_ns: int | None
    lifetime_ns: int | None


def largest_blocks(
    device: DeviceMemory,
    blocks: Blocks,
    labels: OperatorLabels,
    *,
    containing: str = "",
    top: int = 0,
) -> tuple[list[BlockRow], int]:
    """Blocks by size, the largest first, and how many there are.

    Args:
        device: its events.
        blocks: its blocks.
        labels: of the operators of `blocks.events`.
        containing: only blocks of operators whose label contains this text.
        top: only so many; 0 for all.
    """
    chosen = np.arange(len(blocks.size_bytes))
    if containing:
        codes, places = np.unique(labels.codes, return_inverse=True)
        fits = [containing in (labels.text(code) or "") for code in codes.tolist()]
        chosen = np.flatnonzero(np.array(fits, dtype=np.bool_)[places])
    order = chosen[np.argsort(-blocks.size_bytes[chosen], kind="stable")][: top or None]
    begun = times_at(device, blocks.allocation[order]).tolist()
    ended = times_at(device, blocks.release[order]).tolist()
    rows = [
        BlockRow(
            operator=labels.text(int(labels.codes[block])),
            size_bytes=int(blocks.size_bytes[block]),
            allocated_ns=begin if begin >= 0 else None,
            released_ns=end if end >= 0 else None,
            lifetime_ns=end - begin if begin >= 0 and end >= 0 else None,
        )
        for block, begin, end in zip(order.tolist(), begun, ended, strict=True)
    ]
    return rows, len(chosen)


def times_at(device: DeviceMemory, places: NDArray[Any]) -> Int:
    """Time of each event, -1 for one that was not recorded."""
    return np.where(places >= 0, device.t_ns[np.maximum(places, 0)], -1)
