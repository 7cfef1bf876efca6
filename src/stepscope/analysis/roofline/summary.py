"""Groups of calls, summed by family and sorted by the time above the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from stepscope.analysis.roofline.groups import RooflineGroup
from stepscope.schema import field_label

NO_FAMILY = "without a model"
NO_OPERATOR_FAMILY = "no operator"
"""Work in the window whose operator is unknown, such as that of replayed graphs."""


class FamilyTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of one family of operators."""

    family: str
    device_ns: Annotated[int, field_label("device time")]
    time_ratio: Annotated[float | None, field_label("share", display="bar")]
    """Share of `computing_ns`."""
    total_flop: Annotated[int | None, field_label("work")]
    total_bytes: Annotated[int | None, field_label("moved")]
    roofline_ratio: Annotated[float | None, field_label("of the roofline", display="bar")]
    """Roofline time divided by device time, over the groups that have both."""


class RooflineGap(msgspec.Struct, frozen=True, kw_only=True):
    """Time that calls of one group would save on their roofline."""

    name: Annotated[str, field_label("operator")]
    input_dims: Annotated[str | None, field_label("input shapes")]
    bound: Annotated[Literal["compute", "memory"] | None, field_label("bound by")]
    saved_ns: float
    saved_ratio: Annotated[float | None, field_label("share", display="bar")]
    """Share of `computing_ns`."""
    roofline_ratio: Annotated[float | None, field_label("of the roofline")]


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
