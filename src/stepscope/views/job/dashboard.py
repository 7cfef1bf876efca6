"""`dashboard`: activity of nodes and devices, in pictures for a first look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from stepscope import analysis, schema
from stepscope.run import RecordedWork, Run, Trace, join_step_durations, recorded_work, sum_by_name
from stepscope.views.devices import gpu_metrics
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions, shorten_name
from stepscope.views.steps.steps import explain_no_steps
from stepscope.views.system import NOT_IN_FILES
from stepscope.views.trace_data import QualityNote, explain_no_traces, note_run_quality

MAX_KERNELS = 15
TimedOn = Literal["device", "host", "both"]
TIMING: dict[TimedOn, str] = {
    "device": "timed on the device: a step ends with the last device work that it launched",
    "host": "timed on the host: a step ends where the host starts the next one",
    "both": "timed on the device in traces with device work, until the last work that a step "
    "launched, and on the host in the others",
}
PHASES_ON_DEVICE = "; its phases are timed on the device"
SHARE_OF_SAMPLES = {
    "gpu_busy_ratio": "sampled time: utilization of the busiest GPU of a node at each sample",
    "cpu_busy_max_ratio": "sampled time: utilization of the busiest core of a node at each sample",
}
"""Metric of the busiest device: any device was active for at least that share of the time."""
SHARE_OF_TRACES = "time of traces, each from the first work of its devices to the last"
NO_GPU_SAMPLES = (
    "no GPU was sampled: `stepscope run -- CMD` samples the GPUs that the driver's library reports"
)
NO_CPU_SAMPLES = "no node was sampled: run the job with `stepscope run -- CMD`"
NO_GPU_IN_FILES = "the imported files contain no samples of GPUs"
NO_KERNELS = "no kernel was recorded on a device"
NO_COPIES = "no copy or set of device memory was recorded"
UNKNOWN_PRECISION = "other"


class ActiveShare(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the time in which any GPU, or any core, was active; the rest was idle."""

    active_ratio: float
    share_of: str


class StepDurations(msgspec.Struct, frozen=True, kw_only=True):
    """Histogram of step durations."""

    source: Literal["watched", "recorded"]
    """Measured steps of all ranks of the job, or steps in traces."""
    timed_on: TimedOn
    """Clock of the durations; `both` where it differs between traces."""
    timing: str
    """Definition of the ends of the steps."""
    edges_ns: Annotated[list[float], schema.field_label("edges of bins")]
    """Edges of the bins, one more than there are counts."""
    counts: Annotated[list[int], schema.field_label("steps per bin", unit="count")]
    above_count: Annotated[int, schema.field_label("steps above")]
    """Steps longer than the last edge, which is the median plus two standard deviations."""
    count: Annotated[int, schema.field_label("steps")]
    mean_ns: float
    p50_ns: float
    p95_ns: float


class KernelTime(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name in all traces."""

    name: str
    launch_count: int
    total_ns: int
    share_ratio: float | None
    """Share of the durations of all kernels."""
    precision: str | None
    """Precision of the inputs, guessed from the name."""
    tensor_cores: bool | None
    """Use of tensor or matrix cores, guessed from the name."""
    communication: bool
    """Kernel of a collective, by its name."""


class KernelTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels of one name in all traces, in short."""

    name: str
    launch_count: int
    total_ns: int


class TimeShare(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a breakdown."""

    name: str
    count: int
    total_ns: int
    share_ratio: float | None


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that sum to the total."""

    share_of: str
    parts: list[TimeShare]
    """Parts, largest first."""


class Dashboard(Ranged, frozen=True, kw_only=True):
    """Payload of `dashboard`."""

    gpu_active: ActiveShare | None
    """From the samples of the job, or else from traces."""
    cpu_active: ActiveShare | None
    gpu_utilization: gpu_metrics.UtilizationOverTime | None
    """From the samples of the job, or else from traces."""
    cpu_utilization: gpu_metrics.UtilizationOverTime | None
    step_durations: StepDurations | None
    kernel_count: int
    """Distinct kernel names."""
    launch_count: int
    kernels_by_time: list[KernelTime]
    """The fifteen kernels with most time; `kernels` has all of them."""
    kernels_by_launches: list[KernelTime]
    """The fifteen kernels with most launches."""
    all_kernels: list[KernelTotal]
    """Every kernel, the longest in total first."""
    precision: Breakdown | None
    activity: Breakdown | None
    memory_operations: Breakdown | None
    missing_parts: dict[str, str]
    """Reason and remedy for each empty field."""
    quality: list[QualityNote]


def show_dashboard(run: Run, _options: ViewOptions = DEFAULTS) -> Dashboard:
    """Show the activity of nodes and devices."""
    traces = run.traces
    kernels = _sum_kernels(traces)
    copies = _break_down_copies(traces)
    gpu, cpu = (_measure_active_share(run, metric) for metric in SHARE_OF_SAMPLES)
    recorded = recorded_work(run, "keep") if gpu is None or not run.ranks else []
    gpu = gpu or _measure_active_share_in_traces(recorded)
    gpu_utilization = gpu_metrics.show_sampled_utilization(run, "gpu_busy_ratio")
    gpu_utilization = gpu_utilization or gpu_metrics.show_recorded_utilization(run, recorded)
    cpu_utilization = gpu_metrics.show_sampled_utilization(run, "cpu_busy_ratio")
    steps = _show_step_durations(run, recorded)
    no_kernels = explain_no_traces(run, traces) or NO_KERNELS
    no_gpu, no_cpu = (
        (NO_GPU_IN_FILES, NOT_IN_FILES) if run.is_imported else (NO_GPU_SAMPLES, NO_CPU_SAMPLES)
    )
    parts = {
        "gpu_active": (gpu, no_gpu),
        "cpu_active": (cpu, no_cpu),
        "gpu_utilization": (gpu_utilization, no_gpu),
        "cpu_utilization": (cpu_utilization, no_cpu),
        "step_durations": (steps, explain_no_steps(run)),
        "kernels_by_time": (kernels, no_kernels),
        "memory_operations": (copies, explain_no_traces(run, traces) or NO_COPIES),
    }
    by_launches = sorted(kernels, key=lambda kernel: -kernel.launch_count)
    return Dashboard(
        gpu_active=gpu,
        cpu_active=cpu,
        gpu_utilization=gpu_utilization,
        cpu_utilization=cpu_utilization,
        step_durations=steps,
        kernel_count=len(kernels),
        launch_count=sum(kernel.launch_count for kernel in kernels),
        kernels_by_time=kernels[:MAX_KERNELS],
        kernels_by_launches=by_launches[:MAX_KERNELS],
        all_kernels=[
            KernelTotal(
                name=shorten_name(kernel.name),
                launch_count=kernel.launch_count,
                total_ns=kernel.total_ns,
            )
            for kernel in kernels
        ],
        precision=_break_down_precision(kernels),
        activity=_break_down_activity(traces, kernels, copies),
        memory_operations=copies,
        missing_parts={field: reason for field, (part, reason) in parts.items() if not part},
        quality=note_run_quality(run, traces),
    )


# --- nodes ---------------------------------------------------------------------------------------


def _measure_active_share_in_traces(recorded: Sequence[RecordedWork]) -> ActiveShare | None:
    times = [
        time
        for trace_work in recorded
        if not trace_work.on_host
        and (time := analysis.measure_gpu_time(trace_work.work, trace_work.trace.within))
        is not None
    ]
    total_ns = sum(time.total_ns for time in times)
    if not total_ns:
        return None
    busy_ns = sum(time.busy_ns for time in times)
    return ActiveShare(active_ratio=busy_ns / total_ns, share_of=SHARE_OF_TRACES)


def _measure_active_share(run: Run, metric: str) -> ActiveShare | None:
    ratio = analysis.average_present(node.mean_of_highest(metric) for node in run.metrics.values())
    if ratio is None:
        return None
    return ActiveShare(active_ratio=ratio, share_of=SHARE_OF_SAMPLES[metric])


# --- steps ---------------------------------------------------------------------------------------


def _show_step_durations(run: Run, recorded: Sequence[RecordedWork]) -> StepDurations | None:
    durations = run.measured_step_ns
    source: Literal["watched", "recorded"] = "watched"
    timed_on: TimedOn = "host"
    if not len(durations):
        durations, source = join_step_durations(recorded), "recorded"
        timed_on = _find_clock(recorded)
    timing = TIMING[timed_on]
    if source == "watched" and any(rank.steps.clock == "device" for rank in run.ranks):
        timing += PHASES_ON_DEVICE
    edges, distribution = analysis.make_duration_edges(durations), analysis.summarize(durations)
    if edges is None or distribution is None:
        return None
    histogram = analysis.build_histogram(durations, edges)
    return StepDurations(
        source=source,
        timed_on=timed_on,
        timing=timing,
        edges_ns=histogram.edges.tolist(),
        counts=histogram.counts.tolist(),
        above_count=histogram.over_count,
        count=distribution.count,
        mean_ns=distribution.mean,
        p50_ns=distribution.p50,
        p95_ns=distribution.p95,
    )


def _find_clock(recorded: Sequence[RecordedWork]) -> TimedOn:
    on_host = {one.on_host for one in recorded if one.marked}
    if len(on_host) > 1:
        return "both"
    return "host" if True in on_host else "device"


# --- devices -------------------------------------------------------------------------------------


def _sum_kernels(traces: Sequence[Trace]) -> list[KernelTime]:
    """Sum up kernels by name, the longest in total first."""
    totals = sum_by_name(traces, "kernels")
    is_collective = traces[0].collectives.predicate() if traces else analysis.is_communication
    all_ns = sum(total.total_ns for total in totals)
    kernels = [
        KernelTime(
            name=name,
            launch_count=count,
            total_ns=total_ns,
            share_ratio=total_ns / all_ns if all_ns else 0.0,
            precision=analysis.classify_precision(name),
            tensor_cores=analysis.uses_tensor_cores(name),
            communication=is_collective(name),
        )
        for name, count, total_ns in totals
    ]
    return sorted(kernels, key=lambda kernel: (-kernel.total_ns, kernel.name))


def _break_down_precision(kernels: Sequence[KernelTime]) -> Breakdown | None:
    parts: dict[str, tuple[int, int]] = {}
    for kernel in kernels:
        _add(parts, kernel.precision or UNKNOWN_PRECISION, kernel.launch_count, kernel.total_ns)
    return _make_breakdown("durations of all kernels, by the precision in their names", parts)


def _break_down_copies(traces: Sequence[Trace]) -> Breakdown | None:
    parts: dict[str, tuple[int, int]] = {}
    for name, count, total_ns in sum_by_name(traces, "copies"):
        _add(parts, analysis.parse_copy_direction(name), count, total_ns)
    return _make_breakdown("durations of all copies and sets of device memory", parts)


def _break_down_activity(
    traces: Sequence[Trace], kernels: Sequence[KernelTime], copies: Breakdown | None
) -> Breakdown | None:
    parts = dict.fromkeys(analysis.ACTIVITIES, (0, 0))
    for kernel in kernels:
        kind = "communication" if kernel.communication else "compute"
        _add(parts, kind, kernel.launch_count, kernel.total_ns)
    for part in copies.parts if copies else []:
        _add(parts, "memset" if part.name == "memset" else "memcpy", part.count, part.total_ns)
    if not any(total_ns for _, total_ns in parts.values()):
        return None
    waits = sum_by_name(traces, "runtime_calls", "name ILIKE '%synchron%'")
    for name, count, total_ns in waits:
        if analysis.is_synchronization(name):
            _add(parts, "synchronization", count, total_ns)
    return _make_breakdown("durations of kernels, memory operations and waits for devices", parts)


def _add(parts: dict[str, tuple[int, int]], name: str, count: int, total_ns: int) -> None:
    before = parts.get(name, (0, 0))
    parts[name] = before[0] + count, before[1] + total_ns


def _make_breakdown(share_of: str, parts: Mapping[str, tuple[int, int]]) -> Breakdown | None:
    all_ns = sum(total_ns for _, total_ns in parts.values())
    if not all_ns:
        return None
    shares = [
        TimeShare(name=name, count=count, total_ns=total_ns, share_ratio=total_ns / all_ns)
        for name, (count, total_ns) in parts.items()
        if count
    ]
    return Breakdown(share_of=share_of, parts=sorted(shares, key=lambda part: -part.total_ns))
