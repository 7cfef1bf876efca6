"""Charts as tables, for environments that cannot draw them."""

from __future__ import annotations

from stepscope.quantities import in_unit
from stepscope.schema import Unit
from stepscope.views.profiling_report import (
    BarChart,
    Boxes,
    Cell,
    Chart,
    Column,
    Curves,
    Heatmap,
    Histogram,
    Lines,
    Matrix,
    Pie,
    Table,
)

_BOX = ("min", "p25", "p50", "p75", "p95", "max")
_EXTREMES = ("min", "mean", "max")


def make_chart_table(chart: Chart) -> Table:
    """Convert a chart to a table; of a heat map, the extremes and means of its rows."""
    match chart:
        case Pie():
            columns = [Column(label="name"), Column(label="share", unit="%", digits=2)]
            rows: list[list[Cell]] = [[s.name, 100 * s.share_ratio] for s in chart.slices]
            return Table(title=chart.title, columns=columns, rows=rows, share_of=chart.share_of)
        case Histogram():
            columns, rows = _tabulate_histogram(chart)
        case Boxes():
            columns = [Column(label="name"), Column(label="samples", digits=0)]
            columns += [Column(label=name, unit="%", digits=2) for name in _BOX]
            rows = [
                [name, box.count, *(getattr(box, figure) for figure in _BOX)]
                for name, box in chart.boxes.items()
            ]
        case Heatmap():
            columns = [Column(label=name) for name in ("row", *_EXTREMES)]
            rows = [
                [row.name, *_format_extremes(row.shade_ratio, row.full, row.unit)]
                for row in chart.rows
            ]
        case Curves():
            columns = [
                Column(label="name"),
                _number_column(chart.x_axis, chart.x_unit),
                _number_column(chart.y_axis, chart.y_unit),
            ]
            rows = [
                [curve.name, _scale(x, chart.x_unit), _scale(y, chart.y_unit)]
                for curve in chart.curves
                for x, y in zip(curve.x, curve.y, strict=True)
            ]
        case BarChart():
            columns = [Column(label=chart.item), _number_column(chart.axis, chart.unit)]
            rows = [
                [name, _scale(value, chart.unit)]
                for name, value in zip(chart.names, chart.values, strict=True)
            ]
        case Matrix():
            columns = [
                Column(label=chart.row),
                *(_number_column(name, chart.unit) for name in chart.columns),
            ]
            rows = [
                [name, *(_scale(value, chart.unit) for value in values)]
                for name, values in zip(chart.rows, chart.values, strict=True)
            ]
        case Lines():
            columns = [
                Column(label="name"),
                Column(label="time", unit="s", digits=2),
                Column(label=chart.y_axis, unit=chart.unit, digits=chart.digits),
            ]
            rows = [
                [line.name, *point]
                for line in chart.lines
                for point in zip(line.x, line.y, strict=True)
            ]
    return Table(title=chart.title, columns=columns, rows=rows, more=chart.more)


def _number_column(label: str, unit: Unit) -> Column:
    """Make a column of numbers in a unit; of counts without decimals."""
    if unit == "ratio":
        return Column(label=label, unit="%", digits=1)
    return Column(label=label, digits=0 if unit == "count" else 4)


def _scale(value: float | None, unit: Unit) -> float | None:
    return 100 * value if value is not None and unit == "ratio" else value


def _tabulate_histogram(chart: Histogram) -> tuple[list[Column], list[list[Cell]]]:
    edges = [Column(label=side, unit=chart.unit, digits=chart.digits) for side in ("from", "to")]
    columns = [*edges, *(Column(label=bars.name, digits=0) for bars in chart.series)]
    rows: list[list[Cell]] = [
        [low, high, *(bars.counts[index] for bars in chart.series)]
        for index, (low, high) in enumerate(zip(chart.edges[:-1], chart.edges[1:], strict=True))
        if any(bars.counts[index] for bars in chart.series)
    ]
    return columns, rows


def _format_extremes(shades: list[float | None], full: float, unit: str) -> list[str]:
    values = [full * shade for shade in shades if shade is not None]
    extremes = (min(values), sum(values) / len(values), max(values)) if values else (None,) * 3
    return [in_unit(value, unit) for value in extremes]
