"""Where events happened."""

from __future__ import annotations

from stepscope.schema.event_columns import TRACE
from stepscope.schema.table import Column, Table

TRACKS = Table(
    name="tracks",
    doc=("One row per host thread or device stream of a recording."),
    key=("trace", "track"),
    columns=(
        TRACE,
        Column(name="track", type="INTEGER", doc="Number of the track within its trace."),
        Column(name="kind", type="VARCHAR", doc="host, device or other."),
        Column(
            name="pid",
            type="VARCHAR",
            doc=("Process as the file writes it; a device number for device streams."),
        ),
        Column(
            name="tid",
            type="VARCHAR",
            doc=("Thread as the file writes it; a stream number for device streams."),
        ),
        Column(
            name="pid_is_text",
            type="SMALLINT",
            doc=("Bit 1: the file writes the process as a string; bit 2: the thread."),
        ),
        Column(name="device", type="INTEGER", nullable=True, doc="Device of a stream."),
        Column(name="stream", type="BIGINT", nullable=True, doc="Number of a stream."),
        Column(name="process_name", type="VARCHAR", nullable=True, doc="Name of the process."),
        Column(
            name="process_labels",
            type="VARCHAR",
            nullable=True,
            doc="Its labels, such as CPU or GPU 0.",
        ),
        Column(
            name="process_order",
            type="BIGINT",
            nullable=True,
            doc="Where the recording tool sorts the process.",
        ),
        Column(
            name="thread_name", type="VARCHAR", nullable=True, doc="Name of the thread or stream."
        ),
        Column(
            name="thread_order",
            type="BIGINT",
            nullable=True,
            doc="Where the recording tool sorts the thread.",
        ),
    ),
)
