"""`roofline`: work of operators, their achieved rates, and the peak rates of the device."""

from __future__ import annotations

from stepscope.analysis import (
    BATCH_COLUMNS,
    BATCH_CONDITION,
    COPY_COLUMNS,
    EVENT_COLUMNS,
    HOST_COLUMNS,
    IMPOSSIBLE_RATIO,
    KERNEL_COLUMNS,
    ROOFLINE_OPERATOR_COLUMNS,
    Account,
    Peaks,
    RooflineGroup,
    account_device_time,
    combine_device_work,
    estimate_cpu_peaks,
    find_largest_gaps,
    find_peaks,
    find_trace_steps,
    group_calls,
    measure_step_utilization,
    parse_peaks,
    sum_families,
)
from stepscope.errors import UsageError
from stepscope.quantities import count_of, percent
from stepscope.run import Run, Trace, calls_of, marked_steps
from stepscope.views.missing_data import explain_missing
from stepscope.views.operators import NO_INPUT_SHAPES
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import note_trace_quality
from stepscope.views.roofline_payload import (
    DeviceView,
    PeakRateView,
    RooflineView,
    TraceRoofline,
)
from stepscope.views.trace_choice import show_traces

NO_OPERATORS = "no operator of the trace has work on a device, so there is nothing to compare"
PEAKS_ADVICE = (
    ": set peaks, such as --peaks bf16=989,fp32=67,bandwidth=3350 (TFLOP/s, GB/s), or name a "
    "device of the table"
)
SHARE_OF_DEVICE_TIME = (
    "device time of calls (union of the work each one launched) without collectives, and of work "
    "in the window whose operator is unknown"
)
SHARE_OF_HOST_TIME = "self time of operators on the host, as no device work was recorded"
UNKNOWN_DEVICE = "device not described in the trace"
NO_LAUNCH = (
    "no operator of the trace launched the work; the arguments of operators in replayed graphs are "
    "unknown"
)
MIN_UNMODELLED_RATIO = 0.1
"""Share of the time from which work without a model is explained."""
WITH_DEVICE_WORK = "launched_ns IS NOT NULL OR launched_below_ns IS NOT NULL"
MAX_GAPS = 5
MAX_IMPOSSIBLE_RATIO = 0.5
"""Share of host time in impossible groups above which operators only launched device work."""


def show_roofline(run: Run, options: ViewOptions = DEFAULTS) -> RooflineView:
    """Show the work of operators, their rates and the peak rates of the device."""
    peaks = _parse_peaks(options)
    return RooflineView(
        **show_traces(run, options, lambda trace: _show_trace(run, trace, options, peaks)),
    )


def _parse_peaks(options: ViewOptions) -> Peaks | None:
    if options.peaks is None:
        return None
    try:
        return parse_peaks(options.peaks)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _show_trace(
    run: Run, trace: Trace, options: ViewOptions, user_peaks: Peaks | None
) -> TraceRoofline:
    if not trace.has_shapes:
        return _show_missing(trace, explain_missing(NO_INPUT_SHAPES, "shapes", trace))
    kernels = trace.columns("kernels", _join_columns(KERNEL_COLUMNS, EVENT_COLUMNS))
    copies = trace.columns("copies", _join_columns(COPY_COLUMNS, EVENT_COLUMNS))
    on_device = len(kernels["start_ns"]) + len(copies["start_ns"]) > 0
    operators = (
        trace.columns("operators", ROOFLINE_OPERATOR_COLUMNS, condition=WITH_DEVICE_WORK)
        if on_device
        else trace.columns("operators", HOST_COLUMNS)
    )
    annotations = trace.columns("annotations", BATCH_COLUMNS, condition=BATCH_CONDITION)
    account = account_device_time(operators, kernels, copies, annotations)
    if not account.busy_ns.any():
        return _show_missing(trace, NO_OPERATORS)
    work = combine_device_work(kernels, copies)
    devices = work.kernel_devices
    device, peaks = _find_device(run, trace, devices, user_peaks)
    groups, total_ns = group_calls(account, peaks), account.total_ns
    steps = find_trace_steps(marked_steps(run, trace).steps, work, calls_of(trace))
    utilization = measure_step_utilization(
        account, steps, peaks=peaks, device_count=max(1, len(devices))
    )
    modelled_ns = sum(group.device_ns for group in groups if group.call_bytes is not None)
    return TraceRoofline(
        rank=trace.rank,
        trace=trace.name,
        share_of=SHARE_OF_DEVICE_TIME if on_device else SHARE_OF_HOST_TIME,
        hardware=device,
        computing_ns=total_ns,
        modelled_ns=modelled_ns,
        modelled_ratio=modelled_ns / total_ns,
        communication_ns=account.communication_ns,
        carry_over_ns=account.carry_over_ns,
        group_count=len(groups),
        families=sum_families(groups, total_ns, no_operator_ns=account.unlinked_ns),
        groups=groups[: options.top or None],
        gaps=find_largest_gaps(groups, total_ns, top=MAX_GAPS),
        utilization=utilization,
        missing=None,
        notes=_write_notes(account, groups, device, peaks),
        quality=note_trace_quality(trace, "device", "launches", "operators"),
    )


def _show_missing(trace: Trace, reason: str) -> TraceRoofline:
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
        missing=reason,
        notes=[],
        quality=[],
    )


def _find_device(
    run: Run, trace: Trace, devices: list[int], user_peaks: Peaks | None
) -> tuple[DeviceView, Peaks | None]:
    """Find the device of a trace and its peaks: the user's, or else those of its model."""
    if devices:
        name, peaks = _find_accelerator(trace, devices[0])
    else:
        node = run.nodes.get(trace.node) if trace.node is not None else None
        name = node.cpu_model if node is not None else "CPU"
        peaks = estimate_cpu_peaks(node.cores_available) if node is not None else None
    peaks = user_peaks or peaks
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


def _find_accelerator(trace: Trace, device: int) -> tuple[str, Peaks | None]:
    """Find the name and peaks of a device by its number, or of all devices if they are alike.

    Profilers number kernels by the devices of the machine, but descriptions by those that the
    process can see.
    """
    rows = trace.columns("devices", ("device", "name", "memory_bytes", "multiprocessor_count"))
    names = [rows["name"].values[code] or "" for code in rows["name"].codes.tolist()]
    numbers = rows["device"].tolist()
    row = numbers.index(device) if device in numbers else None
    if row is None and len(set(names)) == 1:
        row = 0
    if row is None:
        return UNKNOWN_DEVICE, None
    peaks = find_peaks(
        names[row],
        memory_bytes=int(rows["memory_bytes"][row]),
        multiprocessors=int(rows["multiprocessor_count"][row]),
    )
    return names[row], peaks


def _write_notes(
    account: Account, groups: list[RooflineGroup], device: DeviceView, peaks: Peaks | None
) -> list[str]:
    notes = []
    if peaks is None:
        reason = (
            f"the table of peaks does not have {device.device_name}"
            if account.on_device
            else "the model of the CPU is unknown"
        )
        notes.append(f"{reason}, so shares of the peak are unknown{PEAKS_ADVICE}")
    elif peaks.estimate:
        notes.append(f"peaks are {peaks.source}{PEAKS_ADVICE}")
    notes += _explain_unmodelled_time(account, groups)
    impossible = [group for group in groups if group.anomaly is not None]
    impossible_ns = sum(group.device_ns for group in impossible)
    bounded_ns = sum(group.device_ns for group in groups if group.roofline_ratio is not None)
    if not account.on_device and impossible_ns > MAX_IMPOSSIBLE_RATIO * bounded_ns:
        notes.append(
            "most operators took less time than a CPU needs for them: they probably only launched "
            "work on a device that was not recorded"
        )
    elif impossible:
        notes.append(
            f"{count_of(len(impossible), 'group')} above {percent(IMPOSSIBLE_RATIO)} of the "
            "roofline, which is impossible; `anomaly` in --json has the possible reasons"
        )
    return notes


def _explain_unmodelled_time(account: Account, groups: list[RooflineGroup]) -> list[str]:
    """Explain the largest parts of the time without operations and bytes."""
    total_ns = account.total_ns
    parts = [
        (group.device_ns, f"{group.name} ({percent(group.device_ns / total_ns)}): {group.reason}")
        for group in groups
        if group.call_bytes is None
    ]
    parts.append((account.unlinked_ns, f"{percent(account.unlinked_ns / total_ns)}: {NO_LAUNCH}"))
    large = [part for part in parts if part[0] >= MIN_UNMODELLED_RATIO * total_ns]
    return [f"no model of {text}" for _, text in sorted(large, reverse=True)[:MAX_GAPS]]


def _join_columns(*columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in columns for name in part))
