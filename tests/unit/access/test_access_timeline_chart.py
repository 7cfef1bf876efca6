"""The timeline of a notebook: its rows, and the events of a selected range."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest

from stepscope.access import OpenRun, timeline_chart
from stepscope.errors import UsageError
from tests.support.access_run import MS

pytestmark = pytest.mark.seed("DBU-08")


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["process"], row["kind"], row["start_ns"]


def test_events_of_a_selection(run: OpenRun) -> None:
    chart = run.timeline().select(timedelta(milliseconds=55), timedelta(milliseconds=75))
    start, end = run.start_ns + 55 * MS, run.start_ns + 75 * MS
    assert chart.selection == (start, end)
    expected = [
        key(r) for r in run.framework().rows() if r["start_ns"] < end and r["end_ns"] > start
    ]
    assert [key(row) for row in chart.events().rows()] == expected
    assert {row["kind"] for row in chart.events(kind="forward", rank=0).rows()} == {"forward"}
    assert not len(chart.trace_events())
    chart.select(start, start + 10**9)
    samples = [r for r in run.system().rows() if start <= r["t_ns"] < start + 10**9]
    assert chart.system().rows() == samples
    chart.clear()
    assert chart.selection is None
    with pytest.raises(UsageError, match="No range is selected: drag over the chart"):
        chart.events()
    with pytest.raises(UsageError, match="The range ends before it starts"):
        chart.select(end, start)


def test_a_selection_in_the_widget(run: OpenRun) -> None:
    """The widget states offsets; the same selection by either way gives the same state."""
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    chart = run.timeline()
    widget = chart.widget
    rows = {row["label"]: row for row in widget.payload["rows"]}
    assert set(rows) == {
        "gpu_busy_ratio 0", "gpu_busy_ratio 1", "cpu_busy_ratio", "memory_used_bytes",
    }  # fmt: skip
    assert set(rows["cpu_busy_ratio"]["values"]) == {0.5}
    assert rows["memory_used_bytes"]["scale"] == 1 << 30
    origin = run.start_ns  # the bins start with the job
    widget.selection = [55 * MS, 75 * MS]
    assert chart.selection == (origin + 55 * MS, origin + 75 * MS)
    events = chart.events().rows()
    assert widget.events["count"] == len(events)
    assert sorted((e["kind"], e["start_ns"]) for e in widget.events["listed"]) == sorted(
        (row["kind"], row["start_ns"] - origin) for row in events
    )
    widget.selection = []
    assert (chart.selection, widget.events["count"]) == (None, 0)
    chart.select(timedelta(milliseconds=10), timedelta(milliseconds=20))
    assert widget.selection == [10 * MS, 20 * MS]


def test_the_longest_events_are_listed(run: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("anywidget", reason="anywidget is not installed")
    monkeypatch.setattr(timeline_chart, "MAX_LISTED_EVENTS", 3)
    chart = run.timeline().select(run.start_ns, run.end_ns)
    durations = sorted((row["duration_ns"] for row in run.framework().rows()), reverse=True)
    events = chart.widget.events
    assert [event["duration_ns"] for event in events["listed"]] == durations[:3]
    assert events["count"] == len(durations)


def test_without_anywidget(run: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    timeline_chart._widget_class.cache_clear()
    text = run.timeline()._repr_mimebundle_()["text/plain"]
    assert text.startswith("TimelineChart(4 rows, selection=None)")
    assert "anywidget is not installed: pip install 'stepscope[notebook]'" in text


def test_a_range_without_samples(run: OpenRun) -> None:
    with pytest.raises(UsageError, match="No node was monitored in this range"):
        run.timeline(start=run.end_ns + 1)
