"""Payload of `insights`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from stepscope.schema import Delivery, Progress, RuleStatus, field_label
from stepscope.views.ranges import Ranged


class RuleParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a rule."""

    name: str
    value: str
    """Value with which the rule was evaluated."""
    default: str | None
    """Default; null for a rule that is not installed here."""
    takes: str
    doc: Annotated[str, field_label("meaning")]


class EvidenceSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements around the time of a finding, averaged in bins of time."""

    name: str
    node: str
    device: str
    """Core or GPU number, or rank; empty for the whole node."""
    after_ns: list[int]
    """Times after the run's origin."""
    value: list[float | None]
    """Null where nothing was measured."""


class EvidenceChart(msgspec.Struct, frozen=True, kw_only=True):
    """One chart of a finding."""

    title: str
    unit: str
    """Unit of the values: `ratio`, `ns`, `bytes`, …"""
    from_after_ns: int
    to_after_ns: int
    series: list[EvidenceSeries]
    left_out_count: Annotated[int, field_label("omitted series")]
    """Series that exceed the limit and are omitted."""


class RuleInsight(msgspec.Struct, frozen=True, kw_only=True):
    """One rule and its finding."""

    rule: str
    summary: Annotated[str, field_label("description")]
    status: RuleStatus
    triggered_count: Annotated[int, field_label("triggers")]
    violation_count: int
    datapoint_count: Annotated[int, field_label("data points")]
    first_after_ns: int | None
    """Start of the first data that violated the condition, after the run's origin; null if the rule
    has not fired."""
    last_after_ns: int | None
    """End of the last data that violated it."""
    sentences: list[str]
    recommendation: str
    nodes: list[str]
    ranks: list[str]
    devices: list[str]
    evidence: list[str]
    """Views that show the evidence."""
    charts: list[EvidenceChart]
    """Measurements at that time, for a rule that fired."""
    parameters: list[RuleParameter]
    page: str
    """Documentation of the rule, in Markdown."""
    details: dict[str, Any]
    """Figures behind the sentences."""
    missing: str | None
    """Data that the rule needs and the run does not have."""
    error: str | None

    text_fields = (
        "rule",
        "status",
        "triggered_count",
        "violation_count",
        "datapoint_count",
        "summary",
    )


class InsightsView(Ranged, frozen=True, kw_only=True):
    """Payload of `insights`."""

    source: Literal["recorded", "evaluated now"]
    """Time of evaluation: while the job ran, or for this answer."""
    progress: Progress
    until_after_ns: int | None
    """End of the evaluated time, after the run's origin."""
    scan_ns: int
    """Interval of scans; a rule triggers once in each scan in which its condition holds."""
    fired: list[str]
    """Rules that fired in the range."""
    fired_count: int
    """Rules that fired in the whole run."""
    rules: list[RuleInsight]
    """Rules that fired first, then the others, by trigger count. Rules that fired outside the range
    only are omitted."""
    deliveries: list[Delivery]
    """Notifications sent while the job ran."""
    notes: list[str]
    missing: str | None
