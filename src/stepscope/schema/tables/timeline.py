"""Levels of detail of the timeline."""

from __future__ import annotations

from stepscope.schema.event_columns import TRACE, TRACK
from stepscope.schema.table import Column, Table

TIMELINE = Table(
    name="timeline",
    doc=(
        "What a recording looks like from afar. A bucket of level L is 4^L microseconds wide, and "
        "one row sums up the events of a row that are shorter than that and start in it. Events "
        "that are longer than the buckets of the finest level have rows of their own instead: a "
        "picture at level L is made of the summaries of that level and of the events whose level "
        "is L or more."
    ),
    key=("trace", "track", "depth", "level", "start_ns"),
    columns=(
        TRACE,
        TRACK,
        Column(
            name="depth",
            type="SMALLINT",
            unit="count",
            doc="Row within the track: ranges around the event, or, where it overlaps another one, "
            "the first row below that is free. -1 and below are the rows of the shadows of host "
            "ranges.",
        ),
        Column(
            name="level",
            type="SMALLINT",
            doc="Level of detail. Of an event, the coarsest level whose buckets it is as long as; "
            "where it overlaps another one and gave way, the coarsest of all.",
        ),
        Column(
            name="id", type="BIGINT", nullable=True, doc="Of an event, its id; null for a summary."
        ),
        Column(name="start_ns", type="BIGINT", unit="epoch_ns", doc="Start of the first event."),
        Column(
            name="duration_ns",
            type="BIGINT",
            unit="ns",
            stored="DOUBLE",
            doc="Until the end of the last one.",
        ),
        Column(name="count", type="BIGINT", unit="count", doc="Events that it sums up."),
        Column(name="busy_ns", type="BIGINT", unit="ns", stored="DOUBLE", doc="Durations, summed."),
        Column(
            name="longest_ns",
            type="BIGINT",
            unit="ns",
            stored="DOUBLE",
            doc="Duration of the longest one.",
        ),
        Column(name="longest_name", type="VARCHAR", doc="Its name."),
    ),
)
