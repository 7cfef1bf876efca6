"""Columns that the tables of trace events share."""

from __future__ import annotations

from stepscope.schema.table import column

TRACE = column("trace", "BIGINT", "Number of the trace; see `traces`.")
EVENT_ID = column("id", "BIGINT", "Index of the event in its file; unique within the trace.")
TRACK = column("track", "INTEGER", "Host thread or device stream; see `tracks`.")
NAME = column("name", "VARCHAR", "Name.")
START_NS = column("start_ns", "BIGINT", "Start.", "epoch_ns")
DURATION_NS = column("duration_ns", "BIGINT", "Duration.", "ns", stored_type="DOUBLE")
ARGS = column("args", "VARCHAR NULL", "All other arguments in the file, as a JSON object.")
STREAM = column("track", "INTEGER", "Stream of the device; see `tracks`.")
DEVICE = column("device", "INTEGER", "Number of the device.")
EVENT = (TRACE, EVENT_ID, TRACK)
"""Identity and track of an event."""
DEVICE_EVENT = (TRACE, EVENT_ID, STREAM, DEVICE)
NAMED_RANGE = (NAME, START_NS, DURATION_NS)
GRAPH_LINK = (
    column("graph", "BIGINT NULL", "Graph whose replay ran it."),
    column("graph_node", "BIGINT NULL", "Node in that graph."),
    column(
        "captured_operator",
        "BIGINT NULL",
        "Operator whose launch was captured as that node, if the trace contains the capture.",
    ),
)
LAUNCH_LINK = (
    column(
        "launch",
        "BIGINT NULL",
        "Runtime call that launched it; null for work launched before the window (carry-over) and "
        "for work whose launch is not in the file.",
    ),
    column("operator", "BIGINT NULL", "Operator that made that call."),
    column("correlation", "BIGINT NULL", "Correlation number that links it to its launch."),
    column(
        "carry_over",
        "SMALLINT",
        "1 if it was launched before the window: it has no launch, and it starts before any linked "
        "work of its device could.",
    ),
)
