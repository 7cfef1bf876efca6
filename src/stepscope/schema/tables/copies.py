"""Memory operations of the devices."""

from __future__ import annotations

from stepscope.schema.event_columns import (
    ARGS,
    DURATION_NS,
    EVENT_ID,
    GRAPH_LINK,
    LAUNCH_LINK,
    NAME,
    START_NS,
    TRACE,
)
from stepscope.schema.table import Column, Table

COPIES = Table(
    name="copies",
    doc=("One row per copy or fill of device memory."),
    key=("trace", "id"),
    columns=(
        TRACE,
        EVENT_ID,
        Column(name="track", type="INTEGER", doc="Its stream; see `tracks`."),
        Column(name="device", type="INTEGER", doc="Its device."),
        Column(name="kind", type="VARCHAR", doc="memcpy or memset."),
        NAME,
        START_NS,
        DURATION_NS,
        *LAUNCH_LINK,
        *GRAPH_LINK,
        Column(name="bytes", type="BIGINT", unit="bytes", nullable=True, doc="Bytes moved or set."),
        ARGS,
    ),
)
