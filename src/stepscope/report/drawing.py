"""Charts as SVG pictures, where Matplotlib is installed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from stepscope.views import profiling_report

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c", "#c9b800")
"""Palette that is distinguishable with any colour vision (Okabe and Ito, 2008)."""
_STYLES = ("-", "--", ":")
_WIDTH, _HEIGHT = 7.5, 3.2
_MAX_LABEL_LENGTH = 40


def draw_chart(chart: profiling_report.Chart) -> str | None:
    """Draw a chart as SVG; None without Matplotlib."""
    if find_spec("matplotlib") is None:
        return None
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = (
        len(chart.rows)
        if isinstance(chart, profiling_report.Heatmap | profiling_report.Matrix)
        else 0
    )
    rows = len(chart.names) if isinstance(chart, profiling_report.BarChart) else rows
    # Without pyplot, so that the settings of the notebook stay unchanged.
    with rc_context({"svg.fonttype": "path", "font.size": 9}):
        figure = Figure(figsize=(_WIDTH, max(_HEIGHT, 0.8 + 0.18 * rows)), layout="constrained")
        axes = figure.subplots()
        _DRAW[type(chart)](axes, chart)
        text = io.StringIO()
        figure.savefig(text, format="svg")
    svg = text.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)


def _draw_pie(axes: Any, chart: profiling_report.Pie) -> None:
    shares = [wedge.share_ratio for wedge in chart.slices]
    wedges, *_ = axes.pie(
        shares, colors=COLOURS, wedgeprops={"width": 0.4, "edgecolor": "white"}, startangle=90
    )
    names = [f"{_plain(wedge.name)} {wedge.share_ratio:.1%}" for wedge in chart.slices]
    axes.legend(wedges, names, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _draw_histogram(axes: Any, chart: profiling_report.Histogram) -> None:
    for index, bars in enumerate(chart.series):
        axes.stairs(
            bars.counts,
            chart.edges,
            label=_plain(bars.name),
            fill=len(chart.series) == 1,
            color=COLOURS[index % len(COLOURS)],
            linestyle=_STYLES[index % len(_STYLES)],
        )
    for mark in chart.marks:
        axes.axvline(mark.value, color="black", linestyle="--", linewidth=0.8)
        axes.text(mark.value, 1, _plain(mark.name), transform=axes.get_xaxis_transform())
    axes.set_xlabel(f"{chart.axis} ({chart.unit})")
    axes.set_ylabel(chart.counted)
    _add_legend(axes, len(chart.series))


def _draw_boxes(axes: Any, chart: profiling_report.Boxes) -> None:
    stats = [
        {
            "label": _plain(name),
            "med": box.p50,
            "q1": box.p25,
            "q3": box.p75,
            "whislo": box.whisker_low,
            "whishi": box.whisker_high,
            "fliers": [box.min, box.max],
        }
        for name, box in chart.boxes.items()
    ]
    axes.bxp(stats)
    positions = range(1, len(chart.boxes) + 1)
    axes.plot(
        positions, [box.p95 for box in chart.boxes.values()], "D", color=COLOURS[1], label="p95"
    )
    for mark in chart.marks:
        axes.axhline(mark.value, color="black", linestyle="--", linewidth=0.8)
    axes.set_ylim(0, 100)
    axes.set_ylabel(chart.axis)
    axes.tick_params("x", rotation=35 if len(chart.boxes) > 6 else 0)
    _add_legend(axes, 2)


def _draw_heatmap(axes: Any, chart: profiling_report.Heatmap) -> None:
    grid = [
        [float("nan") if shade is None else 100 * shade for shade in row.shade_ratio]
        for row in chart.rows
    ]
    extent = (0, max(map(len, grid)) * chart.column_ns / 1e9, len(chart.rows), 0)
    image = axes.imshow(grid, aspect="auto", cmap="viridis", vmin=0, vmax=100, extent=extent)
    axes.set_yticks([index + 0.5 for index in range(len(chart.rows))])
    axes.set_yticklabels([_plain(row.name) for row in chart.rows], fontsize=7)
    axes.set_xlabel("seconds since the start")
    axes.figure.colorbar(image, ax=axes, label="%")


def _draw_lines(axes: Any, chart: profiling_report.Lines) -> None:
    for index, line in enumerate(chart.lines):
        style = _STYLES[index % len(_STYLES)]
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(line.x, line.y, style, color=colour, linewidth=0.8, label=_plain(line.name))
    axes.set_ylim(bottom=0)
    axes.set_xlabel(chart.x_axis)
    axes.set_ylabel(f"{chart.y_axis} ({chart.unit})")
    _add_legend(axes, len(chart.lines))


def _draw_curves(axes: Any, chart: profiling_report.Curves) -> None:
    for index, curve in enumerate(chart.curves):
        axes.plot(
            _numbers(curve.x, chart.x_unit),
            _numbers(curve.y, chart.y_unit),
            _STYLES[index % len(_STYLES)],
            color=COLOURS[index % len(COLOURS)],
            linewidth=1,
            marker=".",
            label=_plain(curve.name),
        )
    axes.set_xlabel(_label(chart.x_axis, chart.x_unit))
    axes.set_ylabel(_label(chart.y_axis, chart.y_unit))
    _add_legend(axes, len(chart.curves))


def _draw_bar_chart(axes: Any, chart: profiling_report.BarChart) -> None:
    axes.barh(range(len(chart.names)), _numbers(chart.values, chart.unit), color=COLOURS[0])
    axes.set_yticks(range(len(chart.names)))
    axes.set_yticklabels([_plain(name) for name in chart.names], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(_label(chart.axis, chart.unit))


def _draw_matrix(axes: Any, chart: profiling_report.Matrix) -> None:
    grid = [_numbers(row, chart.unit) for row in chart.values]
    image = axes.imshow(grid, aspect="auto", cmap="viridis")
    axes.set_yticks(range(len(chart.rows)))
    axes.set_yticklabels([_plain(name) for name in chart.rows], fontsize=7)
    axes.set_xticks(range(len(chart.columns)))
    axes.set_xticklabels([_plain(name) for name in chart.columns], fontsize=7, rotation=35)
    axes.set_ylabel(chart.row)
    axes.set_xlabel(chart.column)
    axes.figure.colorbar(image, ax=axes, label=_label(chart.axis, chart.unit))


def _numbers(values: list[float | None], unit: str) -> list[float]:
    scale = 100 if unit == "ratio" else 1
    return [float("nan") if value is None else scale * value for value in values]


def _label(name: str, unit: str) -> str:
    return f"{name} (%)" if unit == "ratio" else name


def _add_legend(axes: Any, count: int) -> None:
    if count > 1:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _plain(text: str) -> str:
    """Shorten a text and escape the characters with which Matplotlib starts a formula."""
    short = text if len(text) <= _MAX_LABEL_LENGTH else f"{text[: _MAX_LABEL_LENGTH - 1]}…"
    return short.replace("$", r"\$")


_DRAW: dict[type, Callable[[Any, Any], None]] = {
    profiling_report.BarChart: _draw_bar_chart,
    profiling_report.Curves: _draw_curves,
    profiling_report.Matrix: _draw_matrix,
    profiling_report.Pie: _draw_pie,
    profiling_report.Histogram: _draw_histogram,
    profiling_report.Boxes: _draw_boxes,
    profiling_report.Heatmap: _draw_heatmap,
    profiling_report.Lines: _draw_lines,
}
