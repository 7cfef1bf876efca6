"""`memory`: how much memory each device used, what for, and who held it at the peak."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

import msgspec

from stepscope.analysis import (
    CURVE_COLUMNS,
    NO_BACKWARD,
    TREE_COLUMNS,
    DeviceMemory,
    MemoryPeak,
    OperatorTree,
    Passes,
    build_operator_tree,
    downsample_curve,
    explain_peak,
    find_passes,
    is_backward,
    label_operators,
    list_largest_blocks,
    pair_blocks,
    split_memory_by_device,
    summarize_memory_operators,
)
from stepscope.run import Run, Trace
from stepscope.store import available_cores
from stepscope.views.lacking import how_to_get
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across, quality_notes
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import chosen_traces, missing_recordings

CURVE_POINTS = 2000
_EVENT_COLUMNS = (*CURVE_COLUMNS, "address", "operator")
_NO_MEMORY = "no allocation is in this recording"
_NO_TOTALS = (
    "the recording does not say how much was allocated in total: the curve is the change since "
    "its first event, and what was there before is unknown"
)
_NO_ADDRESSES = (
    "the recording does not say which release belongs to which allocation: blocks and the peak "
    "cannot be explained"
)


class HolderView(msgspec.Struct, frozen=True, kw_only=True):
    """What one operator allocated of what is held at the peak."""

    operator: str | None
    """`caller (operator)` where the operator only allocates for others; null outside all."""
    block_count: int
    held_bytes: int
    held_ratio: float | None
    """Share of the peak."""


class PurposeView(msgspec.Struct, frozen=True, kw_only=True):
    """What the memory held at the peak is for."""

    purpose: str
    held_bytes: int
    held_ratio: float
    """Share of the peak."""


class MemoryPeakView(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds the memory at the peak."""

    share_of: str
    after_ns: int
    allocated_bytes: int
    before_bytes: int | None
    """Held since before the recording; null when the recording has no totals."""
    block_count: int
    """Blocks allocated in the recording and held at the peak."""
    holder_count: int
    holders: list[HolderView]
    purposes: list[PurposeView]
    missing: str | None


class OperatorMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of one operator allocated, with everything below them unless `self`."""

    name: str
    calls: int
    self_size_increase_bytes: int
    size_increase_bytes: int
    self_allocation_count: int
    allocation_count: int
    self_allocation_bytes: int
    allocation_bytes: int


class BlockView(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation with its release; null for what happened outside the recording."""

    operator: str | None
    size_bytes: int
    allocated_after_ns: int | None
    released_after_ns: int | None
    lifetime_ns: int | None


class DeviceMemoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device."""

    device: str
    event_count: int
    absolute: bool
    """False when the curve is only the change since its start."""
    start_bytes: int
    """Allocated before the first event."""
    peak_bytes: int
    peak_after_ns: int
    end_bytes: int
    peak_reserved_bytes: int | None
    curve_after_ns: list[int]
    """Since the start of the recording. The curve is a step function: what the next two lists say
    holds until the next time. It has every peak, but not every event."""
    allocated_curve_bytes: list[int]
    reserved_curve_bytes: list[int] | None
    """What the allocator holds of the device; null on the host."""
    peak: MemoryPeakView | None
    operator_count: int
    outside_count: int
    """Events outside every operator."""
    outside_size_increase_bytes: int
    operators: list[OperatorMemory]
    block_count: int
    blocks: list[BlockView]
    """The largest."""
    notes: list[str]


class TraceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one recording."""

    rank: int | None
    trace: str
    devices: list[DeviceMemoryView]
    missing: str | None
    quality: list[QualityNote]


class MemoryView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    traces: list[TraceMemory]
    missing: str | None
    quality: list[QualityNote]


def memory(run: Run, options: ViewOptions = DEFAULTS) -> MemoryView:
    """How much memory each device used, what for, and who held it at the peak."""
    traces = chosen_traces(run, options)
    return MemoryView(
        traces=[_trace(trace, options) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _trace(trace: Trace, options: ViewOptions) -> TraceMemory:
    events = trace.columns("memory_events", _EVENT_COLUMNS)
    devices = split_memory_by_device(events)
    views = []
    if devices:
        maker = _Maker.of(trace, events, options)
        with ThreadPoolExecutor(available_cores()) as pool:  # numpy lets go of the interpreter
            views = list(pool.map(maker.device, devices))
    return TraceMemory(
        rank=trace.rank,
        trace=trace.name,
        devices=views,
        missing=None if views else f"{_NO_MEMORY}: {how_to_get('memory', trace)}",
        quality=quality_notes(trace, "operators"),
    )


class _Maker(msgspec.Struct, frozen=True, kw_only=True):
    """What the views of all devices of a recording have in common."""

    start_ns: int
    events: dict[str, Any]
    tree: OperatorTree
    backward: Any
    passes: Passes | None
    options: ViewOptions

    @classmethod
    def of(cls, trace: Trace, events: dict[str, Any], options: ViewOptions) -> _Maker:
        columns = trace.columns("operators", (*TREE_COLUMNS, "start_ns", "forward_thread"))
        tree = build_operator_tree(columns)
        backward = is_backward(tree, columns["forward_thread"])
        ranges = trace.columns(
            "annotations", ("name", "start_ns", "duration_ns"), condition="on_device = 0"
        )
        return cls(
            start_ns=trace.start_ns,
            events=events,
            tree=tree,
            backward=backward,
            passes=find_passes(tree, columns, ranges) if backward.any() else None,
            options=options,
        )

    def device(self, device: DeviceMemory) -> DeviceMemoryView:
        """The view of one device."""
        curve = downsample_curve(device, CURVE_POINTS, bucket_ns=self.options.bucket_ns)
        reserved = curve.reserved_bytes
        named = self.options.name or ""
        found = summarize_memory_operators(device, self.events, self.tree, containing=named)
        addressed = bool((self.events["address"][device.rows] >= 0).any())
        peak, blocks, count = self._explained(device) if addressed else (None, [], 0)
        told = ((device.absolute, _NO_TOTALS), (addressed, _NO_ADDRESSES))
        return DeviceMemoryView(
            device=device.name,
            event_count=len(device.t_ns),
            absolute=device.absolute,
            start_bytes=device.start_bytes,
            peak_bytes=int(device.allocated_bytes[device.peak_index]),
            peak_after_ns=int(device.t_ns[device.peak_index]) - self.start_ns,
            end_bytes=int(device.allocated_bytes[-1]),
            peak_reserved_bytes=(
                int(device.reserved_bytes.max()) if device.reserved_bytes is not None else None
            ),
            curve_after_ns=(curve.t_ns - self.start_ns).tolist(),
            allocated_curve_bytes=curve.allocated_bytes.tolist(),
            reserved_curve_bytes=reserved.tolist() if reserved is not None else None,
            peak=peak,
            operator_count=found.operator_count,
            outside_count=found.outside_count,
            outside_size_increase_bytes=found.outside_size_increase_bytes,
            operators=[
                OperatorMemory(**asdict(row)) for row in found.rows[: self.options.top or None]
            ],
            block_count=count,
            blocks=blocks,
            notes=[sentence for present, sentence in told if not present],
        )

    def _explained(self, device: DeviceMemory) -> tuple[MemoryPeakView, list[BlockView], int]:
        blocks = pair_blocks(device, self.events["address"])
        operator = self.events["operator"]
        peak = explain_peak(
            device,
            blocks,
            operator,
            self.tree,
            passes=self.passes,
            backward=self.backward,
            top=self.options.top,
        )
        at = self.tree.find_rows(operator[device.rows[blocks.events]])
        rows, count = list_largest_blocks(
            device,
            blocks,
            label_operators(self.tree, at),
            containing=self.options.name or "",
            top=self.options.top,
        )
        views = [
            BlockView(
                operator=row.operator,
                size_bytes=row.size_bytes,
                allocated_after_ns=self._after(row.allocated_ns),
                released_after_ns=self._after(row.released_ns),
                lifetime_ns=row.lifetime_ns,
            )
            for row in rows
        ]
        return _peak(peak, self.start_ns), views, count

    def _after(self, t_ns: int | None) -> int | None:
        return None if t_ns is None else t_ns - self.start_ns


def _peak(peak: MemoryPeak, start_ns: int) -> MemoryPeakView:
    whole = peak.allocated_bytes if peak.before_bytes is not None else 0
    return MemoryPeakView(
        share_of="the memory allocated at the peak",
        after_ns=peak.t_ns - start_ns,
        allocated_bytes=peak.allocated_bytes,
        before_bytes=peak.before_bytes,
        block_count=peak.block_count,
        holder_count=peak.holder_count,
        holders=[
            HolderView(**asdict(each), held_ratio=each.held_bytes / whole if whole else None)
            for each in peak.holders
        ],
        purposes=[
            PurposeView(purpose=name, held_bytes=held, held_ratio=held / whole if whole else 0.0)
            for name, held in (peak.purposes or {}).items()
        ],
        missing=None if peak.purposes is not None else NO_BACKWARD,
    )
