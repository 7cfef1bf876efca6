"""`kernels`: what the devices computed, by kernel."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from stepscope.analysis import (
    GRAPH_COLUMNS,
    NAME_COLUMNS,
    PROPERTY_COLUMNS,
    KernelRow,
    KernelTable,
    build_graph_table,
    build_kernel_table,
    build_kernel_table_by_properties,
)
from stepscope.run import CarryOver, Run, Trace
from stepscope.views.lacking import no_device_work
from stepscope.views.options import DEFAULTS, KERNEL_GROUPS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings


class KernelGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name."""

    name: str
    calls: int
    total_ns: int
    share_ratio: float
    mean_ns: float
    min_ns: int
    max_ns: int
    mean_blocks_per_multiprocessor: float | None
    """Weighted by duration, as is the next."""
    mean_occupancy_percent: float | None
    """As the recorder estimates it."""
    tensor_cores: bool
    """By the name, as are the next two."""
    precision: str | None
    communication: bool


class KernelLaunches(KernelGroup, frozen=True, kw_only=True):
    """Kernels of one name that were launched alike."""

    operator: str | None
    """Null for work that no operator launched, such as work from before the window."""
    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    registers_per_thread: int | None
    shared_memory_bytes: int | None


class GraphReplays(msgspec.Struct, frozen=True, kw_only=True):
    """A captured graph; its kernels are also in the lists above."""

    graph: int
    replays: int
    kernel_count: int
    distinct_kernel_count: int
    total_ns: int
    share_ratio: float


class TraceKernels(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one recording."""

    rank: int | None
    trace: str
    group_count: int
    call_count: int
    total_ns: int
    """Durations of all kernels, summed."""
    tensor_core_ratio: float | None
    """Share of `total_ns` on tensor cores."""
    communication_ratio: float | None
    """Share of `total_ns` in kernels of collectives."""
    carry_over_count: int
    """Kernels launched before the window: counted here, or left out everywhere else."""
    carry_over_ns: int
    kernels: list[KernelGroup]
    launches: list[KernelLaunches]
    """Instead of `kernels`, when grouped by properties."""
    graphs: list[GraphReplays]
    missing: str | None
    quality: list[QualityNote]


class KernelsView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    share_of: str
    by: str
    carry_over: CarryOver
    traces: list[TraceKernels]
    missing: str | None
    quality: list[QualityNote]


def kernels(run: Run, options: ViewOptions = DEFAULTS) -> KernelsView:
    """What the devices computed, by kernel."""
    traces = chosen_traces(run, options)
    return KernelsView(
        share_of=(
            "the durations of all kernels of the recording, summed; kernels that ran at the "
            "same time count each"
        ),
        by=options.by or KERNEL_GROUPS[0],
        carry_over=options.carry_over,
        traces=[_trace(trace, options) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(trace: Trace, options: ViewOptions) -> TraceKernels:
    kept = "carry_over = 0" if options.carry_over == "drop" else ""
    carried = trace.columns("kernels", ("duration_ns",), condition="carry_over = 1")["duration_ns"]
    if options.by == "properties":
        columns = trace.columns(
            "kernels",
            (*NAME_COLUMNS, *PROPERTY_COLUMNS, "operator", "captured_operator"),
            condition=kept,
        )
        captured = columns.pop("captured_operator")
        columns["operator"] = np.where(captured >= 0, captured, columns["operator"])
        names = trace.columns("operators", ("id", "name"))
        found = build_kernel_table_by_properties(columns, names, top=options.top)
    else:
        found = build_kernel_table(
            trace.columns("kernels", NAME_COLUMNS, condition=kept), top=options.top
        )
    # Recorders write 0 for a kernel that was launched by itself.
    replayed = " AND ".join(part for part in (kept, "graph > 0") if part)
    graphs = build_graph_table(
        trace.columns("kernels", GRAPH_COLUMNS, condition=replayed), found.total_ns
    )
    return TraceKernels(
        rank=trace.rank,
        trace=trace.name,
        group_count=found.group_count,
        call_count=found.call_count,
        total_ns=found.total_ns,
        tensor_core_ratio=_share(found.tensor_core_ns, found),
        communication_ratio=_share(found.communication_ns, found),
        carry_over_count=len(carried),
        carry_over_ns=int(carried.sum()),
        kernels=[KernelGroup(**_plain(row)) for row in found.rows if row.properties is None],
        launches=[
            KernelLaunches(**_plain(row), **asdict(row.properties))
            for row in found.rows
            if row.properties is not None
        ],
        graphs=[GraphReplays(**asdict(row)) for row in graphs],
        missing=None if found.call_count else no_device_work(trace),
        quality=quality_notes(trace, "device"),
    )


def _plain(row: KernelRow) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if name != "properties"}


def _share(part_ns: int, found: KernelTable) -> float | None:
    return part_ns / found.total_ns if found.total_ns else None
