"""Levels of detail of the timeline."""

from __future__ import annotations

from stepscope.schema.event_columns import TRACE, TRACK
from stepscope.schema.table import Column, Table

TIMELINE = Table(
    name="timeline",
    doc=(
        "Summaries for drawing: one row per non-empty bucket of a level of detail. A bucket "
        "of level L is 4^L microseconds wide."
    ),
    key=("trace", "track", "depth", "level", "bucket"),
    columns=(
        TRACE,
        TRACK,
        Column(
            name="depth",
            type="SMALLINT",
            unit="count",
            doc="Row within the track: ranges around the summarised ones.",
        ),
        Column(name="level", type="SMALLINT", doc="Level of detail."),
        Column(
            name="bucket", type="BIGINT", unit="count", doc="Buckets since the start of the trace."
        ),
        Column(name="count", type="BIGINT", unit="count", doc="Events that start in the bucket."),
        Column(
            name="busy_ns",
            type="BIGINT",
            unit="ns",
            doc="Durations, summed, of the events that start in the bucket.",
        ),
        Column(name="longest_ns", type="BIGINT", unit="ns", doc="Its duration."),
        Column(name="longest_name", type="VARCHAR", doc="Its name."),
    ),
)
