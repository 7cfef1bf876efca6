"""`dashboard`: what the machines and the devices did, in pictures for a first look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from stepscope.analysis import (
    ACTIVITIES,
    build_histogram,
    classify_precision,
    is_communication,
    is_synchronization,
    make_duration_edges,
    measure_gpu_time_by_device,
    nan_to_none,
    parse_copy_direction,
    uses_tensor_cores,
)
from stepscope.run import (
    RecordedWork,
    Run,
    Trace,
    aggregate_samples,
    choose_bins,
    recorded_work,
    rows_in,
)
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across
from stepscope.views.ranges import Ranged
from stepscope.views.trace_choice import missing_recordings

PIECES = 300
TOP = 15
BUSY = {"gpu_busy_ratio": "GPUs", "cpu_busy_ratio": "nodes"}
BY_SAMPLES = "the sampled time: mean over {} and samples"
BY_RECORDINGS = "the time of the devices in recordings, each from its first work to its last"
NO_GPU_SAMPLES = "no GPU was sampled: stepscope run samples those that the driver's library knows"
NO_CPU_SAMPLES = "no machine was sampled: run the job with `stepscope run`"
NO_STEPS = "no complete training step was recorded"
UNKNOWN = "other"


class ActiveShare(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the time something ran; the rest of it was idle."""

    active_ratio: float
    share_of: str


class Utilisation(msgspec.Struct, frozen=True, kw_only=True):
    """One node over time, as means of bins of time; null where nothing was sampled."""

    node: str
    gpu_busy_ratio: list[float | None]
    """Mean over its GPUs."""
    cpu_busy_ratio: list[float | None]


class UtilisationOverTime(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes on one axis of time."""

    start_after_ns: int
    """Start of the first piece, after the run's origin."""
    piece_ns: int
    nodes: list[Utilisation]


class StepDurations(msgspec.Struct, frozen=True, kw_only=True):
    """How often steps took how long."""

    source: Literal["watched", "recorded"]
    """The job's own measured steps of all ranks, or those in recordings."""
    edges_ns: list[float]
    """One more than there are counts."""
    counts: list[int]
    above_count: int
    """Longer than the last edge, which is the median plus two standard deviations."""
    count: int
    mean_ns: float
    p50_ns: float
    p95_ns: float


class KernelTime(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name, of all recordings."""

    name: str
    launch_count: int
    total_ns: int
    share_ratio: float
    """Of the durations of all kernels."""
    precision: str | None
    """By the name, as the next two."""
    tensor_cores: bool
    communication: bool


class TimeShare(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a pie."""

    name: str
    count: int
    total_ns: int
    share_ratio: float


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that sum to the whole."""

    share_of: str
    parts: list[TimeShare]
    """The largest first."""


class Dashboard(Ranged, frozen=True, kw_only=True):
    """The payload."""

    gpu_active: ActiveShare | None
    """Of the job's samples, or else of recordings."""
    cpu_active: ActiveShare | None
    utilisation: UtilisationOverTime | None
    step_durations: StepDurations | None
    kernel_count: int
    """Distinct names."""
    launch_count: int
    kernels_by_time: list[KernelTime]
    """The first fifteen, as the next; `kernels` has them all."""
    kernels_by_launches: list[KernelTime]
    precision: Breakdown | None
    activity: Breakdown | None
    memory_operations: Breakdown | None
    missing_parts: dict[str, str]
    """By field that is empty: why, and what brings it."""
    quality: list[QualityNote]


def dashboard(run: Run, _options: ViewOptions = DEFAULTS) -> Dashboard:
    """What the machines and the devices did."""
    traces = run.traces
    kernels = _kernels(traces)
    copies = _copies(traces)
    utilisation = _utilisation(run)
    gpu, cpu = (_active(run, metric, what) for metric, what in BUSY.items())
    recorded = recorded_work(run, "keep") if gpu is None or not run.ranks else []
    gpu = gpu or _active_in(recorded)
    steps = _step_durations(run, recorded)
    no_recordings = missing_recordings(run, traces) or "no kernel was recorded on a device"
    wanted = {
        "gpu_active": (gpu, NO_GPU_SAMPLES),
        "cpu_active": (cpu, NO_CPU_SAMPLES),
        "utilisation": (utilisation, NO_CPU_SAMPLES),
        "step_durations": (steps, NO_STEPS),
        "kernels_by_time": (kernels, no_recordings),
        "memory_operations": (copies, no_recordings),
    }
    return Dashboard(
        gpu_active=gpu,
        cpu_active=cpu,
        utilisation=utilisation,
        step_durations=steps,
        kernel_count=len(kernels),
        launch_count=sum(kernel.launch_count for kernel in kernels),
        kernels_by_time=kernels[:TOP],
        kernels_by_launches=sorted(kernels, key=lambda kernel: -kernel.launch_count)[:TOP],
        precision=_precision(kernels),
        activity=_activity(traces, kernels, copies),
        memory_operations=copies,
        missing_parts={field: why for field, (found, why) in wanted.items() if not found},
        quality=notes_across(run, traces),
    )


# --- machines ------------------------------------------------------------------------------------


def _active_in(recorded: Sequence[RecordedWork]) -> ActiveShare | None:
    """How busy the devices of recordings were."""
    found = [
        time
        for one in recorded
        if not one.on_host
        for time in measure_gpu_time_by_device(one.work, one.trace.within).values()
    ]
    total = sum(time.total_ns for time in found)
    if not total:
        return None
    busy = sum(time.busy_ns for time in found)
    return ActiveShare(active_ratio=busy / total, share_of=BY_RECORDINGS)


def _active(run: Run, metric: str, what: str) -> ActiveShare | None:
    mean = run.mean_over_nodes(metric)
    if mean is None:
        return None
    return ActiveShare(active_ratio=mean, share_of=BY_SAMPLES.format(what))


def _utilisation(run: Run) -> UtilisationOverTime | None:
    bins = choose_bins(run, PIECES)
    if bins is None:
        return None
    found = aggregate_samples(run.reader, bins, list(BUSY), over_devices=True)
    by_node: dict[str, dict[str, list[float | None]]] = {}
    for series in found:
        by_node.setdefault(series.node, {})[series.metric] = nan_to_none(series.mean)
    nothing: list[float | None] = [None] * bins.count
    return UtilisationOverTime(
        start_after_ns=bins.start_ns - run.clock.origin_ns,
        piece_ns=bins.width_ns,
        nodes=[
            Utilisation(node=node, **{metric: own.get(metric, nothing) for metric in BUSY})
            for node, own in sorted(by_node.items())
        ],
    )


# --- steps ---------------------------------------------------------------------------------------


def _step_durations(run: Run, recorded: Sequence[RecordedWork]) -> StepDurations | None:
    watched = [rank.steps.wall_ns[rank.steps.measured()] for rank in run.ranks]
    walls = np.concatenate([*watched, np.empty(0, dtype=np.int64)])
    source: Literal["watched", "recorded"] = "watched"
    if not len(walls):
        marked = [one.steps.wall_ns for one in recorded if one.marked]
        walls = np.concatenate([*marked, np.empty(0, dtype=np.int64)])
        source = "recorded"
    edges = make_duration_edges(walls)
    if edges is None:
        return None
    found = build_histogram(walls, edges)
    p50, p95 = np.percentile(walls, [50, 95]).tolist()
    return StepDurations(
        source=source,
        edges_ns=found.edges.tolist(),
        counts=found.counts.tolist(),
        above_count=found.over_count,
        count=len(walls),
        mean_ns=float(walls.mean()),
        p50_ns=p50,
        p95_ns=p95,
    )


# --- devices -------------------------------------------------------------------------------------


def _kernels(traces: Sequence[Trace]) -> list[KernelTime]:
    """By name, the longest in total first."""
    rows = _by_name(traces, "kernels", "name")
    whole = int(rows["total_ns"].sum()) if len(rows["name"]) else 0
    found = [
        KernelTime(
            name=name or "",
            launch_count=count,
            total_ns=total,
            share_ratio=total / whole if whole else 0.0,
            precision=classify_precision(name or ""),
            tensor_cores=uses_tensor_cores(name or ""),
            communication=is_communication(name or ""),
        )
        for name, count, total in _tuples(rows, "name", "count", "total_ns")
    ]
    return sorted(found, key=lambda kernel: (-kernel.total_ns, kernel.name))


def _precision(kernels: Sequence[KernelTime]) -> Breakdown | None:
    parts: dict[str, tuple[int, int]] = {}
    for kernel in kernels:
        _add(parts, kernel.precision or UNKNOWN, kernel.launch_count, kernel.total_ns)
    return _pie("the durations of all kernels, by what their names say", parts)


def _copies(traces: Sequence[Trace]) -> Breakdown | None:
    rows = _by_name(traces, "copies", "name")
    parts: dict[str, tuple[int, int]] = {}
    for name, count, total in _tuples(rows, "name", "count", "total_ns"):
        _add(parts, parse_copy_direction(name or ""), count, total)
    return _pie("the durations of all copies and sets of device memory", parts)


def _activity(
    traces: Sequence[Trace], kernels: Sequence[KernelTime], copies: Breakdown | None
) -> Breakdown | None:
    parts = dict.fromkeys(ACTIVITIES, (0, 0))
    for kernel in kernels:
        kind = "communication" if kernel.communication else "compute"
        _add(parts, kind, kernel.launch_count, kernel.total_ns)
    for part in copies.parts if copies else []:
        _add(parts, "memset" if part.name == "memset" else "memcpy", part.count, part.total_ns)
    if not any(total for _, total in parts.values()):
        return None
    waits = _by_name(traces, "runtime_calls", "name", condition="name ILIKE '%synchron%'")
    for name, count, total in _tuples(waits, "name", "count", "total_ns"):
        if is_synchronization(name or ""):
            _add(parts, "synchronization", count, total)
    return _pie("the durations of kernels, memory operations and waits for devices", parts)


def _by_name(
    traces: Sequence[Trace], table: str, column: str, condition: str = "true"
) -> Mapping[str, Any]:
    if not traces:
        return {column: np.empty(0), "count": np.empty(0), "total_ns": np.empty(0)}
    found: Mapping[str, Any] = traces[0].reader.sql(
        f"SELECT {column}, count(*) AS count, CAST(sum(duration_ns) AS BIGINT) AS total_ns "  # noqa: S608 - fixed names
        f"FROM {table} WHERE ({rows_in(traces, table)}) AND {condition} GROUP BY {column}"
    )
    return found


def _tuples(rows: Mapping[str, Any], *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(rows[name].tolist() for name in names), strict=True))


def _add(parts: dict[str, tuple[int, int]], name: str, count: int, total_ns: int) -> None:
    before = parts.get(name, (0, 0))
    parts[name] = before[0] + count, before[1] + total_ns


def _pie(share_of: str, parts: Mapping[str, tuple[int, int]]) -> Breakdown | None:
    whole = sum(total for _, total in parts.values())
    if not whole:
        return None
    found = [
        TimeShare(name=name, count=count, total_ns=total, share_ratio=total / whole)
        for name, (count, total) in parts.items()
        if count
    ]
    return Breakdown(share_of=share_of, parts=sorted(found, key=lambda part: -part.total_ns))
