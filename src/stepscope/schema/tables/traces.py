"""Table of the traces whose events the other trace tables hold."""

from __future__ import annotations

from stepscope.schema.table import Table, column

TRACES = Table(
    name="traces",
    doc="One row per trace: one process, one window of a framework's profiler. It is written last, "
    "so a trace without a row was not stored completely.",
    key=("trace",),
    columns=(
        column("trace", "BIGINT", "Number of the trace, unique within the run."),
        column("name", "VARCHAR", "Label: the imported file, its worker, or process and window."),
        column("node", "VARCHAR NULL", "Host on which it was recorded, if known."),
        column(
            "process",
            "VARCHAR NULL",
            "Process that recorded it; its manifest is processes/<process>.json. Null for an "
            "imported file.",
        ),
        column(
            "window",
            "INTEGER NULL",
            "Number of the window in its process; of an imported file, that of the span of its "
            "worker, from 1, if a worker has several.",
        ),
        column("rank", "INTEGER NULL", "Rank of the process in its job."),
        column("world_size", "INTEGER NULL", "Ranks of the job.", "count"),
        column("backend", "VARCHAR NULL", "Communication backend in the file, such as nccl."),
        column("start_ns", "BIGINT", "Start of the earliest complete event.", "epoch_ns"),
        column("end_ns", "BIGINT", "End of the latest complete event.", "epoch_ns"),
        column(
            "base_ns",
            "BIGINT",
            "Offset of all times in the file; it is included in every stored time.",
            "epoch_ns",
        ),
        column("event_count", "BIGINT", "Events in the file, of every kind.", "count"),
        column("has_shapes", "SMALLINT", "1 if operators have the shapes of their inputs."),
        column("has_stacks", "SMALLINT", "1 if it contains Python functions or call stacks."),
        column("has_memory", "SMALLINT", "1 if it contains allocations."),
        column("metadata", "VARCHAR", "All other top-level fields of the file, as a JSON object."),
    ),
)
