"""Table of numbers that the user logs."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, RECORD_KEY, Table, column

SCALARS = Table(
    name="scalars",
    doc="One row per `stepscope.scalar(name, value)`, metric of XGBoost, or scalar of an imported "
    "file.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("t_ns", "BIGINT", "Time of the call.", "epoch_ns"),
        column("name", "VARCHAR", "Name given by the user or by XGBoost."),
        column(
            "step",
            "BIGINT NULL",
            "Step in an imported file, or round of an XGBoost model; null otherwise.",
            "count",
        ),
        column("value", "DOUBLE", "Value."),
    ),
)
