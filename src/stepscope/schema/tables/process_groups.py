"""The groups of ranks that communicate."""

from __future__ import annotations

from stepscope.schema.event_columns import ARGS, TRACE
from stepscope.schema.table import Column, Table

PROCESS_GROUPS = Table(
    name="process_groups",
    doc=("One row per group of ranks that a recording describes."),
    key=("trace", "name"),
    columns=(
        TRACE,
        Column(name="name", type="VARCHAR", doc="Name of the group."),
        Column(name="description", type="VARCHAR", nullable=True, doc="What it is for."),
        Column(name="backend", type="VARCHAR", nullable=True, doc="Its communication backend."),
        Column(name="size", type="INTEGER", unit="count", nullable=True, doc="Ranks in it."),
        Column(
            name="ranks",
            type="VARCHAR",
            nullable=True,
            doc=("Its ranks as a JSON array; may be cut short by the recorder."),
        ),
        ARGS,
    ),
)
