"""Arrows between events."""

from __future__ import annotations

from stepscope.schema.event_columns import NAME, TRACE
from stepscope.schema.table import Column, Table

FLOWS = Table(
    name="flows",
    doc=(
        "One row per arrow between two events that no other table implies: launches are in "
        "kernels.launch, gradients also in operators.forward."
    ),
    key=("trace", "kind", "flow"),
    columns=(
        TRACE,
        Column(name="kind", type="VARCHAR", doc="Category of the arrow, such as fwdbwd."),
        NAME,
        Column(name="flow", type="BIGINT", doc="Number of the arrow in the file."),
        Column(name="source_track", type="INTEGER", nullable=True, doc="Where it starts."),
        Column(
            name="source_ns", type="BIGINT", unit="epoch_ns", nullable=True, doc="When it starts."
        ),
        Column(name="source", type="BIGINT", nullable=True, doc="The event that starts there."),
        Column(name="target_track", type="INTEGER", nullable=True, doc="Where it ends."),
        Column(
            name="target_ns", type="BIGINT", unit="epoch_ns", nullable=True, doc="When it ends."
        ),
        Column(name="target", type="BIGINT", nullable=True, doc="The event that starts there."),
    ),
)
