"""Stack samples of job threads."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, Column, Table

STACKS = Table(
    name="stacks",
    doc="One row per stack sample. Samples are taken at a steady period, so shares of samples "
    "estimate shares of time; the period is in the process's facts.",
    key=("process", "log", "seq"),
    columns=(
        *PROVENANCE,
        Column(name="t_ns", type="BIGINT", unit="epoch_ns", doc="When it was taken."),
        Column(
            name="stack",
            type="VARCHAR",
            doc="Frames from outermost to innermost, joined by ';', each as "
            "function|file|library, for example Dataset.__getitem__|/home/u/data.py| . The "
            "library is empty for the user's own code and 'python' for the standard library.",
        ),
        Column(name="line", type="INTEGER", doc="Line of the innermost frame."),
        Column(
            name="user_line",
            type="INTEGER",
            doc="Line of the innermost frame of the user's own code, 0 when there is none.",
        ),
    ),
)
