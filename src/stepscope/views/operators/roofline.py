"""`roofline`: work of operators, their achieved rates, and the peak rates of the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from stepscope import analysis, errors, schema
from stepscope.analysis import IMPOSSIBLE_RATIO
from stepscope.quantities import count_of, duration, percent
from stepscope.run import Run, Trace, calls_of, marked_steps
from stepscope.views.operators.operators import NO_INPUT_SHAPES
from stepscope.views.options import DEFAULTS, Ranged, ViewOptions, shorten_name
from stepscope.views.trace_data import QualityNote, explain_missing, note_trace_quality, show_traces

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
        **show_traces(run, options, lambda trace: _show_trace(run, trace, options, peaks))
    )


def _parse_peaks(options: ViewOptions) -> analysis.Peaks | None:
    if options.peaks is None:
        return None
    try:
        return analysis.parse_peaks(options.peaks)
    except ValueError as error:
        raise errors.UsageError(str(error)) from None


def _show_trace(
    run: Run, trace: Trace, options: ViewOptions, user_peaks: analysis.Peaks | None
) -> TraceRoofline:
    if not trace.has_shapes:
        return _show_missing(trace, explain_missing(NO_INPUT_SHAPES, "shapes", trace))
    kernels = trace.columns(
        "kernels", _join_columns(analysis.KERNEL_COLUMNS, analysis.EVENT_COLUMNS)
    )
    copies = trace.columns("copies", _join_columns(analysis.COPY_COLUMNS, analysis.EVENT_COLUMNS))
    on_device = len(kernels["start_ns"]) + len(copies["start_ns"]) > 0
    operators = (
        trace.columns("operators", analysis.ROOFLINE_OPERATOR_COLUMNS, condition=WITH_DEVICE_WORK)
        if on_device
        else trace.columns("operators", analysis.HOST_COLUMNS)
    )
    annotations = trace.columns(
        "annotations", analysis.BATCH_COLUMNS, condition=analysis.BATCH_CONDITION
    )
    account = analysis.account_device_time(operators, kernels, copies, annotations)
    if not account.busy_ns.any():
        return _show_missing(trace, NO_OPERATORS)
    work = analysis.combine_device_work(kernels, copies)
    devices = work.kernel_devices
    device, peaks = _find_device(run, trace, devices, user_peaks)
    groups, total_ns = analysis.group_calls(account, peaks), account.total_ns
    steps = analysis.find_trace_steps(marked_steps(run, trace).steps, work, calls_of(trace))
    utilization = analysis.measure_step_utilization(
        account, steps, peaks=peaks, device_count=max(1, len(devices))
    )
    gaps = analysis.find_largest_gaps(groups, total_ns, top=MAX_GAPS)
    modelled_ns = sum(group.device_ns for group in groups if group.call_bytes is not None)
    return TraceRoofline(
        rank=trace.rank,
        trace=trace.name,
        sentence=_write_sentence(gaps, on_device=on_device),
        share_of=SHARE_OF_DEVICE_TIME if on_device else SHARE_OF_HOST_TIME,
        hardware=device,
        computing_ns=total_ns,
        modelled_ns=modelled_ns,
        modelled_ratio=modelled_ns / total_ns,
        communication_ns=account.communication_ns,
        carry_over_ns=account.carry_over_ns,
        group_count=len(groups),
        families=analysis.sum_families(groups, total_ns, no_operator_ns=account.unlinked_ns),
        groups=groups[: options.top or None],
        gaps=gaps,
        utilization=utilization,
        missing=None,
        notes=_write_notes(account, groups, device, peaks),
        quality=note_trace_quality(trace, "device", "launches", "operators"),
    )


def _write_sentence(gaps: Sequence[analysis.RooflineGap], *, on_device: bool) -> str:
    """Write which calls would save most at the roofline."""
    if not gaps:
        return ""
    first = gaps[0]
    return (
        f"{shorten_name(first.name)} is furthest from the roofline: at it, the calls would take "
        f"{duration(first.saved_ns)} less, {percent(first.saved_ratio)} of "
        f"{'device' if on_device else 'operator'} time."
    )


def _show_missing(trace: Trace, reason: str) -> TraceRoofline:
    return TraceRoofline(
        rank=trace.rank,
        trace=trace.name,
        sentence="",
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
    run: Run, trace: Trace, devices: list[int], user_peaks: analysis.Peaks | None
) -> tuple[DeviceView, analysis.Peaks | None]:
    """Find the device of a trace and its peaks: the user's, or else those of its model."""
    if devices:
        name, peaks = _find_accelerator(trace, devices[0])
    else:
        node = run.nodes.get(trace.node) if trace.node is not None else None
        name = node.cpu_model if node is not None else "CPU"
        peaks = analysis.estimate_cpu_peaks(node.cores_available) if node is not None else None
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


def _find_accelerator(trace: Trace, device: int) -> tuple[str, analysis.Peaks | None]:
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
    peaks = analysis.find_peaks(
        names[row],
        memory_bytes=int(rows["memory_bytes"][row]),
        multiprocessors=int(rows["multiprocessor_count"][row]),
    )
    return names[row], peaks


def _write_notes(
    account: analysis.Account,
    groups: list[analysis.RooflineGroup],
    device: DeviceView,
    peaks: analysis.Peaks | None,
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


def _explain_unmodelled_time(
    account: analysis.Account, groups: list[analysis.RooflineGroup]
) -> list[str]:
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


class PeakRateView(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rate of one unit and precision."""

    unit: Annotated[analysis.Unit, schema.field_label("compute unit")]
    peak_flop_per_s: float


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """Device and its peak rates, without sparsity."""

    device_name: Annotated[str, schema.field_label("device")]
    peaks_of: str | None
    """Name in the table of peaks; null if the device is not in it."""
    source: str | None
    """Document and year of the figures."""
    estimate: bool
    """True if the figures are not the vendor's for this device."""
    memory_bytes_per_s: Annotated[float | None, schema.field_label("peak memory bandwidth")]
    peaks: list[PeakRateView]


class TraceRoofline(msgspec.Struct, frozen=True, kw_only=True):
    """Roofline of one trace."""

    rank: int | None
    trace: str
    sentence: str
    """Calls that would save most at the roofline; empty where that is unknown."""
    share_of: str | None
    hardware: DeviceView | None
    computing_ns: int | None
    modelled_ns: int | None
    modelled_ratio: float | None
    """Share of `computing_ns` in calls with a model."""
    communication_ns: int | None
    """Time of collectives, which the network bounds; excluded from `computing_ns`."""
    carry_over_ns: int | None
    """Time of work launched before the window; the trace does not have its operators."""
    group_count: int
    families: list[analysis.FamilyTotals]
    groups: list[analysis.RooflineGroup]
    gaps: list[analysis.RooflineGap]
    utilization: analysis.Utilization | None
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class RooflineView(Ranged, frozen=True, kw_only=True):
    """Payload of `roofline`."""

    traces: list[TraceRoofline]
    missing: str | None
    quality: list[QualityNote]
