"""Table of memory operations of the devices."""

from __future__ import annotations

from stepscope.schema.event_columns import (
    ARGS,
    DEVICE,
    DURATION_NS,
    EVENT_ID,
    GRAPH_LINK,
    LAUNCH_LINK,
    NAME,
    START_NS,
    STREAM,
    TRACE,
)
from stepscope.schema.table import Table, column

COPIES = Table(
    name="copies",
    doc="One row per copy or fill of device memory.",
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        STREAM,
        DEVICE,
        column("kind", "VARCHAR", "memcpy or memset."),
        NAME,
        START_NS,
        DURATION_NS,
        *LAUNCH_LINK,
        *GRAPH_LINK,
        column("bytes", "BIGINT NULL", "Bytes copied or set.", "bytes"),
        ARGS,
    ),
)
