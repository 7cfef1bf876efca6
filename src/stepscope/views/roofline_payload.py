"""Payload of `roofline`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from stepscope.analysis import Family, FamilyTotals, Precision, RooflineGap, Unit
from stepscope.schema import field_label
from stepscope.views.quality import QualityNote
from stepscope.views.ranges import Ranged


class PeakRateView(msgspec.Struct, frozen=True, kw_only=True):
    """Peak rate of one unit and precision."""

    unit: Annotated[Unit, field_label("compute unit")]
    peak_flop_per_s: float


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """Device and its peak rates, without sparsity."""

    device_name: Annotated[str, field_label("device")]
    peaks_of: str | None
    """Name in the table of peaks; null if the device is not in it."""
    source: str | None
    """Document and year of the figures."""
    estimate: bool
    """True if the figures are not the vendor's for this device."""
    memory_bytes_per_s: Annotated[float | None, field_label("peak memory bandwidth")]
    peaks: list[PeakRateView]


class RooflineGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operator with the same arguments; unknown figures are null."""

    text_fields: ClassVar[tuple[str, ...]] = (
        *("name", "input_dims", "calls", "device_ns", "time_ratio", "bound", "roofline_ratio"),
    )
    """Fields that a line of text has room for."""
    name: Annotated[str, field_label("operator")]
    family: Family | None
    input_dims: Annotated[str | None, field_label("input shapes")]
    calls: int
    device_ns: Annotated[int, field_label("device time")]
    """Time of all calls: union of the work each one launched; host time without devices."""
    time_ratio: Annotated[float, field_label("share", display="bar")]
    """Share of `computing_ns`."""
    mean_ns: float
    p50_ns: float
    min_ns: int
    max_ns: int
    precision: Precision | None
    """Precision; TF32 if kernels multiplied FP32 operands in TF32."""
    call_flop: Annotated[int | None, field_label("FLOP per call")]
    """Floating-point operations of one call; a multiply-add is two."""
    call_bytes: Annotated[int | None, field_label("moved per call")]
    """Bytes that one call must read and write."""
    intensity_flop_per_byte: Annotated[float | None, field_label("FLOP per byte")]
    achieved_flop_per_s: Annotated[float | None, field_label("achieved")]
    """Operations of all calls divided by their time."""
    achieved_bytes_per_s: Annotated[float | None, field_label("bandwidth")]
    """Bytes of all calls divided by their time."""
    mean_of_calls_flop_per_s: Annotated[float | None, field_label("mean rate of calls")]
    """Mean of the rates of the calls."""
    mean_of_calls_bytes_per_s: Annotated[float | None, field_label("mean bandwidth of calls")]
    bound: Annotated[Literal["compute", "memory"] | None, field_label("bound by")]
    """Limit on this device at best."""
    roofline_ns: Annotated[float | None, field_label("time on the roofline")]
    """Minimum time of all calls: the larger of operations / peak and bytes / bandwidth."""
    roofline_ratio: Annotated[float | None, field_label("of the roofline", display="bar")]
    """`roofline_ns` divided by `device_ns`."""
    peak_compute_ratio: Annotated[float | None, field_label("of peak compute")]
    """Operations per second divided by the peak of the unit and precision."""
    peak_bandwidth_ratio: Annotated[float | None, field_label("of peak bandwidth")]
    """Bytes per second divided by the memory bandwidth of the device."""
    anomaly: str | None
    """Reason why the figures are impossible."""
    input_types: str | None
    input_strides: str | None
    concrete_inputs: str | None
    estimate: str | None
    """Basis of the operations or bytes, if they are an estimate."""
    reason: str | None
    """Reason for missing figures."""


class StepUtilization(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs utilization of one step."""

    step: str
    step_ns: Annotated[int, field_label("duration")]
    """Duration until its device work is done."""
    matrix_flop: Annotated[int | None, field_label("matrix work")]
    mfu_ratio: Annotated[float | None, field_label("utilization", display="bar")]
    """Null if most of the time of matrix operators has no model."""


class Utilization(msgspec.Struct, frozen=True, kw_only=True):
    """Model FLOPs utilization (MFU)."""

    share_of: str
    precision: Precision | None
    peak_flop_per_s: float | None
    mean_mfu_ratio: Annotated[float | None, field_label("model FLOPs utilization")]
    """FLOPs of all steps divided by their time and the peak."""
    modelled_ratio: float | None
    """Share of the device time of matrix operators that has a model."""
    steps: list[StepUtilization]
    notes: list[str]


class TraceRoofline(msgspec.Struct, frozen=True, kw_only=True):
    """Roofline of one trace."""

    rank: int | None
    trace: str
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
    families: list[FamilyTotals]
    groups: list[RooflineGroup]
    gaps: list[RooflineGap]
    utilization: Utilization | None
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class RooflineView(Ranged, frozen=True, kw_only=True):
    """Payload of `roofline`."""

    traces: list[TraceRoofline]
    missing: str | None
    quality: list[QualityNote]
