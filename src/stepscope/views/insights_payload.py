"""What the view `insights` says."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from stepscope.schema import Delivery, Progress, RuleStatus
from stepscope.views.ranges import Ranged


class RuleParameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of a rule."""

    name: str
    value: str
    """With which the rule was evaluated."""
    default: str | None
    """Null for a rule that is not installed here."""
    takes: str
    doc: str


class EvidenceSeries(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured around the time of a finding, thinned out to means of pieces of time."""

    name: str
    node: str
    device: str
    """Core or GPU number, or rank; empty for the whole node."""
    after_ns: list[int]
    """After the run's origin."""
    value: list[float | None]
    """Null where nothing was measured."""


class EvidenceChart(msgspec.Struct, frozen=True, kw_only=True):
    """One picture of a finding."""

    title: str
    unit: str
    """Of its values: `ratio`, `ns`, `bytes`, …"""
    from_after_ns: int
    to_after_ns: int
    series: list[EvidenceSeries]
    left_out_count: int
    """Series that are not shown, where there are many."""


class RuleInsight(msgspec.Struct, frozen=True, kw_only=True):
    """One rule and what it found."""

    rule: str
    summary: str
    status: RuleStatus
    triggered_count: int
    violation_count: int
    datapoint_count: int
    first_after_ns: int | None
    """End of the first scan in which it fired, after the run's origin."""
    last_after_ns: int | None
    sentences: list[str]
    recommendation: str
    nodes: list[str]
    ranks: list[str]
    devices: list[str]
    evidence: list[str]
    """Views that show it."""
    charts: list[EvidenceChart]
    """Of a rule that fired: what was measured at that time."""
    parameters: list[RuleParameter]
    page: str
    """Markdown."""
    details: dict[str, Any]
    """The numbers behind the sentences."""
    missing: str | None
    """What the rule needs and the run does not have."""
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
    """The payload."""

    source: Literal["recorded", "evaluated now"]
    """Whether rules were evaluated while the job ran, or have been for this answer."""
    progress: Progress
    until_after_ns: int | None
    """Up to when the run was looked at."""
    scan_ns: int
    """A rule triggers once in each scan in which its condition holds."""
    fired: list[str]
    """Rules that fired in the range."""
    fired_count: int
    """Rules that fired in the whole run."""
    rules: list[RuleInsight]
    """Those that fired first, each lot by how often. Rules that fired, but not in the range, are
    left out."""
    deliveries: list[Delivery]
    """Who was told of them while the job ran."""
    notes: list[str]
    missing: str | None
