"""Memory allocated by operators, by name.

For the calls of one operator (chains merged, see `operator_tree`), on one device:

    size increase      sum of signed bytes: the bytes that the calls left allocated
    allocation bytes   sum of the positive ones
    allocation count   number of the positive ones
    self               events inside the call but not inside an operator it calls; figures without
                       `self` include the operators below

An event belongs to the innermost operator of its thread with start <= t < end. Events outside
every operator are in no row; they are counted separately.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np

from stepscope.analysis.columns import Columns
from stepscope.analysis.grouping import group_rows
from stepscope.analysis.memory_curve import DeviceMemory
from stepscope.analysis.operator_tree import OperatorTree, sum_by_row
from stepscope.schema import field_label


class OperatorMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory allocated by the calls of one operator on one device, including operators below them
    unless `self`."""

    name: Annotated[str, field_label("operator")]
    calls: int
    """Number of all calls, including those that allocated nothing."""
    self_size_increase_bytes: Annotated[int, field_label("self increase")]
    size_increase_bytes: Annotated[int, field_label("increase")]
    self_allocation_count: int
    allocation_count: int
    self_allocation_bytes: Annotated[int, field_label("self allocated")]
    allocation_bytes: Annotated[int, field_label("allocated")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOperators:
    """Operators by descending self size increase."""

    rows: list[OperatorMemory]
    """Operators with an event whose name matches the filter."""
    operator_count: int
    """Number of operators with an event."""
    outside_count: int
    """Number of events outside every operator."""
    outside_size_increase_bytes: int


def summarize_memory_operators(
    device: DeviceMemory, events: Columns, tree: OperatorTree, *, containing: str = ""
) -> MemoryOperators:
    """Summarize the allocations of operators on one device.

    Args:
        device: events of the device.
        events: column `operator` of the table `memory_events`.
        tree: operators of the trace.
        containing: text that the operator's name must contain.
    """
    operator_row = tree.find_rows(events["operator"][device.rows])
    size = device.size_bytes
    is_allocation = (size > 0).astype(np.int64)
    event_values = (size, is_allocation, np.maximum(size, 0))
    row_sums = [sum_by_row(operator_row, values, len(tree)) for values in event_values]
    row_totals = [tree.totals(sums) for sums in row_sums]
    # A call with neither a size change nor an allocation below it has no events at all.
    calls = np.flatnonzero(tree.counted & ((row_totals[0] != 0) | (row_totals[1] != 0)))
    groups = group_rows(tree.name[calls])
    totals = [groups.sums(values[calls]) for values in row_totals]
    selves = [groups.sums(tree.sum_merged(values)[calls]) for values in row_sums]
    name = tree.name[calls[groups.first]]
    order = np.lexsort((-totals[2], -selves[0]))
    # Row -1 is the appended one.
    outside = ~np.append(tree.counted[tree.merged], False)[operator_row]
    return MemoryOperators(
        rows=[
            OperatorMemory(
                name=tree.names[name[g]],
                calls=int(tree.calls_by_name[name[g]]),
                size_increase_bytes=int(totals[0][g]),
                self_size_increase_bytes=int(selves[0][g]),
                allocation_count=int(totals[1][g]),
                self_allocation_count=int(selves[1][g]),
                allocation_bytes=int(totals[2][g]),
                self_allocation_bytes=int(selves[2][g]),
            )
            for g in order.tolist()
            if containing in tree.names[name[g]]
        ],
        operator_count=len(groups),
        outside_count=int(outside.sum()),
        outside_size_increase_bytes=int(size[outside].sum()),
    )
