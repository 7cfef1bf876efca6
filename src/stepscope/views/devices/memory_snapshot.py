"""`memory-snapshot`: owners of device memory at the peak and where an allocation failed."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope import analysis, schema
from stepscope.quantities import memory, percent
from stepscope.run import MemorySnapshot, Run, read_memory_snapshots
from stepscope.views.options import DEFAULTS, ViewOptions

MAX_CURVE_POINTS = 2000
MAX_FAILURES = 8
"""Failed allocations, the latest, with their holders."""
NO_SNAPSHOT = (
    "no memory snapshot: record the job with `stepscope run --memory-history 100000 -- CMD`, which "
    "writes one when an allocation fails, or import a file of torch.cuda.memory._dump_snapshot"
)
NO_SNAPSHOT_IN_FILES = (
    "the imported files hold no memory snapshot, as torch.cuda.memory._dump_snapshot writes it"
)
NO_HISTORY = (
    "the snapshot has no history: call torch.cuda.memory._record_memory_history() before memory "
    "is used"
)
INCONSISTENT = "the history and the blocks do not fit together: levels before the end are uncertain"
EXPANDABLE = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


class AllocatedMoment(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at one time of the history."""

    after_ns: int | None
    """Time after the run's origin; null if the history has no times."""
    allocated_bytes: int
    """As requested, without rounding."""
    reserved_bytes: int
    share_of: str
    holders: Annotated[list[analysis.SnapshotHolder], schema.field_label("owners")]
    """Lines of the job, the largest first."""


class FailedAllocationRow(msgspec.Struct, frozen=True, kw_only=True):
    """Allocation that failed because memory was full."""

    requested_bytes: int
    device_free_bytes: Annotated[int | None, schema.field_label("free on the device")]
    function: Annotated[str | None, schema.field_label("requested by")]
    file: str | None
    line: int | None
    moment: AllocatedMoment


class SnapshotMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of one device in a snapshot."""

    rank: int | None
    name: str
    device: int
    settings: str | None
    action_count: int
    """Actions in the history."""
    block_count: int
    lines: list[str]
    """Peak, failures and fragmentation, one sentence each."""
    peak: AllocatedMoment
    end: AllocatedMoment
    failures: list[FailedAllocationRow]
    """The latest first."""
    fragmentation: Annotated[analysis.Fragmentation, schema.field_label("reserved memory")]
    curve_after_ns: Annotated[list[int] | None, schema.field_label("times of the curves")]
    """Times after the run's origin; null if the history has none."""
    allocated_curve_bytes: Annotated[list[int], schema.field_label("allocated over time")]
    reserved_curve_bytes: Annotated[list[int], schema.field_label("reserved over time")]
    notes: list[str]


class MemorySnapshotView(schema.Payload, frozen=True, kw_only=True):
    """Payload of `memory-snapshot`."""

    snapshots: list[SnapshotMemory]
    missing: str | None


def show_memory_snapshots(run: Run, options: ViewOptions = DEFAULTS) -> MemorySnapshotView:
    """Show who holds memory at the peak and at failed allocations, and the fragmentation."""
    snapshots = [
        _show_snapshot(run, snapshot, options)
        for snapshot in read_memory_snapshots(run)
        if options.rank is None or snapshot.rank in (None, options.rank)
    ]
    missing = None if snapshots else explain_no_snapshots(run)
    return MemorySnapshotView(snapshots=snapshots, missing=missing)


def explain_no_snapshots(run: Run) -> str:
    """Explain why a run has no memory snapshot."""
    return NO_SNAPSHOT_IN_FILES if run.is_imported else NO_SNAPSHOT


def _show_snapshot(run: Run, snapshot: MemorySnapshot, options: ViewOptions) -> SnapshotMemory:
    replay = analysis.AllocatorReplay(snapshot.memory)
    fragmentation = analysis.measure_fragmentation(snapshot.memory)
    failures = replay.list_failures(options.top)
    action_count = len(snapshot.memory.history["t_ns"])
    peak = replay.find_peak(options.top)
    curve = replay.downsample(MAX_CURVE_POINTS, bucket_ns=options.bucket_ns)
    notes = ((action_count > 0, NO_HISTORY), (replay.is_consistent, INCONSISTENT))
    return SnapshotMemory(
        rank=snapshot.rank,
        name=snapshot.name,
        device=snapshot.device,
        settings=snapshot.settings,
        action_count=action_count,
        block_count=len(snapshot.memory.blocks["size_bytes"]),
        lines=_describe(snapshot, peak, failures, fragmentation),
        peak=_show_moment(run, peak),
        end=_show_moment(run, replay.explain(action_count - 1, options.top)),
        failures=[
            FailedAllocationRow(
                requested_bytes=failure.requested_bytes,
                device_free_bytes=failure.device_free_bytes,
                function=failure.function,
                file=failure.file,
                line=failure.line,
                moment=_show_moment(run, failure.moment),
            )
            for failure in failures[:MAX_FAILURES]
        ],
        fragmentation=fragmentation,
        curve_after_ns=None if curve.t_ns is None else (curve.t_ns - run.clock.origin_ns).tolist(),
        allocated_curve_bytes=curve.allocated_bytes.tolist(),
        reserved_curve_bytes=curve.reserved_bytes.tolist(),
        notes=[sentence for is_present, sentence in notes if not is_present],
    )


def _show_moment(run: Run, moment: analysis.AllocatorMoment) -> AllocatedMoment:
    return AllocatedMoment(
        after_ns=None if moment.t_ns is None else moment.t_ns - run.clock.origin_ns,
        allocated_bytes=moment.allocated_bytes,
        reserved_bytes=moment.reserved_bytes,
        share_of="memory that was allocated then",
        holders=moment.holders,
    )


def _describe(
    snapshot: MemorySnapshot,
    peak: analysis.AllocatorMoment,
    failures: list[analysis.FailedAllocation],
    fragmentation: analysis.Fragmentation,
) -> list[str]:
    lines = [f"Peak: {memory(peak.allocated_bytes)} allocated, {_name_holder(peak)}."]
    if failures:
        lines.append(_describe_failure(failures[0]))
    if fragmentation.free_bytes:
        lines.append(
            f"Reserved: {memory(fragmentation.reserved_bytes)}, of which "
            f"{memory(fragmentation.free_bytes)} are free; the largest free block has "
            f"{memory(fragmentation.largest_free_bytes)}."
        )
    if failures and failures[0].is_last and not snapshot.is_expandable:
        requested, largest = failures[0].requested_bytes, fragmentation.largest_free_bytes
        free = fragmentation.free_bytes + (failures[0].device_free_bytes or 0)
        if largest < requested <= free:
            lines.append(
                f"Fragmentation: {memory(free)} are free, but no free block has the size of the "
                f"request. Try {EXPANDABLE}."
            )
    return lines


def _describe_failure(failure: analysis.FailedAllocation) -> str:
    caller = f" by {failure.function}" if failure.function else ""
    if failure.function and failure.line:
        caller += f" ({failure.file}:{failure.line})"
    free = failure.device_free_bytes
    on_device = "" if free is None else f", {memory(free)} free on the device"
    moment = failure.moment
    return (
        f"Out of memory: {memory(failure.requested_bytes)} requested{caller}, "
        f"{memory(moment.allocated_bytes)} allocated, {memory(moment.reserved_bytes)} reserved"
        f"{on_device}; {_name_holder(moment)}."
    )


def _name_holder(moment: analysis.AllocatorMoment) -> str:
    holder = moment.holders[0] if moment.holders else None
    if holder is None or holder.function is None:
        return "most of it by unknown code"
    line = f" ({holder.file}:{holder.line})" if holder.line else ""
    return f"{percent(holder.held_ratio or 0)} of it by {holder.function}{line}"
