"""Kernels of a trace, grouped by name or by name and launch properties.

For the kernels in one group:

    total, mean, min, max   of their durations
    share                   total / sum of the durations of all kernels; simultaneous kernels
                            count separately
    mean of a property      sum(value x duration) / sum(duration), over the kernels that have the
                            property; a kernel without duration has no weight
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns, Strings, none_if_nan, none_if_negative
from stepscope.analysis.gpu_metrics import OCCUPANCY_COLUMNS, read_occupancy
from stepscope.analysis.grouping import Grouping, group_rows
from stepscope.analysis.kernel_classes import (
    classify_precision,
    hides_tensor_cores,
    is_communication,
    match_rows,
    uses_tensor_cores,
)
from stepscope.analysis.operator_tree import find_rows
from stepscope.intervals import Int
from stepscope.schema import field_label

NAME_COLUMNS = ("name", "duration_ns", "blocks_per_multiprocessor", *OCCUPANCY_COLUMNS)
"""Columns of `kernels` that `build_kernel_table` reads."""
PROPERTY_COLUMNS = (
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    *("registers_per_thread", "shared_memory_bytes"),
)
"""Launch properties that `build_kernel_table_by_properties` groups by."""
LAUNCHER_COLUMNS = ("operator", "captured_operator")
"""Columns that give the operator of a kernel; in a replayed graph, the one that was captured."""


class KernelGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name."""

    name: Annotated[str, field_label("kernel")]
    calls: int
    total_ns: int
    share_ratio: float | None
    mean_ns: float
    min_ns: int
    max_ns: int
    mean_blocks_per_multiprocessor: Annotated[
        float | None, field_label("blocks per SM", unit="count")
    ]
    """Mean weighted by duration."""
    mean_occupancy_percent: Annotated[float | None, field_label("occupancy")]
    """Mean weighted by duration, as the profiler estimates it; null where it could not."""
    tensor_cores: bool | None
    """Use of tensor or matrix cores, guessed from the name; null if the name does not show it."""
    precision: str | None
    """Precision of the inputs, guessed from the name."""
    communication: bool
    """Kernel of a collective, by its name."""


class KernelLaunches(KernelGroup, frozen=True, kw_only=True):
    """Kernels of one name with the same launch properties."""

    operator: str | None
    """Null for work that no operator launched, such as work from before the window."""
    grid: Annotated[tuple[int, int, int] | None, field_label(unit="none")]
    block: Annotated[tuple[int, int, int] | None, field_label(unit="none")]
    registers_per_thread: Annotated[int | None, field_label("registers", unit="count")]
    shared_memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTable:
    """Groups of kernels by descending total time."""

    rows: list[KernelGroup]
    """The first `top` groups."""
    group_count: int
    call_count: int
    total_ns: int
    """Sum of the durations of all kernels: the denominator of every share."""
    tensor_core_ns: int
    """Portion of `total_ns` on tensor cores, guessed from the names."""
    unknown_tensor_core_ns: int
    """Portion of `total_ns` in kernels whose names do not show it."""
    communication_ns: int


def build_kernel_table(
    kernels: Columns, *, is_collective: Callable[[str], bool] = is_communication, top: int = 0
) -> KernelTable:
    """Group kernels by name.

    Args:
        kernels: `NAME_COLUMNS` of the table.
        is_collective: true for the name of a kernel of a collective.
        top: group limit; 0 for all.
    """
    groups = group_rows(kernels["name"].codes)
    return _build_table(
        KernelGroup, kernels, groups, lambda row: {}, is_collective=is_collective, top=top
    )


def build_kernel_table_by_properties(
    kernels: Columns,
    operators: Columns,
    *,
    is_collective: Callable[[str], bool] = is_communication,
    top: int = 0,
) -> KernelTable:
    """Group kernels by name, operator, grid, block, registers and shared memory.

    Args:
        kernels: `NAME_COLUMNS`, `PROPERTY_COLUMNS` and `LAUNCHER_COLUMNS` of the table.
        operators: columns `id` and `name` of the table.
        is_collective: true for the name of a kernel of a collective.
        top: group limit; 0 for all.
    """
    captured: Int = kernels["captured_operator"]
    launching = np.where(captured >= 0, captured, kernels["operator"])
    launcher = find_rows(operators["id"], launching)
    names: Strings = operators["name"]
    operator = np.append(names.codes, -1)[launcher]  # row -1 is the appended one
    groups = group_rows(
        kernels["name"].codes, operator, *(kernels[column] for column in PROPERTY_COLUMNS)
    )

    def read_properties(row: int) -> dict[str, Any]:
        return {
            "operator": names.values[operator[row]] if operator[row] >= 0 else None,
            "grid": _read_triple(kernels, "grid", row),
            "block": _read_triple(kernels, "block", row),
            "registers_per_thread": none_if_negative(kernels["registers_per_thread"][row]),
            "shared_memory_bytes": none_if_negative(kernels["shared_memory_bytes"][row]),
        }

    return _build_table(
        KernelLaunches, kernels, groups, read_properties, is_collective=is_collective, top=top
    )


def _build_table(
    kind: type[KernelGroup],
    kernels: Columns,
    groups: Grouping,
    read_properties: Callable[[int], dict[str, Any]],
    *,
    is_collective: Callable[[str], bool],
    top: int,
) -> KernelTable:
    names: Strings = kernels["name"]
    duration: Int = kernels["duration_ns"]
    totals, counts = groups.sums(duration), groups.counts()
    minima, maxima = groups.minima(duration), groups.maxima(duration)
    blocks = _average_weighted(groups, kernels["blocks_per_multiprocessor"], duration)
    occupancy = _average_weighted(groups, read_occupancy(kernels), duration)
    total_ns = int(totals.sum())
    code = names.codes[groups.first]
    rows = [
        kind(
            **read_properties(int(groups.first[g])),
            name=names.values[code[g]] or "",
            calls=int(counts[g]),
            total_ns=int(totals[g]),
            mean_ns=int(totals[g]) / int(counts[g]),
            min_ns=int(minima[g]),
            max_ns=int(maxima[g]),
            share_ratio=int(totals[g]) / total_ns if total_ns else 0.0,
            mean_blocks_per_multiprocessor=none_if_nan(blocks[g]),
            mean_occupancy_percent=none_if_nan(occupancy[g]),
            tensor_cores=uses_tensor_cores(names.values[code[g]] or ""),
            precision=classify_precision(names.values[code[g]] or ""),
            communication=is_collective(names.values[code[g]] or ""),
        )
        for g in np.lexsort((code, -totals))[: top or None].tolist()
    ]
    return KernelTable(
        rows=rows,
        group_count=len(groups),
        call_count=len(duration),
        total_ns=total_ns,
        tensor_core_ns=int(duration[match_rows(names, uses_tensor_cores)].sum()),
        unknown_tensor_core_ns=int(duration[match_rows(names, hides_tensor_cores)].sum()),
        communication_ns=int(duration[match_rows(names, is_collective)].sum()),
    )


def _average_weighted(
    groups: Grouping, values: NDArray[np.float64], duration: Int
) -> NDArray[np.float64]:
    """Average over each group, weighted by duration; NaN without a value of positive duration."""
    present = ~np.isnan(values)
    weight = np.where(present, duration, 0)
    weighted_sums = groups.float_sums(np.where(present, values, 0) * weight)
    weight_sums = groups.float_sums(weight)
    return np.where(weight_sums > 0, weighted_sums / np.maximum(weight_sums, 1), np.nan)


def _read_triple(kernels: Columns, prefix: str, row: int) -> tuple[int, int, int] | None:
    x, y, z = (int(kernels[f"{prefix}_{axis}"][row]) for axis in "xyz")
    return None if x < 0 else (x, y, z)
