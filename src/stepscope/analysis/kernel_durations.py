"""Kernels by classes of duration: what short kernels are, and how much time they take.

A kernel of a few microseconds is hardly longer than its launch, so many of them leave a device
waiting for the host: fusion, larger batches or CUDA graphs help. Classes are half-open.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np

from stepscope.intervals import Int
from stepscope.schema import field_label

SHORT_NS = 10_000
"""Kernels below this are short: about the time of a launch. Also the limit of TraceLens
(https://github.com/AMD-AGI/TraceLens)."""
CLASS_EDGES_NS = (
    *(0, 2_000, 5_000, SHORT_NS, 20_000, 50_000),
    *(100_000, 1_000_000, 10_000_000),
)
"""Lower edges of the classes."""


class KernelDurationClass(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels whose duration is in one range."""

    from_ns: Annotated[int, field_label("from")]
    to_ns: Annotated[int | None, field_label("to")]
    """End of the range, exclusive; null for no end."""
    calls: int
    calls_ratio: Annotated[float | None, field_label("share of launches")]
    """Share of all kernels of the trace."""
    total_ns: int
    share_ratio: float | None
    """Share of the summed durations of all kernels."""


def count_kernels_by_duration(duration_ns: Int) -> list[KernelDurationClass]:
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
