"""Memory of one device by category, from a memory timeline of torch's memory profiler.

    level of a category at t   sum of its changes up to t, all changes at t included
    total at t                 sum of the levels of all categories
    peak                       the maximum of the total, at the first time it is reached
    share                      level of a category at the peak / total at the peak

Only memory that the profiler saw counts: memory from before the profile as far as it was used in
it, not what the allocator reserves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.columns import Columns
from stepscope.analysis.memory_curve import find_extremes
from stepscope.intervals import Int
from stepscope.schema import MEMORY_CATEGORY_NAMES, field_label

CATEGORY_COLUMNS = ("t_ns", "category", "size_bytes")
"""Columns of `memory_categories` that `measure_category_levels` reads."""


class CategoryMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one category."""

    category: str
    at_peak_bytes: Annotated[int, field_label("at the peak")]
    """When all categories together reach their peak."""
    share_ratio: float | None
    largest_bytes: Annotated[int, field_label("own peak")]
    end_bytes: Annotated[int, field_label("at the end")]


class CategoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one category over time."""

    category: str
    curve_bytes: Annotated[list[int], field_label("memory over time", display="curve")]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CategoryLevels:
    """Memory by category after the changes of each time."""

    t_ns: Int
    """Distinct times, ascending."""
    categories: tuple[str, ...]
    """Categories with a change."""
    level_bytes: NDArray[np.int64]
    """Shape (times, categories)."""

    @property
    def total_bytes(self) -> Int:
        """Memory of all categories at each time."""
        total: Int = self.level_bytes.sum(axis=1)
        return total

    def take(self, rows: Int | NDArray[np.bool_]) -> CategoryLevels:
        """Select times by a mask or an index array."""
        return CategoryLevels(
            t_ns=self.t_ns[rows],
            categories=self.categories,
            level_bytes=self.level_bytes[rows],
        )


def measure_category_levels(changes: Columns) -> CategoryLevels:
    """Sum the changes of one timeline.

    Args:
        changes: `CATEGORY_COLUMNS`, at least one row.
    """
    order = np.argsort(changes["t_ns"], kind="stable")
    t_ns, sizes = changes["t_ns"][order], changes["size_bytes"][order]
    names, codes = changes["category"].values, changes["category"].codes[order]
    present = {names[code]: code for code in np.unique(codes).tolist()}
    categories = tuple(name for name in MEMORY_CATEGORY_NAMES if name in present)
    last = np.append(np.flatnonzero(np.diff(t_ns)), len(t_ns) - 1)
    level = np.empty((len(last), len(categories)), dtype=np.int64)
    for index, category in enumerate(categories):
        level[:, index] = np.cumsum(np.where(codes == present[category], sizes, 0))[last]
    return CategoryLevels(t_ns=t_ns[last], categories=categories, level_bytes=level)


def summarize_categories(levels: CategoryLevels) -> list[CategoryMemory]:
    """Summarize the memory of each category, most at the peak first."""
    total = levels.total_bytes
    peak = int(total.argmax())
    rows = [
        CategoryMemory(
            category=category,
            at_peak_bytes=int(level[peak]),
            share_ratio=int(level[peak]) / int(total[peak]) if total[peak] > 0 else None,
            largest_bytes=int(level.max()),
            end_bytes=int(level[-1]),
        )
        for category, level in zip(levels.categories, levels.level_bytes.T, strict=True)
    ]
    return sorted(rows, key=lambda row: -row.at_peak_bytes)


def downsample_levels(
    levels: CategoryLevels, points: int, *, bucket_ns: int | None = None
) -> CategoryLevels:
    """Downsample levels, keeping the extremes of the total in equal time buckets.

    Args:
        levels: at least one time.
        points, bucket_ns: see `downsample_curve`.
    """
    if not bucket_ns and len(levels.t_ns) <= points:
        return levels
    total = levels.total_bytes
    return levels.take(find_extremes(levels.t_ns, [-total, total], points, bucket_ns=bucket_ns))
