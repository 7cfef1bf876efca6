"""The payload of `roofline`."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from stepscope.analysis import Family, Precision, Unit
from stepscope.views.quality import QualityNote
from stepscope.views.ranges import Ranged


class PeakRateView(msgspec.Struct, frozen=True, kw_only=True):
    """A peak, by the unit and the precision it is of."""

    unit: Unit
    peak_flop_per_s: float


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    """The device, and what it can do at best: dense figures."""

    device_name: str
    peaks_of: str | None
    """Name in the table of peaks; null where the device is not in it."""
    source: str | None
    """Document and year."""
    estimate: bool
    """Not a vendor's figure for this device."""
    memory_bytes_per_s: float | None
    peaks: list[PeakRateView]


class RooflineGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operator with the same arguments; what is unknown is null."""

    text_fields: ClassVar[tuple[str, ...]] = (
        *("name", "input_dims", "calls", "device_ns", "time_ratio", "bound", "roofline_ratio"),
    )
    """What a line of text has room for."""
    name: str
    family: Family | None
    input_dims: str | None
    calls: int
    device_ns: int
    """Union of what each call launched, all calls together; host time without devices."""
    time_ratio: float
    """Share of `computing_ns`."""
    mean_ns: float
    p50_ns: float
    min_ns: int
    max_ns: int
    precision: Precision | None
    """TF32 where kernels multiplied FP32 operands in TF32."""
    call_flop: int | None
    """Floating-point operations of one call; a multiply-add is two."""
    call_bytes: int | None
    """Bytes that one call has to read and write."""
    intensity_flop_per_byte: float | None
    achieved_flop_per_s: float | None
    """Of all calls together: operations over time."""
    achieved_bytes_per_s: float | None
    mean_of_calls_flop_per_s: float | None
    """Mean of the calls' own rates."""
    mean_of_calls_bytes_per_s: float | None
    bound: Literal["compute", "memory"] | None
    """What limits it on this device at best."""
    roofline_ns: float | None
    """Least time of all calls: the larger of operations over peak and bytes over bandwidth."""
    roofline_ratio: float | None
    """`roofline_ns` over `device_ns`."""
    peak_compute_ratio: float | None
    """Operations per second over the peak of the unit and precision."""
    peak_bandwidth_ratio: float | None
    """Bytes per second over the bandwidth of the device's memory."""
    anomaly: str | None
    """Why the figures cannot all be true."""
    input_types: str | None
    input_strides: str | None
    concrete_inputs: str | None
    estimate: str | None
    """What operations or bytes are an estimate by."""
    reason: str | None
    """Why there are no figures."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """What calls on their roofline would save."""

    name: str
    input_dims: str | None
    bound: Literal["compute", "memory"] | None
    saved_ns: float
    saved_ratio: float
    """Share of `computing_ns`."""
    roofline_ratio: float


class FamilyView(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of one family."""

    family: str
    device_ns: int
    time_ratio: float
    """Share of `computing_ns`."""
    total_flop: int | None
    total_bytes: int | None
    roofline_ratio: float | None
    """Least time over device time, of the groups that have both."""


class StepUtilization(msgspec.Struct, frozen=True, kw_only=True):
    """One step."""

    step: str
    step_ns: int
    """Until its device work is done."""
    matrix_flop: int | None
    mfu_ratio: float | None
    """Null where most of the time of matrix operators has no model."""


class Utilization(msgspec.Struct, frozen=True, kw_only=True):
    """Model FLOPs utilisation."""

    share_of: str
    precision: Precision | None
    peak_flop_per_s: float | None
    mean_mfu_ratio: float | None
    """FLOPs of all steps over their time and the peak."""
    modelled_ratio: float | None
    """Share of the device time of matrix operators that has a model."""
    steps: list[StepUtilization]
    notes: list[str]


class TraceRoofline(msgspec.Struct, frozen=True, kw_only=True):
    """One recording."""

    rank: int | None
    trace: str
    share_of: str | None
    hardware: DeviceView | None
    computing_ns: int | None
    modelled_ns: int | None
    modelled_ratio: float | None
    """Share of `computing_ns` that is in calls with a model."""
    communication_ns: int | None
    """Collectives: they are bound by the network and are left out."""
    carry_over_ns: int | None
    """Work launched before the window: its operators are not in the recording."""
    group_count: int
    families: list[FamilyView]
    groups: list[RooflineGroup]
    gaps: list[Gap]
    utilization: Utilization | None
    missing: str | None
    notes: list[str]
    quality: list[QualityNote]


class RooflineView(Ranged, frozen=True, kw_only=True):
    """The payload."""

    traces: list[TraceRoofline]
    missing: str | None
    quality: list[QualityNote]
