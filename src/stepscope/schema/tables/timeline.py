"""Table of the timeline's levels of detail."""

from __future__ import annotations

from stepscope.schema.event_columns import TRACE, TRACK
from stepscope.schema.table import Table, column

TIMELINE = Table(
    name="timeline",
    doc="Summaries of a trace for zoomed-out pictures. A bucket of level L is 4^L microseconds "
    "wide. One row sums up the events of a track's row that are shorter than a bucket and start in "
    "it. Events that are longer than the buckets of the finest level have rows of their own: a "
    "picture at level L consists of the summaries of that level and of the events whose level is L "
    "or higher.",
    key=("trace", "track", "depth", "level", "start_ns"),
    columns=(
        TRACE,
        TRACK,
        column(
            "depth",
            "SMALLINT",
            "Row within the track: number of enclosing ranges or, for an event that overlaps "
            "another one, the first free row below. Negative rows hold the shadows of host ranges.",
            "count",
        ),
        column(
            "level",
            "SMALLINT",
            "Level of detail. For an event: the coarsest level whose buckets are not longer than "
            "it, or the coarsest level of all if it was moved to a lower row.",
        ),
        column("id", "BIGINT NULL", "Id of an event; null for a summary."),
        column("start_ns", "BIGINT", "Start of the first event.", "epoch_ns"),
        column("duration_ns", "BIGINT", "Until the last event ends.", "ns", stored_type="DOUBLE"),
        column("count", "BIGINT", "Number of events.", "count"),
        column("busy_ns", "BIGINT", "Sum of the durations.", "ns", stored_type="DOUBLE"),
        column("longest_ns", "BIGINT", "Longest duration.", "ns", stored_type="DOUBLE"),
        column("longest_name", "VARCHAR", "Name of the longest event."),
    ),
)
