"""Table of memory operations of the devices."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, DEVICE_EVENT, GRAPH_LINK, LAUNCH_LINK, NAMED_RANGE
from stepscope.schema.table import Table, column

COPIES = Table(
    name="copies",
    doc="One row per copy or fill of device memory.",
    key=("trace", "id"),
    columns=(
        *DEVICE_EVENT,
        column("kind", "VARCHAR", "memcpy or memset."),
        *NAMED_RANGE,
        *LAUNCH_LINK,
        *GRAPH_LINK,
        column("bytes", "BIGINT NULL", "Bytes copied or set.", "bytes"),
        ARGS,
    ),
)
