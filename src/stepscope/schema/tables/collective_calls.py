"""Table of the collectives that the framework's recorder numbers."""

from __future__ import annotations

from stepscope.schema.table import PROVENANCE, RECORD_KEY, Table, column

INSPECTOR_LOG = "inspector"
"""`log` of calls from a verbose log of NCCL Inspector, which has their times."""
UNTIMED_INSPECTOR_LOG = "inspector-untimed"
"""`log` of calls from another log of NCCL Inspector: `t_ns` is the time at which a line was written
minus the duration, so that it tells nothing about who was late."""

COLLECTIVE_CALLS = Table(
    name="collective_calls",
    doc="One row per collective that a process has called, from the flight recorder of PyTorch. "
    "Calls with the same group and number are one collective. `log` is the recorder (`fr`, or "
    "`nccl` in builds with CUDA; `inspector` and `inspector-untimed` are logs of NCCL Inspector, "
    "whose sizes are bytes), `seq` the number of the call in it: a gap is a call that was "
    "overwritten before it was read.",
    key=RECORD_KEY,
    columns=(
        *PROVENANCE,
        column("t_ns", "BIGINT", "Time at which the process called it.", "epoch_ns"),
        column("rank", "INTEGER NULL", "Rank of the process; null if unknown."),
        column("group", "VARCHAR", "Name of the process group."),
        column("group_description", "VARCHAR NULL", "Purpose of the group."),
        column("group_ranks", "VARCHAR NULL", "Ranks of the group, separated by commas."),
        column("kind", "VARCHAR", "Kind of call, such as all_reduce."),
        column("backend", "VARCHAR NULL", "Communication backend, such as gloo or nccl."),
        column("number", "BIGINT", "Number of the collective within its group, from 1.", "count"),
        column("is_p2p", "SMALLINT", "1 for a call between two ranks, which has its own numbers."),
        column("input_sizes", "VARCHAR", "Sizes of the inputs, such as 64x32;64."),
        column("input_dtypes", "VARCHAR", "Types of the inputs, separated by semicolons."),
        column("output_sizes", "VARCHAR", "Sizes of the outputs."),
        column("output_dtypes", "VARCHAR", "Types of the outputs."),
        column(
            "started_ns",
            "BIGINT NULL",
            "When the watchdog saw that it had started on the device; null for backends that do "
            "not tell.",
            "epoch_ns",
        ),
        column("ended_ns", "BIGINT NULL", "When the watchdog saw that it had ended.", "epoch_ns"),
        column(
            "state",
            "VARCHAR",
            "ended, or, if it had not ended when the process was last read, scheduled or started.",
        ),
    ),
)
