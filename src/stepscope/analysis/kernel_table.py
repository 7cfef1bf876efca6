"""Kernels of a recording, by name or by everything that makes two launches alike.

Of the kernels in one group:

    total, mean, min, max   of their durations
    share                   total / sum of the durations of all kernels; kernels that run at the
                            same time count each
    mean of a property      sum(value x duration) / sum(duration), over the kernels that have the
                            property; so a kernel that took no time has no say

A kernel of a replayed graph belongs to the launch of the graph: `graph_table` groups by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns, Strings
from stepscope.analysis.grouping import Grouping, group_rows
from stepscope.analysis.kernel_classes import (
    Precision,
    is_communication,
    precision_class,
    rows_where,
    uses_tensor_cores,
)
from stepscope.analysis.operator_tree import rows_of
from stepscope.intervals import Int

NAME_COLUMNS = (
    "name",
    "duration_ns",
    "carry_over",
    "blocks_per_multiprocessor",
    "occupancy_percent",
)
"""What `kernel_table` needs of the table `kernels`."""
PROPERTY_COLUMNS = (
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    *("registers_per_thread", "shared_memory_bytes"),
)
"""What it needs besides to group by properties, and `graph_table` of kernels in graphs."""
GRAPH_COLUMNS = ("name", "duration_ns", "graph", "launch")
"""What `graph_table` needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProperties:
    """How a kernel was launched; None where the recording does not say."""

    operator: str | None
    """The operator that launched it; None for work without one, such as carry-over."""
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    registers_per_thread: int | None
    shared_memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One group of kernels."""

    name: str
    properties: KernelProperties | None
    """When grouped by properties."""
    calls: int
    total_ns: int
    mean_ns: float
    min_ns: int
    max_ns: int
    share_ratio: float
    """Of `KernelTable.total_ns`."""
    mean_blocks_per_multiprocessor: float | None
    mean_occupancy_percent: float | None
    tensor_cores: bool
    precision: Precision | None
    """Of the inputs, by the name; None when that tells nothing."""
    communication: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Groups of kernels, those with most time first."""

    rows: list[KernelRow]
    """The first `top` groups."""
    group_count: int
    call_count: int
    total_ns: int
    """Durations of all kernels, summed: the denominator of every share."""
    tensor_core_ns: int
    """Of these, kernels on tensor cores, by their names."""
    communication_ns: int
    carry_over_count: int
    """Kernels launched before the window."""
    carry_over_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    """One captured graph and its replays."""

    graph: int
    replays: int
    """Launches of it that the recording holds."""
    kernel_count: int
    distinct_kernel_count: int
    """Different names of kernels."""
    total_ns: int
    share_ratio: float
    """Of the durations of all kernels, summed."""


def kernel_table(kernels: Columns, *, top: int = 0) -> KernelTable:
    """Kernels grouped by name.

    Args:
        kernels: `NAME_COLUMNS` of the table.
        top: only so many groups; 0 for all.
    """
    groups = group_rows(kernels["name"].codes)
    return _table(kernels, groups, lambda row: None, top)


def kernel_table_by_properties(
    kernels: Columns, operators: Columns, *, top: int = 0
) -> KernelTable:
    """Kernels grouped by name, operator, grid, block, registers and shared memory.

    Args:
        kernels: `NAME_COLUMNS` and `PROPERTY_COLUMNS` of the table, and its `operator`.
        operators: `id` and `name` of the table.
        top: only so many groups; 0 for all.
    """
    launcher = rows_of(operators["id"], kernels["operator"])
    names: Strings = operators["name"]
    operator = np.append(names.codes, -1)[launcher]  # row -1 is the one appended
    groups = group_rows(
        kernels["name"].codes, operator, *(kernels[column] for column in PROPERTY_COLUMNS)
    )

    def properties(row: int) -> KernelProperties:
        return KernelProperties(
            operator=names.values[operator[row]] if operator[row] >= 0 else None,
            grid=_triple(kernels, "grid", row),
            block=_triple(kernels, "block", row),
            registers_per_thread=_known(kernels["registers_per_thread"][row]),
            shared_memory_bytes=_known(kernels["shared_memory_bytes"][row]),
        )

    return _table(kernels, groups, properties, top)


def graph_table(kernels: Columns, total_ns: int) -> list[GraphRow]:
    """Replayed graphs, those with most kernel time first.

    Args:
        kernels: `GRAPH_COLUMNS` of the kernels that a graph ran.
        total_ns: durations of all kernels of the recording, summed.
    """
    groups = group_rows(kernels["graph"])
    durations = groups.sums(kernels["duration_ns"])
    replays = _distinct(kernels["graph"], kernels["launch"], len(groups))
    different = _distinct(kernels["graph"], kernels["name"].codes, len(groups))
    return [
        GraphRow(
            graph=int(kernels["graph"][groups.first[g]]),
            replays=int(replays[g]),
            kernel_count=int(count),
            distinct_kernel_count=int(different[g]),
            total_ns=int(durations[g]),
            share_ratio=int(durations[g]) / total_ns if total_ns else 0.0,
        )
        for g, count in sorted(enumerate(groups.counts()), key=lambda item: -durations[item[0]])
    ]


def _distinct(key: Int, values: NDArray[Any], count: int) -> Int:
    """Distinct values that are not missing, by group of `key`."""
    present = values >= 0
    pairs = group_rows(key[present], values[present])
    groups = group_rows(key).group[present][pairs.first]
    return np.bincount(groups, minlength=count).astype(np.int64)


def _table(
    kernels: Columns,
    groups: Grouping,
    properties: Callable[[int], KernelProperties | None],
    top: int,
) -> KernelTable:
    names: Strings = kernels["name"]
    duration: Int = kernels["duration_ns"]
    totals, counts = groups.sums(duration), groups.counts()
    shortest, longest = groups.minima(duration), groups.maxima(duration)
    blocks = _weighted(groups, kernels["blocks_per_multiprocessor"], duration)
    occupancy = _weighted(groups, kernels["occupancy_percent"], duration)
    every = int(totals.sum())
    code = names.codes[groups.first]
    rows = [
        KernelRow(
            name=names.values[code[g]] or "",
            properties=properties(int(groups.first[g])),
            calls=int(counts[g]),
            total_ns=int(totals[g]),
            mean_ns=int(totals[g]) / int(counts[g]),
            min_ns=int(shortest[g]),
            max_ns=int(longest[g]),
            share_ratio=int(totals[g]) / every if every else 0.0,
            mean_blocks_per_multiprocessor=_number(blocks[g]),
            mean_occupancy_percent=_number(occupancy[g]),
            tensor_cores=uses_tensor_cores(names.values[code[g]] or ""),
            precision=precision_class(names.values[code[g]] or ""),
            communication=is_communication(names.values[code[g]] or ""),
        )
        for g in np.lexsort((code, -totals))[: top or None].tolist()
    ]
    carried = kernels["carry_over"] == 1
    return KernelTable(
        rows=rows,
        group_count=len(groups),
        call_count=len(duration),
        total_ns=every,
        tensor_core_ns=int(duration[rows_where(names, uses_tensor_cores)].sum()),
        communication_ns=int(duration[rows_where(names, is_communication)].sum()),
        carry_over_count=int(carried.sum()),
        carry_over_ns=int(duration[carried].sum()),
    )


def _weighted(groups: Grouping, values: NDArray[np.float64], duration: Int) -> NDArray[np.float64]:
    """Mean of each group weighted by duration; NaN where no kernel that took time has a value."""
    known = ~np.isnan(values)
    weight = np.where(known, duration, 0)
    total = groups.float_sums(np.where(known, values, 0) * weight)
    of = groups.float_sums(weight)
    return np.where(of > 0, total / np.maximum(of, 1), np.nan)


def _triple(kernels: Columns, of: str, row: int) -> tuple[int, int, int] | None:
    x, y, z = (int(kernels[f"{of}_{axis}"][row]) for axis in "xyz")
    return None if x < 0 else (x, y, z)


def _known(value: int) -> int | None:
    return None if value < 0 else int(value)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
