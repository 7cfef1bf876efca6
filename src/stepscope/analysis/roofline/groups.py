"""Calls with the same arguments, compared with the roofline of the device, and sums by family.

    roofline time = max(F / peak of the unit and precision, bytes / bandwidth)
    bound         = the larger of the two
    share of the roofline = roofline time / device time

The roofline model: Williams, Waterman, Patterson, 2009 (https://doi.org/10.1145/1498765.1498785).
A share of more than 1.1 is impossible: the data came from a cache, or the model, the peak or the
clock is wrong. Such groups are flagged, not dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np

from stepscope import intervals, schema
from stepscope.analysis.roofline.accounting import Account
from stepscope.analysis.roofline.calls import Family, Precision
from stepscope.analysis.roofline.peaks import Peaks

Bound = Literal["compute", "memory"]
IMPOSSIBLE_RATIO = 1.1
"""A share of the roofline above this is an anomaly."""
NS_PER_S = 1e9


class RooflineGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one operator with the same arguments; unknown figures are null."""

    text_fields: ClassVar[tuple[str, ...]] = (
        *("name", "input_dims", "calls", "device_ns", "time_ratio", "bound", "roofline_ratio"),
    )
    """Fields that a line of text has room for."""
    name: Annotated[str, schema.field_label("operator")]
    family: Family | None
    input_dims: Annotated[str | None, schema.field_label("input shapes")]
    calls: int
    device_ns: Annotated[int, schema.field_label("device time")]
    """Time of all calls: union of the work each one launched; host time without devices."""
    time_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of `computing_ns`."""
    mean_ns: float
    p50_ns: float
    min_ns: int
    max_ns: int
    precision: Precision | None
    """Precision; TF32 if kernels multiplied FP32 operands in TF32."""
    call_flop: Annotated[int | None, schema.field_label("FLOP per call")]
    """Floating-point operations of one call; a multiply-add is two."""
    call_bytes: Annotated[int | None, schema.field_label("moved per call")]
    """Bytes that one call must read and write."""
    intensity_flop_per_byte: Annotated[float | None, schema.field_label("FLOP per byte")]
    achieved_flop_per_s: Annotated[float | None, schema.field_label("achieved")]
    """Operations of all calls divided by their time."""
    achieved_bytes_per_s: Annotated[float | None, schema.field_label("bandwidth")]
    """Bytes of all calls divided by their time."""
    mean_of_calls_flop_per_s: Annotated[float | None, schema.field_label("mean rate of calls")]
    """Mean of the rates of the calls."""
    mean_of_calls_bytes_per_s: Annotated[
        float | None, schema.field_label("mean bandwidth of calls")
    ]
    bound: Annotated[Bound | None, schema.field_label("bound by")]
    """Limit on this device at best."""
    roofline_ns: Annotated[float | None, schema.field_label("time on the roofline")]
    """Minimum time of all calls: the larger of operations / peak and bytes / bandwidth."""
    roofline_ratio: Annotated[float | None, schema.field_label("of the roofline", display="bar")]
    """`roofline_ns` divided by `device_ns`."""
    peak_compute_ratio: Annotated[float | None, schema.field_label("of peak compute")]
    """Operations per second divided by the peak of the unit and precision."""
    peak_bandwidth_ratio: Annotated[float | None, schema.field_label("of peak bandwidth")]
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

    @property
    def lost_ns(self) -> float | None:
        """Time above the roofline: the saving of a perfect kernel."""
        return None if self.roofline_ns is None else max(0.0, self.device_ns - self.roofline_ns)


HOST_COPY_REASON = "copies between host and device are bound by the link between them"


def group_calls(account: Account, peaks: Peaks | None) -> list[RooflineGroup]:
    """Group all calls except collectives by their arguments, by descending time."""
    groups = [
        _measure_group(account, rows, peaks)
        for rows in _split_rows(account)
        if account.busy_ns[rows].any()
    ]
    return sorted(groups, key=lambda group: (-group.device_ns, group.name))


def _split_rows(account: Account) -> Iterator[intervals.Int]:
    """Split rows by signature, and those that copy between host and device from the others."""
    included = np.flatnonzero(~account.communication)
    if not len(included):
        return
    key = account.signature[included] * 2 + account.host_copy[included]
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    yield from np.split(included[order], cuts)


def _measure_group(account: Account, rows: intervals.Int, peaks: Peaks | None) -> RooflineGroup:
    signature = account.signatures[int(account.signature[rows[0]])]
    is_host_copy = bool(account.host_copy[rows[0]]) and signature.family == "movement"
    work = None if is_host_copy else signature.work
    call_ns = account.busy_ns[rows]
    busy_ns, count = int(call_ns.sum()), len(rows)
    precision = work.precision if work is not None else None
    if work is not None and work.matrix and precision == "fp32" and account.tf32[rows].any():
        precision = "tf32"
    rate = None
    if peaks is not None and work is not None and precision is not None:
        rate = peaks.rate(precision, matrix=work.matrix)
    flops = work.flops if work is not None else None
    size_bytes = work.bytes if work is not None else None
    bandwidth = peaks.bytes_per_s if peaks is not None else None
    bound, roofline_ns = _compute_roofline(flops, size_bytes, rate, bandwidth)
    seconds = busy_ns / NS_PER_S
    calls_per_s = (NS_PER_S / call_ns[call_ns > 0]).mean()
    roofline_ratio = roofline_ns * count / busy_ns if roofline_ns is not None else None
    return RooflineGroup(
        name=signature.name,
        family=signature.family,
        input_dims=signature.dims,
        calls=count,
        device_ns=busy_ns,
        time_ratio=busy_ns / account.total_ns,
        mean_ns=busy_ns / count,
        p50_ns=float(np.median(call_ns)),
        min_ns=int(call_ns.min()),
        max_ns=int(call_ns.max()),
        precision=precision,
        call_flop=flops,
        call_bytes=size_bytes,
        intensity_flop_per_byte=flops / size_bytes if flops is not None and size_bytes else None,
        achieved_flop_per_s=flops * count / seconds if flops is not None else None,
        achieved_bytes_per_s=size_bytes * count / seconds if size_bytes is not None else None,
        mean_of_calls_flop_per_s=float(flops * calls_per_s) if flops is not None else None,
        mean_of_calls_bytes_per_s=(
            float(size_bytes * calls_per_s) if size_bytes is not None else None
        ),
        bound=bound,
        roofline_ns=roofline_ns * count if roofline_ns is not None else None,
        roofline_ratio=roofline_ratio,
        peak_compute_ratio=flops * count / seconds / rate if flops and rate else None,
        peak_bandwidth_ratio=(
            size_bytes * count / seconds / bandwidth
            if size_bytes is not None and bandwidth
            else None
        ),
        anomaly=_explain_anomaly(bound, roofline_ratio),
        input_types=signature.types,
        input_strides=signature.strides,
        concrete_inputs=signature.values,
        estimate=signature.work.note if signature.work is not None else None,
        reason=HOST_COPY_REASON if is_host_copy else signature.reason,
    )


def _explain_anomaly(bound: Bound | None, roofline_ratio: float | None) -> str | None:
    if roofline_ratio is None or roofline_ratio <= IMPOSSIBLE_RATIO:
        return None
    if bound == "memory":
        return (
            "faster than memory can deliver: the data came from a cache, or the bytes, the peak or "
            "the clock are wrong"
        )
    return "faster than the unit can compute: the operations, the peak or the clock are wrong"


def _compute_roofline(
    flops: int | None, size_bytes: int | None, rate: float | None, bandwidth: float | None
) -> tuple[Bound | None, float | None]:
    """Compute the bound of one call and its roofline time; None if a needed peak is unknown.

    Work without arithmetic, or with unknown arithmetic, is bound by memory.
    """
    if size_bytes is None or not bandwidth:
        return None, None
    memory_ns = size_bytes / bandwidth * NS_PER_S
    if not flops:
        return "memory", memory_ns
    if not rate:
        return None, None
    compute_ns = flops / rate * NS_PER_S
    return ("compute", compute_ns) if compute_ns >= memory_ns else ("memory", memory_ns)


NO_FAMILY = "without a model"
NO_OPERATOR_FAMILY = "no operator"
"""Work in the window whose operator is unknown, such as that of replayed graphs."""


class FamilyTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of one family of operators."""

    family: str
    device_ns: Annotated[int, schema.field_label("device time")]
    time_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of `computing_ns`."""
    total_flop: Annotated[int | None, schema.field_label("work")]
    total_bytes: Annotated[int | None, schema.field_label("moved")]
    roofline_ratio: Annotated[float | None, schema.field_label("of the roofline", display="bar")]
    """Roofline time divided by device time, over the groups that have both."""


class RooflineGap(msgspec.Struct, frozen=True, kw_only=True):
    """Time that calls of one group would save on their roofline."""

    name: Annotated[str, schema.field_label("operator")]
    input_dims: Annotated[str | None, schema.field_label("input shapes")]
    bound: Annotated[Literal["compute", "memory"] | None, schema.field_label("bound by")]
    saved_ns: float
    saved_ratio: Annotated[float | None, schema.field_label("share", display="bar")]
    """Share of `computing_ns`."""
    roofline_ratio: Annotated[float | None, schema.field_label("of the roofline")]


def sum_families(
    groups: Sequence[RooflineGroup], total_ns: int, *, no_operator_ns: int = 0
) -> list[FamilyTotals]:
    """Sum groups by family, by descending time; work without an operator is one of its own.

    Args:
        groups: groups of one trace.
        total_ns: denominator of the shares.
        no_operator_ns: time of the work whose operator is unknown, part of `total_ns`.
    """
    families: dict[str, list[RooflineGroup]] = {}
    for group in groups:
        families.setdefault(group.family or NO_FAMILY, []).append(group)
    totals = [_sum_family(name, members, total_ns) for name, members in families.items()]
    if no_operator_ns:
        totals.append(
            FamilyTotals(
                family=NO_OPERATOR_FAMILY,
                device_ns=no_operator_ns,
                time_ratio=no_operator_ns / total_ns,
                total_flop=None,
                total_bytes=None,
                roofline_ratio=None,
            )
        )
    return sorted(totals, key=lambda family: -family.device_ns)


def _sum_family(name: str, groups: Sequence[RooflineGroup], total_ns: int) -> FamilyTotals:
    busy_ns = sum(group.device_ns for group in groups)
    bounded = [group for group in groups if group.roofline_ns is not None]
    bounded_ns = sum(group.device_ns for group in bounded)
    roofline_ns = sum(group.roofline_ns or 0.0 for group in bounded)
    return FamilyTotals(
        family=name,
        device_ns=busy_ns,
        time_ratio=busy_ns / total_ns,
        total_flop=_sum([g.call_flop * g.calls for g in groups if g.call_flop is not None]),
        total_bytes=_sum([g.call_bytes * g.calls for g in groups if g.call_bytes is not None]),
        roofline_ratio=roofline_ns / bounded_ns if bounded_ns else None,
    )


def _sum(values: Sequence[int]) -> int | None:
    return sum(values) if values else None


def find_largest_gaps(
    groups: Sequence[RooflineGroup], total_ns: int, *, top: int
) -> list[RooflineGap]:
    """Find the groups with most time above their roofline, the largest first.

    Args:
        groups: groups of one trace.
        total_ns: denominator of the shares.
        top: limit of the gaps.
    """
    gaps = [
        RooflineGap(
            name=group.name,
            input_dims=group.input_dims,
            bound=group.bound,
            saved_ns=group.lost_ns,
            saved_ratio=group.lost_ns / total_ns,
            roofline_ratio=group.roofline_ratio,
        )
        for group in groups
        if group.lost_ns and group.roofline_ratio is not None
    ]
    return sorted(gaps, key=lambda gap: -gap.saved_ns)[:top]
