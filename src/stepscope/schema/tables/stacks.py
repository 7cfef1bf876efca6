"""Table of stack samples of job threads."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, RECORD_KEY, Table, column

STACKS = Table(
    name="stacks",
    doc="One row per stack sample. The sampling period is constant, so shares of samples estimate "
    "shares of time; the period is in the facts of the process.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("t_ns", "BIGINT", "Time of the sample.", "epoch_ns"),
        column(
            "stack",
            "VARCHAR",
            "Frames from outermost to innermost, joined by ';'. A frame is function|file|library, "
            "for example Dataset.__getitem__|/home/u/data.py| . The library is empty for the "
            "user's code and 'python' for the standard library.",
        ),
        column("line", "INTEGER", "Line of the innermost frame."),
        column("user_line", "INTEGER", "Line of the innermost frame of user code, 0 without one."),
    ),
)
