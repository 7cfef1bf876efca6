"""`roofline`: what operators had to do, how fast they did it, and how fast the device could."""

from __future__ import annotations

import numpy as np

from stepscope.analysis import (
    COPY_COLUMNS,
    EVENT_COLUMNS,
    HOST_COLUMNS,
    IMPOSSIBLE_RATIO,
    KERNEL_COLUMNS,
    NS_PER_S,
    ROOFLINE_OPERATOR_COLUMNS,
    Account,
    CallGroup,
    FlopsUtilization,
    Peaks,
    account_device_time,
    combine_device_work,
    estimate_cpu_peaks,
    find_peaks,
    find_trace_steps,
    group_calls,
    measure_step_utilization,
    parse_peaks,
)
from stepscope.errors import UsageError
from stepscope.run import Run, Trace, calls_of, marked_steps
from stepscope.views.lacking import how_to_get
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import notes_across, quality_notes
from stepscope.views.roofline_payload import (
    DeviceView,
    FamilyView,
    Gap,
    PeakRateView,
    RooflineGroup,
    RooflineView,
    StepUtilization,
    TraceRoofline,
    Utilization,
)
from stepscope.views.trace_choice import chosen_traces, missing_recordings

NO_SHAPES = "no shapes of the operators' inputs are in this recording"
NO_OPERATORS = "no operator of the recording has work on a device, so there is nothing to compare"
HOW_TO_GIVE_PEAKS = (
    ": give its own, such as --peaks bf16=989,fp32=67,bandwidth=3350 (TFLOP/s, GB/s), or the name "
    "of a device of the table"
)
WITH_DEVICE_WORK = "launched_ns IS NOT NULL OR launched_below_ns IS NOT NULL"
TOP_GAPS = 5
MOSTLY = 0.5


def roofline(run: Run, options: ViewOptions = DEFAULTS) -> RooflineView:
    """What operators had to do, how fast they did it, and how fast the device could."""
    traces = chosen_traces(run, options)
    given = _given_peaks(options)
    return RooflineView(
        traces=[_trace(run, trace, options, given) for trace in traces],
        missing=missing_recordings(run, traces),
        quality=notes_across(run, traces),
    )


def _given_peaks(options: ViewOptions) -> Peaks | None:
    if options.peaks is None:
        return None
    try:
        return parse_peaks(options.peaks)
    except ValueError as why:
        raise UsageError(str(why)) from None


def _trace(run: Run, trace: Trace, options: ViewOptions, given: Peaks | None) -> TraceRoofline:
    if not trace.has_shapes:
        return _without_figures(trace, f"{NO_SHAPES}: {how_to_get('shapes', trace)}")
    kernels = trace.columns("kernels", _together(KERNEL_COLUMNS, EVENT_COLUMNS))
    copies = trace.columns("copies", _together(COPY_COLUMNS, EVENT_COLUMNS))
    on_device = len(kernels["start_ns"]) + len(copies["start_ns"]) > 0
    operators = (
        trace.columns("operators", ROOFLINE_OPERATOR_COLUMNS, condition=WITH_DEVICE_WORK)
        if on_device
        else trace.columns("operators", HOST_COLUMNS)
    )
    found = account_device_time(operators, kernels, copies)
    if not found.busy_ns.any():
        return _without_figures(trace, NO_OPERATORS)
    used = np.unique(kernels["device"]).tolist()
    device, peaks = _device(run, trace, used, given)
    every = group_calls(found, peaks)
    work = combine_device_work(kernels, copies)
    steps = find_trace_steps(marked_steps(run, trace).steps, work, calls_of(trace))
    use = measure_step_utilization(found, steps, peaks=peaks, device_count=max(1, len(used)))
    modelled_ns = sum(group.busy_ns for group in every if group.bytes is not None)
    return TraceRoofline(
        rank=trace.rank,
        trace=trace.name,
        share_of=_SHARE_OF_DEVICE if on_device else _SHARE_OF_HOST,
        hardware=device,
        computing_ns=found.total_ns,
        modelled_ns=modelled_ns,
        modelled_ratio=modelled_ns / found.total_ns,
        communication_ns=found.communication_ns,
        carry_over_ns=found.carry_over_ns,
        group_count=len(every),
        families=_families(every, found.total_ns),
        groups=[_group(group, found.total_ns) for group in every[: options.top or len(every)]],
        gaps=_gaps(every, found.total_ns),
        utilization=_utilization(use),
        missing=None,
        notes=_notes(found, every, device, peaks),
        quality=quality_notes(trace, "device", "launches", "operators"),
    )


_SHARE_OF_DEVICE = (
    "device time of calls (union of what each launched) that do not communicate, and of work in "
    "the window whose operator is unknown"
)
_SHARE_OF_HOST = "own host time of operators, as no device work was recorded"


def _without_figures(trace: Trace, why: str) -> TraceRoofline:
    return TraceRoofline(
        rank=trace.rank,
        trace=trace.name,
        share_of=None,
        hardware=None,
        computing_ns=None,
        modelled_ns=None,
        modelled_ratio=None,
        communication_ns=None,
        carry_over_ns=None,
        group_count=0,
        families=[],
        groups=[],
        gaps=[],
        utilization=None,
        missing=why,
        notes=[],
        quality=[],
    )


def _device(
    run: Run, trace: Trace, used: list[int], given: Peaks | None
) -> tuple[DeviceView, Peaks | None]:
    """What the recording ran on, and what that can do as far as anybody says."""
    if used:
        name, found = _accelerator(trace, used[0])
    else:
        node = run.nodes.get(trace.node) if trace.node is not None else None
        name = node.cpu_model if node is not None else "CPU"
        found = estimate_cpu_peaks(node.cores_available) if node is not None else None
    peaks = given or found
    rates = peaks.flops_per_s if peaks is not None else {}
    view = DeviceView(
        device_name=name,
        peaks_of=peaks.name if peaks is not None else None,
        source=peaks.source if peaks is not None else None,
        estimate=peaks.estimate if peaks is not None else False,
        memory_bytes_per_s=peaks.bytes_per_s if peaks is not None else None,
        peaks=[PeakRateView(unit=unit, peak_flop_per_s=rate) for unit, rate in rates.items()],
    )
    return view, peaks


def _accelerator(trace: Trace, device: int) -> tuple[str, Peaks | None]:
    """A device by its number; where it is not described, what all that are have in common.

    Recorders number kernels by the machine and descriptions by what the process sees.
    """
    rows = trace.columns("devices", ("device", "name", "memory_bytes", "multiprocessor_count"))
    names = [rows["name"].values[code] or "" for code in rows["name"].codes.tolist()]
    place = next((i for i, each in enumerate(rows["device"].tolist()) if each == device), None)
    if place is None and len(set(names)) == 1:
        place = 0
    if place is None:
        return "a device that the recording does not describe", None
    found = find_peaks(
        names[place],
        memory_bytes=int(rows["memory_bytes"][place]),
        multiprocessors=int(rows["multiprocessor_count"][place]),
    )
    return names[place], found


def _group(group: CallGroup, total_ns: int) -> RooflineGroup:
    signature = group.signature
    return RooflineGroup(
        name=signature.name,
        family=signature.family,
        input_dims=signature.dims,
        calls=group.call_count,
        device_ns=group.busy_ns,
        time_ratio=group.busy_ns / total_ns,
        mean_ns=group.mean_ns,
        p50_ns=group.p50_ns,
        min_ns=group.min_ns,
        max_ns=group.max_ns,
        precision=group.precision,
        call_flop=group.flops,
        call_bytes=group.bytes,
        intensity_flop_per_byte=group.flops_per_byte,
        achieved_flop_per_s=group.flops_per_s,
        achieved_bytes_per_s=group.bytes_per_s,
        mean_of_calls_flop_per_s=group.mean_of_calls_flops_per_s,
        mean_of_calls_bytes_per_s=group.mean_of_calls_bytes_per_s,
        bound=group.bound,
        roofline_ns=group.roofline_ns,
        roofline_ratio=group.of_roofline_ratio,
        peak_compute_ratio=group.of_peak_compute_ratio,
        peak_bandwidth_ratio=group.of_peak_bandwidth_ratio,
        anomaly=_anomaly(group),
        input_types=signature.types,
        input_strides=signature.strides,
        concrete_inputs=signature.values,
        estimate=signature.work.note if signature.work is not None else None,
        reason=group.reason,
    )


def _anomaly(group: CallGroup) -> str | None:
    if not group.is_impossible:
        return None
    if group.bound == "memory":
        return (
            "faster than memory can deliver: the data came from a cache, or the bytes, the peak "
            "or the clock are wrong"
        )
    return "faster than the unit can compute: the operations, the peak or the clock are wrong"


def _families(every: list[CallGroup], total_ns: int) -> list[FamilyView]:
    found = []
    for family in {group.signature.family: None for group in every}:
        mine = [group for group in every if group.signature.family == family]
        busy_ns = sum(group.busy_ns for group in mine)
        both = [group for group in mine if group.roofline_ns is not None]
        both_ns = sum(group.busy_ns for group in both)
        least_ns = sum(group.roofline_ns or 0.0 for group in both)
        found.append(
            FamilyView(
                family=family or "without a model",
                device_ns=busy_ns,
                time_ratio=busy_ns / total_ns,
                total_flop=_sum([g.flops * g.call_count for g in mine if g.flops is not None]),
                total_bytes=_sum([g.bytes * g.call_count for g in mine if g.bytes is not None]),
                roofline_ratio=least_ns / both_ns if both_ns else None,
            )
        )
    return sorted(found, key=lambda family: -family.device_ns)


def _sum(values: list[int]) -> int | None:
    return sum(values) if values else None


def _gaps(every: list[CallGroup], total_ns: int) -> list[Gap]:
    """Where most time lies above the roofline."""
    found = [
        Gap(
            name=group.signature.name,
            input_dims=group.signature.dims,
            bound=group.bound,
            saved_ns=group.lost_ns,
            saved_ratio=group.lost_ns / total_ns,
            roofline_ratio=group.of_roofline_ratio,
        )
        for group in every
        if group.lost_ns and group.of_roofline_ratio is not None
    ]
    return sorted(found, key=lambda gap: -gap.saved_ns)[:TOP_GAPS]


def _utilization(use: FlopsUtilization) -> Utilization:
    known = use.modelled_ratio is not None and use.modelled_ratio >= MOSTLY
    time_ns = sum(step.step_ns for step in use.steps)
    flops = sum(step.flops for step in use.steps)
    mean = None
    if known and use.peak_flops_per_s and time_ns:
        mean = flops / (time_ns / NS_PER_S * use.peak_flops_per_s)
    return Utilization(
        share_of=(
            "step time until its device work is done, times the peak of the precision in which "
            "most matrix FLOPs are, times the devices used"
        ),
        precision=use.precision,
        peak_flop_per_s=use.peak_flops_per_s,
        mean_mfu_ratio=mean,
        modelled_ratio=use.modelled_ratio,
        steps=[
            StepUtilization(
                step=step.name,
                step_ns=step.step_ns,
                matrix_flop=step.flops if known else None,
                mfu_ratio=step.of_peak_ratio if known else None,
            )
            for step in use.steps
        ],
        notes=_utilization_notes(use),
    )


def _utilization_notes(use: FlopsUtilization) -> list[str]:
    ratio = use.modelled_ratio
    if ratio is None:
        return ["no product of matrices is in the recording, so there is no utilisation"]
    unknown = f"{1 - ratio:.1%} of the time of matrix operators has no model"
    if ratio < MOSTLY:
        return [f"{unknown}, so there is no utilisation; with --json every group says why"]
    notes = [
        "work that ran twice counts twice: activations recomputed in the backward pass, and the "
        "scores that flash attention's backward kernels make again"
    ]
    return [*notes, f"a lower bound: {unknown}"] if ratio < 1 else notes


def _notes(
    found: Account, every: list[CallGroup], device: DeviceView, peaks: Peaks | None
) -> list[str]:
    notes = []
    if peaks is None:
        why = f"the table of peaks does not hold {device.device_name}"
        if not found.on_device:
            why = "nothing is known of the CPU"
        notes.append(f"{why}, so shares of the peak are unknown{HOW_TO_GIVE_PEAKS}")
    elif peaks.estimate:
        notes.append(f"peaks are {peaks.source}{HOW_TO_GIVE_PEAKS}")
    impossible = [group for group in every if group.is_impossible]
    impossible_ns = sum(group.busy_ns for group in impossible)
    if not found.on_device and impossible_ns > MOSTLY * sum(
        group.busy_ns for group in every if group.of_roofline_ratio is not None
    ):
        notes.append(
            "most operators took less time than a CPU needs for them: they probably only launched "
            "work on a device that was not recorded"
        )
    elif impossible:
        notes.append(
            f"{len(impossible)} groups are more than {IMPOSSIBLE_RATIO - 1:.0%} above the "
            "roofline; with --json each says in `anomaly` what that may be"
        )
    return notes


def _together(*columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in columns for name in part))
