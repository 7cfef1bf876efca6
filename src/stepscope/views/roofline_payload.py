"""Payload of `roofline`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from stepscope.analysis import (
    FamilyTotals,
    RooflineGap,
    RooflineGroup,
    Unit,
    Utilization,
)
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
