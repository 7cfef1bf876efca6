"""Numbers the user logs."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, Column, Table

SCALARS = Table(
    name="scalars",
    doc="One row per `stepscope.scalar(name, value)`.",
    key=("process", "log", "seq"),
    columns=(
        *PROVENANCE,
        Column(name="t_ns", type="BIGINT", unit="epoch_ns", doc="When it was logged."),
        Column(name="name", type="VARCHAR", doc="The user's name for it."),
        Column(name="value", type="DOUBLE", doc="The number."),
    ),
)
