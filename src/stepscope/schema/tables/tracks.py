"""Table of the threads and streams on which events happened."""

from __future__ import annotations

from stepscope.schema.event_columns import TRACE
from stepscope.schema.table import Table, column

TRACKS = Table(
    name="tracks",
    doc="One row per host thread or device stream of a trace.",
    key=("trace", "track"),
    columns=(
        TRACE,
        column("track", "INTEGER", "Number of the track within its trace."),
        column("kind", "VARCHAR", "host, device or other."),
        column("pid", "VARCHAR", "Process in the file; the device number for device streams."),
        column("tid", "VARCHAR", "Thread in the file; the stream number for device streams."),
        column("pid_is_text", "SMALLINT", "Strings in the file: bit 1 the pid, bit 2 the tid."),
        column("device", "INTEGER NULL", "Device of a stream."),
        column("stream", "BIGINT NULL", "Number of a stream."),
        column("process_name", "VARCHAR NULL", "Name of the process."),
        column("process_labels", "VARCHAR NULL", "Labels of the process, such as CPU or GPU 0."),
        column("process_order", "BIGINT NULL", "Sort position of the process in the profiler."),
        column("thread_name", "VARCHAR NULL", "Name of the thread or stream."),
        column("thread_order", "BIGINT NULL", "Sort position of the thread in the profiler."),
    ),
)
