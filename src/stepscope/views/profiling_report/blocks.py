"""Blocks of a report: texts, tables and charts, ready to be drawn.

Code that draws a block needs no knowledge of rules or metrics: numbers have a unit and a number of
decimals, shares name their total, and shortened lists state the number of omitted items.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stepscope import rules, schema
from stepscope.views.system import HeatRow

Tone = Literal["plain", "note", "warning", "missing"]
"""`missing` is a placeholder for data that were not recorded, with the way to record them."""
Cell = str | int | float | None


class Text(msgspec.Struct, frozen=True, kw_only=True, tag="text", tag_field="kind"):
    """A paragraph."""

    text: str
    tone: Tone = "plain"


class Listing(msgspec.Struct, frozen=True, kw_only=True, tag="listing", tag_field="kind"):
    """List of sentences."""

    items: list[str]


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check", tag_field="kind"):
    """Check of a rule with its result."""

    rule: str
    status: schema.RuleStatus
    summary: str
    """Subject of the check, and the number of datapoints that it needs."""
    parameters: dict[str, str]
    datapoints: Annotated[int, schema.field_label("data points", unit="count")]
    violations: Annotated[int, schema.field_label(unit="count")]
    triggered: Annotated[int, schema.field_label("triggers", unit="count")]
    """Scans in which the condition held."""
    last_at: str | None
    """Time at which it fired last."""
    recommendation: str | None
    """Recommendation, if it fired."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """Column of a table."""

    label: str
    unit: str = ""
    digits: Annotated[int | None, schema.field_label(unit="count")] = None
    """Decimals of its numbers; null for a column of text."""


class Table(msgspec.Struct, frozen=True, kw_only=True, tag="table", tag_field="kind"):
    """Rows of cells, one per column; a null cell is a missing value."""

    title: str
    columns: list[Column]
    rows: Annotated[list[list[Cell]], schema.field_label(unit="inherited")]
    share_of: str | None = None
    """Total of the percentages."""
    more: str | None = None
    """Omitted rows."""


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """Part of a pie."""

    name: str
    share_ratio: float


class Pie(msgspec.Struct, frozen=True, kw_only=True, tag="pie", tag_field="kind"):
    """Parts that add up to a whole."""

    title: str
    share_of: str
    slices: list[Slice]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Marked value of a chart."""

    name: str
    value: float


class Bars(msgspec.Struct, frozen=True, kw_only=True):
    """One series of a histogram."""

    name: str
    counts: Annotated[list[int], schema.field_label("values per bin", unit="count")]
    below_count: Annotated[int, schema.field_label("values below")] = 0
    above_count: Annotated[int, schema.field_label("values above")] = 0
    """Values outside of the bins."""


class Histogram(msgspec.Struct, frozen=True, kw_only=True, tag="histogram", tag_field="kind"):
    """Count of values per bin; series overlap."""

    title: str
    axis: str
    unit: str
    digits: Annotated[int, schema.field_label(unit="count")]
    counted: str
    """Counted items, such as `steps`."""
    edges: Annotated[list[float], schema.field_label("edges of bins", unit="inherited")]
    """Edges of the bins, one more than bins."""
    series: list[Bars]
    marks: list[Mark] = []
    more: str | None = None


class Boxes(msgspec.Struct, frozen=True, kw_only=True, tag="boxes", tag_field="kind"):
    """Box plots of percentages on one scale from 0 to 100."""

    title: str
    axis: str
    boxes: Annotated[dict[str, rules.BoxPlot], schema.field_label(unit="percent")]
    marks: list[Mark] = []
    """Thresholds."""
    more: str | None = None


class Heatmap(msgspec.Struct, frozen=True, kw_only=True, tag="heatmap", tag_field="kind"):
    """Metrics of a node over time; a column is a mean over `column_ns`."""

    title: str
    start: str
    """Start of the first column."""
    column_ns: int
    rows: list[HeatRow]
    more: str | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One series over another quantity."""

    name: str
    x: Annotated[list[float], schema.field_label(unit="inherited")]
    y: Annotated[list[float], schema.field_label(unit="inherited")]


class Lines(msgspec.Struct, frozen=True, kw_only=True, tag="lines", tag_field="kind"):
    """Values over time."""

    title: str
    x_axis: str
    y_axis: str
    unit: str
    digits: Annotated[int, schema.field_label(unit="count")]
    lines: list[Line]
    note: str | None = None
    """Rule by which values were omitted."""
    more: str | None = None


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """One series of `Curves`."""

    name: str
    x: Annotated[list[float | None], schema.field_label(unit="inherited")]
    y: Annotated[list[float | None], schema.field_label(unit="inherited")]


class Curves(msgspec.Struct, frozen=True, kw_only=True, tag="curves", tag_field="kind"):
    """Values over rounds, or over another number."""

    title: str
    x_axis: str
    x_unit: schema.Unit
    y_axis: str
    y_unit: schema.Unit
    curves: list[Curve]
    note: str | None = None
    more: str | None = None


class BarChart(msgspec.Struct, frozen=True, kw_only=True, tag="bar_chart", tag_field="kind"):
    """One number of each of several items, as horizontal bars."""

    title: str
    item: str
    """Noun for an item, such as `feature`."""
    axis: str
    unit: schema.Unit
    names: list[str]
    values: Annotated[list[float | None], schema.field_label(unit="inherited")]
    note: str | None = None
    more: str | None = None


class Matrix(msgspec.Struct, frozen=True, kw_only=True, tag="matrix", tag_field="kind"):
    """Numbers by row and column, as colors."""

    title: str
    row: str
    """Noun for a row, such as `true class`."""
    column: str
    axis: str
    unit: schema.Unit
    rows: list[str]
    columns: list[str]
    values: Annotated[list[list[float | None]], schema.field_label(unit="inherited")]
    note: str | None = None
    more: str | None = None


Chart = BarChart | Boxes | Curves | Heatmap | Histogram | Lines | Matrix | Pie
Block = Text | Listing | Check | Table | Chart


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Heading with blocks and nested sections."""

    id: str
    title: str
    blocks: list[Block] = []
    sections: list[Section] = []
