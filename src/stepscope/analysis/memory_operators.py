"""What operators allocated, by name.

Of the calls of one operator (chains merged, see `operator_tree`), on one device:

    size increase      sum of signed bytes: what the calls left allocated
    allocation bytes   sum of the positive ones
    allocation count   number of the positive ones
    self               events inside the call but inside no operator it calls; without `self` the
                       operators below it are added

An event belongs to the innermost operator of its thread with start <= t < end. Events outside
every operator enter no row; they are counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis.columns import Columns
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.memory_curve import DeviceMemory
from stepscope.analysis.operator_tree import OperatorTree, add_at


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOperator:
    """Calls of one operator on one device."""

    name: str
    calls: int
    """All of its calls, whether they allocated or not."""
    size_increase_bytes: int
    self_size_increase_bytes: int
    allocation_count: int
    self_allocation_count: int
    allocation_bytes: int
    self_allocation_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOperators:
    """Operators by self size increase, the largest first."""

    rows: list[MemoryOperator]
    """Those with an event, and that were asked for."""
    operator_count: int
    outside_count: int
    """Events outside every operator."""
    outside_size_increase_bytes: int


def memory_operators(
    device: DeviceMemory, events: Columns, tree: OperatorTree, *, containing: str = ""
) -> MemoryOperators:
    """What operators allocated on one device.

    Args:
        device: its events.
        events: `operator` of the table `memory_events`.
        tree: the operators of the recording.
        containing: only operators whose name contains this text.
    """
    at = tree.rows(events["operator"][device.rows])
    size = device.size_bytes
    grown = np.maximum(size, 0)
    values = [add_at(at, each, len(tree)) for each in (size, (size > 0).astype(np.int64), grown)]
    totals = [tree.totals(each) for each in values]
    # A call with neither a change nor an allocation below it had no event at all.
    calls = np.flatnonzero(tree.counted & ((totals[0] != 0) | (totals[1] != 0)))
    groups = group_rows(tree.name[calls])
    whole = [groups.sums(each[calls]) for each in totals]
    own = [groups.sums(tree.own(each)[calls]) for each in values]
    name = tree.name[calls[groups.first]]
    order = np.lexsort((-whole[2], -own[0]))
    outside = ~np.append(tree.counted[tree.merged], False)[at]  # row -1 is the one appended
    return MemoryOperators(
        rows=[
            MemoryOperator(
                name=tree.names[name[g]],
                calls=int(tree.calls_by_name[name[g]]),
                size_increase_bytes=int(whole[0][g]),
                self_size_increase_bytes=int(own[0][g]),
                allocation_count=int(whole[1][g]),
                self_allocation_count=int(own[1][g]),
                allocation_bytes=int(whole[2][g]),
                self_allocation_bytes=int(own[2][g]),
            )
            for g in order.tolist()
            if containing in tree.names[name[g]]
        ],
        operator_count=len(groups),
        outside_count=int(outside.sum()),
        outside_size_increase_bytes=int(size[outside].sum()),
    )
