"""Kernels of a trace, grouped by name, by launch properties or by class of duration.

For the kernels in one group:

    total, mean, min, max   of their durations
    share                   total / sum of the durations of all kernels; simultaneous kernels
                            count separately
    mean of a property      sum(value x duration) / sum(duration), over the kernels that have the
                            property; a kernel without duration has no weight

Kernels by classes of duration: what short kernels are, and how much time they take. A kernel of a
few microseconds is hardly longer than its launch, so many of them leave a device waiting for the
host: fusion, larger batches or CUDA graphs help. Classes are half-open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.analysis import kernel_classes
from stepscope.analysis.arrays import columns
from stepscope.analysis.devices.gpu_metrics import OCCUPANCY_COLUMNS, read_occupancy
from stepscope.analysis.operators.operator_tree import find_rows

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

    name: Annotated[str, schema.field_label("kernel")]
    calls: int
    total_ns: int
    share_ratio: float | None
    mean_ns: float
    min_ns: int
    max_ns: int
    mean_blocks_per_multiprocessor: Annotated[
        float | None, schema.field_label("blocks per SM", unit="count")
    ]
    """Mean weighted by duration."""
    mean_occupancy_percent: Annotated[float | None, schema.field_label("occupancy")]
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
    grid: Annotated[tuple[int, int, int] | None, schema.field_label(unit="none")]
    block: Annotated[tuple[int, int, int] | None, schema.field_label(unit="none")]
    registers_per_thread: Annotated[int | None, schema.field_label("registers", unit="count")]
    shared_memory_bytes: int | None


class KernelTable(msgspec.Struct, frozen=True, kw_only=True):
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
    kernels: columns.Columns,
    *,
    is_collective: Callable[[str], bool] = kernel_classes.is_communication,
    top: int = 0,
) -> KernelTable:
    """Group kernels by name.

    Args:
        kernels: `NAME_COLUMNS` of the table.
        is_collective: true for the name of a kernel of a collective.
        top: group limit; 0 for all.
    """
    groups = columns.group_rows(kernels["name"].codes)
    return _build_table(
        KernelGroup, kernels, groups, lambda row: {}, is_collective=is_collective, top=top
    )


def build_kernel_table_by_properties(
    kernels: columns.Columns,
    operators: columns.Columns,
    *,
    is_collective: Callable[[str], bool] = kernel_classes.is_communication,
    top: int = 0,
) -> KernelTable:
    """Group kernels by name, operator, grid, block, registers and shared memory.

    Args:
        kernels: `NAME_COLUMNS`, `PROPERTY_COLUMNS` and `LAUNCHER_COLUMNS` of the table.
        operators: columns `id` and `name` of the table.
        is_collective: true for the name of a kernel of a collective.
        top: group limit; 0 for all.
    """
    captured: intervals.Int = kernels["captured_operator"]
    launching = np.where(captured >= 0, captured, kernels["operator"])
    launcher = find_rows(operators["id"], launching)
    names: columns.Strings = operators["name"]
    operator = np.append(names.codes, -1)[launcher]  # row -1 is the appended one
    groups = columns.group_rows(
        kernels["name"].codes, operator, *(kernels[column] for column in PROPERTY_COLUMNS)
    )

    def read_properties(row: int) -> dict[str, Any]:
        return {
            "operator": names.values[operator[row]] if operator[row] >= 0 else None,
            "grid": _read_triple(kernels, "grid", row),
            "block": _read_triple(kernels, "block", row),
            "registers_per_thread": columns.none_if_negative(kernels["registers_per_thread"][row]),
            "shared_memory_bytes": columns.none_if_negative(kernels["shared_memory_bytes"][row]),
        }

    return _build_table(
        KernelLaunches, kernels, groups, read_properties, is_collective=is_collective, top=top
    )


def _build_table(
    kind: type[KernelGroup],
    kernels: columns.Columns,
    groups: columns.Grouping,
    read_properties: Callable[[int], dict[str, Any]],
    *,
    is_collective: Callable[[str], bool],
    top: int,
) -> KernelTable:
    names: columns.Strings = kernels["name"]
    duration: intervals.Int = kernels["duration_ns"]
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
            mean_blocks_per_multiprocessor=columns.none_if_nan(blocks[g]),
            mean_occupancy_percent=columns.none_if_nan(occupancy[g]),
            tensor_cores=kernel_classes.uses_tensor_cores(names.values[code[g]] or ""),
            precision=kernel_classes.classify_precision(names.values[code[g]] or ""),
            communication=is_collective(names.values[code[g]] or ""),
        )
        for g in np.lexsort((code, -totals))[: top or None].tolist()
    ]
    return KernelTable(
        rows=rows,
        group_count=len(groups),
        call_count=len(duration),
        total_ns=total_ns,
        tensor_core_ns=int(
            duration[kernel_classes.match_rows(names, kernel_classes.uses_tensor_cores)].sum()
        ),
        unknown_tensor_core_ns=int(
            duration[kernel_classes.match_rows(names, kernel_classes.hides_tensor_cores)].sum()
        ),
        communication_ns=int(duration[kernel_classes.match_rows(names, is_collective)].sum()),
    )


def _average_weighted(
    groups: columns.Grouping, values: NDArray[np.float64], duration: intervals.Int
) -> NDArray[np.float64]:
    """Average over each group, weighted by duration; NaN without a value of positive duration."""
    present = ~np.isnan(values)
    weight = np.where(present, duration, 0)
    weighted_sums = groups.float_sums(np.where(present, values, 0) * weight)
    weight_sums = groups.float_sums(weight)
    return np.where(weight_sums > 0, weighted_sums / np.maximum(weight_sums, 1), np.nan)


def _read_triple(kernels: columns.Columns, prefix: str, row: int) -> tuple[int, int, int] | None:
    x, y, z = (int(kernels[f"{prefix}_{axis}"][row]) for axis in "xyz")
    return None if x < 0 else (x, y, z)


SHORT_NS = 10_000
"""Kernels below this are short: about the time of a launch. Also the limit of TraceLens
(https://github.com/AMD-AGI/TraceLens)."""
CLASS_EDGES_NS = (*(0, 2_000, 5_000, SHORT_NS, 20_000, 50_000), *(100_000, 1_000_000, 10_000_000))
"""Lower edges of the classes."""


class KernelDurationClass(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels whose duration is in one range."""

    from_ns: Annotated[int, schema.field_label("from")]
    to_ns: Annotated[int | None, schema.field_label("to")]
    """End of the range, exclusive; null for no end."""
    calls: int
    calls_ratio: Annotated[float | None, schema.field_label("share of launches")]
    """Share of all kernels of the trace."""
    total_ns: int
    share_ratio: float | None
    """Share of the summed durations of all kernels."""


def count_kernels_by_duration(duration_ns: intervals.Int) -> list[KernelDurationClass]:
    """Count kernels, and sum their durations, by class; no class without a kernel."""
    if not len(duration_ns):
        return []
    edges = np.array(CLASS_EDGES_NS, dtype=np.int64)
    index = np.searchsorted(edges, duration_ns, side="right") - 1
    counts = np.bincount(index, minlength=len(edges))
    totals = np.zeros(len(edges), dtype=np.int64)
    np.add.at(totals, index, duration_ns)
    total_ns = int(totals.sum())
    return [
        KernelDurationClass(
            from_ns=edge,
            to_ns=CLASS_EDGES_NS[i + 1] if i + 1 < len(CLASS_EDGES_NS) else None,
            calls=int(counts[i]),
            calls_ratio=int(counts[i]) / len(duration_ns),
            total_ns=int(totals[i]),
            share_ratio=int(totals[i]) / total_ns if total_ns else 0.0,
        )
        for i, edge in enumerate(CLASS_EDGES_NS)
    ]
