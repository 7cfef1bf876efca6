"""Details of findings: one struct per rule, defined in the file of the rule.

A finding holds them as plain data. Every field has a default: a run that an older version wrote
may lack some, and fields that this version does not know are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from stepscope.schema import Finding, field_label

D = TypeVar("D", bound=msgspec.Struct)


class BoxPlot(msgspec.Struct, frozen=True):
    """Quartiles, whiskers and extremes of some values.

    The whiskers extend 1.5 interquartile ranges from the quartiles, at most to the extremes.
    """

    count: int = 0
    """Number of values."""
    min: float = 0.0
    p5: Annotated[float, field_label(unit="inherited")] = 0.0
    p25: float = 0.0
    p50: float = 0.0
    p75: float = 0.0
    p95: float = 0.0
    max: float = 0.0
    whisker_low: Annotated[float, field_label("lower whisker", unit="inherited")] = 0.0
    whisker_high: Annotated[float, field_label("upper whisker", unit="inherited")] = 0.0


class HistogramCounts(msgspec.Struct, frozen=True):
    """Histogram of durations with bins of equal width."""

    edges_s: list[float] = []
    """Edges of the bins in seconds, one more than there are bins."""
    counts: list[int] = []
    """Values per bin."""


def to_plain_data(details: msgspec.Struct | Mapping[str, Any] | None) -> dict[str, Any]:
    """Convert details to the plain data that a finding holds."""
    data: dict[str, Any] = msgspec.to_builtins(details or {}, str_keys=True)
    return data


def read_details(finding: Finding, details_type: type[D]) -> D | None:
    """Read the details of a finding; None if it has none, as for a rule that did not apply."""
    return msgspec.convert(finding.details, details_type) if finding.details else None
