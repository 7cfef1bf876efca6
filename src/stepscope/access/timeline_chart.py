"""Metrics over time in a notebook, where dragging selects a range and lists its events; steps.

The chart is a widget of anywidget, which works in JupyterLab, Notebook, VS Code and Colab; its
script is built from `web/src/notebook`. Without anywidget, ranges are selected by `select`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Any

import msgspec

from stepscope import analysis, assets, errors, intervals, schema
from stepscope.access.recorded import Moment
from stepscope.access.run_frames import RunFrames
from stepscope.errors import require
from stepscope.run import Bins, BinSeries, Frame, Rank, select_longest

TIMELINE_METRICS = tuple(
    metric for metric in analysis.HEATMAP_METRICS if metric != "core_busy_ratio"
)
"""Metrics of the chart; the cores would take a row each."""
MAX_BINS = 700
"""About one bin per pixel."""
MAX_LISTED_EVENTS = 500
"""Limit of the events that the widget lists."""
_NOT_BUILT = (
    "This installation lacks the built web files. Run `make web` in the source tree (or "
    "`pip install .`), or select a range with `.select(start, end)`."
)


class TimelineChart:
    """Chart of metrics over time with a selected range.

    In a notebook, dragging over the chart selects a range, and a double click clears it (extra
    `notebook`). `select` does the same anywhere.
    """

    def __init__(self, run: RunFrames, bins: Bins, series: Iterable[BinSeries]) -> None:
        self._run = run
        self._bins = bins
        self._series = list(series)
        self._selection: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"TimelineChart({len(self._series)} rows, selection={self._selection})"

    @property
    def selection(self) -> tuple[int, int] | None:
        """Start and end of the selected range in epoch nanoseconds; None without one."""
        return self._selection

    def select(self, start: Moment, end: Moment) -> TimelineChart:
        """Select a range, which a shown chart follows; returns the chart.

        Raises:
            UsageError: the range ends before it starts.
        """
        first, last = self._run._moment(start), self._run._moment(end)
        if first is None or last is None or first >= last:
            raise errors.UsageError("The range ends before it starts.")
        self._select((first, last))
        return self

    def clear(self) -> None:
        """Clear the selection."""
        self._select(None)

    def events(self, **filters: Any) -> Frame:
        """Return the spans that overlap the selection; accepts the other arguments of
        `OpenRun.framework`, such as `kind` and `name`.

        Raises:
            UsageError: no range is selected.
        """
        start, end = self._selected
        return self._run.framework(start=start, end=end, **filters)

    def trace_events(self, **filters: Any) -> Frame:
        """Return the events of windows and imported traces that overlap the selection; accepts the
        other arguments of `OpenRun.trace_events`.

        Raises:
            UsageError: no range is selected.
        """
        start, end = self._selected
        return self._run.trace_events(start=start, end=end, **filters)

    def system(self, **filters: Any) -> Frame:
        """Return the samples in the selection; accepts the other arguments of `OpenRun.system`.

        Raises:
            UsageError: no range is selected.
        """
        start, end = self._selected
        return self._run.system(start=start, end=end, **filters)

    @cached_property
    def widget(self) -> Any:
        """The `anywidget.AnyWidget` that a notebook shows.

        Raises:
            UsageError: anywidget is not installed, or the web files are not built.
        """
        widget = _widget_class()(payload=self._payload, **self._state)
        widget.observe(self._follow_widget, names="selection")
        return widget

    def _repr_mimebundle_(self, **options: Any) -> Any:
        try:
            return self.widget._repr_mimebundle_(**options)
        except errors.UsageError as error:
            return {"text/plain": f"{self!r}\n{error}"}

    @property
    def _selected(self) -> tuple[int, int]:
        if self._selection is None:
            raise errors.UsageError(
                "No range is selected: drag over the chart, or call `.select(start, end)`."
            )
        return self._selection

    def _select(self, selection: tuple[int, int] | None) -> None:
        self._selection = selection
        if "widget" in self.__dict__:
            for name, value in self._state.items():
                setattr(self.widget, name, value)

    def _follow_widget(self, change: Any) -> None:
        """Take over a selection that was made in the notebook, and list its events there."""
        offsets = [int(offset) for offset in change["new"]]
        start_ns = self._bins.start_ns
        selection = (start_ns + offsets[0], start_ns + offsets[1]) if len(offsets) == 2 else None
        if selection != self._selection:
            self._select(selection)

    @property
    def _payload(self) -> dict[str, Any]:
        start = datetime.fromtimestamp(self._bins.start_ns / 1e9, UTC)
        several_nodes = len({series.node for series in self._series}) > 1
        return {
            "start": f"{start:%Y-%m-%d %H:%M:%S} UTC",
            "duration_ns": self._bins.width_ns * self._bins.count,
            "bin_ns": self._bins.width_ns,
            "rows": [_make_row(series, with_node=several_nodes) for series in self._series],
        }

    @property
    def _state(self) -> dict[str, Any]:
        """State of the widget that changes: the selection and its events."""
        if self._selection is None:
            return {"events": {"count": 0, "listed": []}, "selection": []}
        spans, events = self.events(), self.trace_events()
        listed = [
            {
                "name": row["name"] or row.get("kind", ""),
                "kind": row.get("kind") or row["table"],
                "rank": row["rank"],
                "start_ns": row["start_ns"] - self._bins.start_ns,
                "duration_ns": row["duration_ns"],
            }
            for frame in (spans, events)
            for row in select_longest(frame, MAX_LISTED_EVENTS).rows()
        ]
        listed.sort(key=lambda event: -(event["duration_ns"] or 0))
        return {
            "events": {"count": len(spans) + len(events), "listed": listed[:MAX_LISTED_EVENTS]},
            "selection": [time - self._bins.start_ns for time in self._selection],
        }


def _make_row(series: BinSeries, *, with_node: bool) -> dict[str, Any]:
    values = [None if math.isnan(value) else value for value in series.mean.tolist()]
    unit = schema.METRIC_TYPES[series.metric].unit
    names = (series.metric, series.device, series.node if with_node else "")
    maximum = max((value for value in values if value is not None), default=0.0)
    return {
        "label": " ".join(name for name in names if name),
        "unit": unit,
        "values": values,
        "scale": 1.0 if unit == "ratio" else maximum,
    }


@cache
def _widget_class() -> Any:
    """Make the class of the widget, which needs anywidget."""
    anywidget = require(
        "anywidget", extra="notebook", alternative="select a range with `.select(start, end)`"
    )
    traitlets = require("traitlets", extra="notebook")
    try:
        script, style = (assets.read_web_asset(f"timeline_widget.{form}") for form in ("js", "css"))
    except FileNotFoundError as error:
        raise errors.UsageError(_NOT_BUILT) from error

    class TimelineWidget(anywidget.AnyWidget):  # type: ignore[name-defined,misc]
        _esm = script
        _css = style
        payload = traitlets.Dict().tag(sync=True)
        selection = traitlets.List().tag(sync=True)
        events = traitlets.Dict().tag(sync=True)

    return TimelineWidget


class RankTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one rank; arrays have one entry per step, numbered from 0."""

    rank: str
    node: str
    step: intervals.Int
    start_ns: intervals.Int
    duration_ns: intervals.Int
    """Without evaluation."""
    measured: intervals.Mask
    """False in warm-up, which is slow, and under a profiler."""


class StepTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """Durations of steps over time."""

    ranks: list[RankTimeline]


def step_timeline(ranks: Iterable[Rank]) -> StepTimeline:
    """Return the steps of some ranks over time."""
    return StepTimeline(
        ranks=[
            RankTimeline(
                rank=rank.name,
                node=rank.process.node,
                step=rank.steps.number,
                start_ns=rank.steps.range_start,
                duration_ns=rank.steps.duration_ns,
                measured=rank.steps.measured(),
            )
            for rank in ranks
        ]
    )
