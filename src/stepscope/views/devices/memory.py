"""`memory`: memory of each device over time, and its holders and purposes at the peak."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import msgspec

from stepscope import analysis, cores, schema
from stepscope.quantities import duration, memory, percent
from stepscope.run import MemoryTimeline, Run, Trace, read_memory_timelines
from stepscope.views import trace_data
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions, shorten_name

MAX_CURVE_POINTS = 2000
_EVENT_COLUMNS = (*analysis.CURVE_COLUMNS, "address", "operator")
NO_MEMORY = "the trace has no allocations"
NO_TOTALS = (
    "the trace has no totals: the curve is the change since the first event, and memory allocated "
    "before is unknown"
)
NO_ADDRESSES = (
    "the trace has no addresses, so releases cannot be paired with allocations: there are no "
    "blocks and no holders at the peak"
)


class DeviceMemoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device."""

    device: str
    event_count: int
    absolute: bool
    """False if the curve is only the change since its start."""
    start_bytes: Annotated[int, schema.field_label("at the start")]
    """Memory allocated before the first event."""
    peak_bytes: Annotated[int, schema.field_label("peak allocated")]
    peak_after_ns: Annotated[int, schema.field_label("time of the peak")]
    end_bytes: Annotated[int, schema.field_label("at the end")]
    peak_reserved_bytes: int | None
    curve_after_ns: Annotated[list[int], schema.field_label("times of the curves")]
    """Times after the start of the trace. The curve is a step function: the values of the next two
    lists hold until the next time. It has every peak, but not every event."""
    allocated_curve_bytes: Annotated[list[int], schema.field_label("allocated over time")]
    reserved_curve_bytes: Annotated[list[int] | None, schema.field_label("reserved over time")]
    """Memory that the allocator reserves on the device; null on the host."""
    peak: analysis.MemoryPeak | None
    operator_count: int
    outside_count: Annotated[int, schema.field_label("events outside of operators")]
    """Events outside every operator."""
    outside_size_increase_bytes: Annotated[int, schema.field_label("increase outside of operators")]
    operators: list[analysis.OperatorMemory]
    block_count: int
    blocks: list[analysis.MemoryBlockRow]
    """Largest blocks."""
    notes: list[str]


class TraceMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one trace."""

    rank: int | None
    trace: str
    sentence: str
    """Peak of the device with most memory, and what holds most of it; empty without events."""
    devices: list[DeviceMemoryView]
    missing: str | None
    quality: list[trace_data.QualityNote]


class MemoryTimelineView(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by category, from a file that `export_memory_timeline` of torch.profiler wrote.

    It is of one device, which the file does not name.
    """

    rank: int | None
    name: str
    during: Annotated[str | None, schema.field_label("during trace")]
    """Name of the trace that was recorded at the same time."""
    change_count: int
    preexisting_bytes: Annotated[int | None, schema.field_label("allocated before")]
    """Memory from before the profile that was used in it; null if the file does not tell it."""
    peak_bytes: int
    peak_after_ns: Annotated[int, schema.field_label("time of the peak")]
    """After the start of `during`, else after the first change of the file."""
    end_bytes: Annotated[int, schema.field_label("at the end")]
    share_of: str
    categories: list[analysis.CategoryMemory]
    """Most at the peak first."""
    curve_after_ns: Annotated[list[int], schema.field_label("times of the curves")]
    """Times of the curves of the categories, counted like that of the peak. A value holds until the
    next time."""
    curves: list[analysis.CategoryCurve]


class MemoryView(Ranged, frozen=True, kw_only=True):
    """Payload of `memory`."""

    traces: list[TraceMemory]
    timelines: Annotated[list[MemoryTimelineView], schema.field_label("memory by category")]
    missing: str | None
    quality: list[trace_data.QualityNote]


def show_memory(run: Run, options: ViewOptions = DEFAULTS) -> MemoryView:
    """Show the memory of each device over time and at the peak."""
    traces = trace_data.select_traces(run, options)
    timelines = read_memory_timelines(run)
    names = {trace.name for trace in traces}
    during = [_find_trace(timeline, run.traces) for timeline in timelines]
    return MemoryView(
        traces=[_show_trace(trace, options) for trace in traces],
        timelines=[
            _show_timeline(timeline, trace, options)
            for timeline, trace in zip(timelines, during, strict=True)
            if trace is None or trace.name in names
        ],
        missing=None if timelines else trace_data.explain_no_traces(run, traces),
        quality=trace_data.note_run_quality(run, traces),
    )


def _find_trace(timeline: MemoryTimeline, traces: list[Trace]) -> Trace | None:
    """Find the trace that was recorded with a memory timeline; None if several could be it."""
    matches = [
        trace
        for trace in traces
        if timeline.is_during(trace)
        and (timeline.rank is None or trace.rank is None or timeline.rank == trace.rank)
    ]
    return matches[0] if len(matches) == 1 else None


def _show_timeline(
    timeline: MemoryTimeline, trace: Trace | None, options: ViewOptions
) -> MemoryTimelineView:
    start_ns = timeline.start_ns if trace is None else trace.start_ns
    levels = timeline.levels
    total = levels.total_bytes
    peak = int(total.argmax())
    curve = analysis.downsample_levels(levels, MAX_CURVE_POINTS, bucket_ns=options.bucket_ns)
    return MemoryTimelineView(
        rank=timeline.rank,
        name=timeline.name,
        during=trace.name if trace is not None else None,
        change_count=timeline.change_count,
        preexisting_bytes=timeline.preexisting_bytes,
        peak_bytes=int(total[peak]),
        peak_after_ns=int(levels.t_ns[peak]) - start_ns,
        end_bytes=int(total[-1]),
        share_of="memory of all categories at the peak",
        categories=analysis.summarize_categories(levels),
        curve_after_ns=(curve.t_ns - start_ns).tolist(),
        curves=[
            analysis.CategoryCurve(category=category, curve_bytes=level)
            for category, level in zip(curve.categories, curve.level_bytes.T.tolist(), strict=True)
        ],
    )


def _show_trace(trace: Trace, options: ViewOptions) -> TraceMemory:
    events = trace.columns("memory_events", _EVENT_COLUMNS)
    devices = analysis.split_memory_by_device(events)
    views = []
    if devices:
        context = _TraceContext.read(trace, events, options)
        with ThreadPoolExecutor(
            cores.available_cores()
        ) as pool:  # numpy releases the interpreter lock
            views = list(pool.map(context.show_device, devices))
    return TraceMemory(
        rank=trace.rank,
        trace=trace.name,
        sentence=_write_sentence(views),
        devices=views,
        missing=None if views else trace_data.explain_missing(NO_MEMORY, "memory", trace),
        quality=trace_data.note_trace_quality(trace, "operators"),
    )


_PURPOSES = {
    "before_recording": "was allocated before the trace",
    "activations": "is activations",
    "gradients": "is gradients",
    "optimizer_state": "is state of the optimizer",
    "temporary": "is temporary",
    "loaded_batches": "is loaded batches",
    "not_told": "has no known purpose",
}


def _write_sentence(devices: list[DeviceMemoryView]) -> str:
    """Write the peak of the device with most memory; the host counts where there is no other."""
    if not devices:
        return ""
    device = max(devices, key=lambda device: (device.device != "CPU", device.peak_bytes))
    size = f"{memory(device.peak_bytes)}{'' if device.absolute else ' above its start'}"
    after = f"{duration(device.peak_after_ns)} after the start of the trace"
    peak = f"Memory of {device.device} peaks at {size}, {after}"
    purposes = [] if device.peak is None else device.peak.purposes
    holders = [] if device.peak is None else device.peak.holders
    if purposes:
        first = max(purposes, key=lambda purpose: purpose.held_bytes)
        return f"{peak}: {percent(first.held_ratio)} of it {_PURPOSES[first.purpose]}."
    if holders and holders[0].operator is not None:
        share = percent(holders[0].held_ratio)
        return f"{peak}: {shorten_name(holders[0].operator)} allocated {share} of it."
    return f"{peak}."


class _TraceContext(msgspec.Struct, frozen=True, kw_only=True):
    """Data shared by the views of all devices of a trace."""

    start_ns: int
    events: dict[str, Any]
    tree: analysis.OperatorTree
    backward: Any
    passes: analysis.Passes | None
    options: ViewOptions

    @classmethod
    def read(cls, trace: Trace, events: dict[str, Any], options: ViewOptions) -> _TraceContext:
        columns = trace.columns("operators", (*analysis.TREE_COLUMNS, "forward_thread"))
        tree = analysis.build_operator_tree(columns)
        backward = analysis.is_backward(tree, columns["forward_thread"])
        ranges = trace.columns(
            "annotations", ("name", "start_ns", "duration_ns"), condition="on_device = 0"
        )
        return cls(
            start_ns=trace.start_ns,
            events=events,
            tree=tree,
            backward=backward,
            passes=analysis.find_passes(tree, columns, ranges) if backward.any() else None,
            options=options,
        )

    def show_device(self, device: analysis.DeviceMemory) -> DeviceMemoryView:
        """Show the memory of one device."""
        curve = analysis.downsample_curve(
            device, MAX_CURVE_POINTS, bucket_ns=self.options.bucket_ns
        )
        reserved, peak_reserved = curve.reserved_bytes, device.reserved_bytes
        table = analysis.summarize_memory_operators(
            device, self.events, self.tree, containing=self.options.name or ""
        )
        addressed = bool((self.events["address"][device.rows] >= 0).any())
        peak, blocks, count = self._explain_peak(device) if addressed else (None, [], 0)
        notes = ((device.absolute, NO_TOTALS), (addressed, NO_ADDRESSES))
        return DeviceMemoryView(
            device=device.name,
            event_count=len(device.t_ns),
            absolute=device.absolute,
            start_bytes=device.start_bytes,
            peak_bytes=int(device.allocated_bytes[device.peak_index]),
            peak_after_ns=int(device.t_ns[device.peak_index]) - self.start_ns,
            end_bytes=int(device.allocated_bytes[-1]),
            peak_reserved_bytes=int(peak_reserved.max()) if peak_reserved is not None else None,
            curve_after_ns=(curve.t_ns - self.start_ns).tolist(),
            allocated_curve_bytes=curve.allocated_bytes.tolist(),
            reserved_curve_bytes=reserved.tolist() if reserved is not None else None,
            peak=peak,
            operator_count=table.operator_count,
            outside_count=table.outside_count,
            outside_size_increase_bytes=table.outside_size_increase_bytes,
            operators=table.rows[: self.options.top or None],
            block_count=count,
            blocks=blocks,
            notes=[sentence for is_present, sentence in notes if not is_present],
        )

    def _explain_peak(
        self, device: analysis.DeviceMemory
    ) -> tuple[analysis.MemoryPeak, list[analysis.MemoryBlockRow], int]:
        blocks = analysis.pair_blocks(device, self.events["address"])
        operator = self.events["operator"]
        peak = analysis.explain_peak(
            device,
            blocks,
            operator,
            self.tree,
            passes=self.passes,
            backward=self.backward,
            top=self.options.top,
            start_ns=self.start_ns,
        )
        operator_rows = self.tree.find_rows(operator[device.rows[blocks.events]])
        rows, count = analysis.list_largest_blocks(
            device,
            blocks,
            analysis.label_operators(self.tree, operator_rows),
            containing=self.options.name or "",
            top=self.options.top,
            start_ns=self.start_ns,
        )
        return peak, rows, count
