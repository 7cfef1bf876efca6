"""Table of the operations of jobs with pipeline stages."""

from __future__ import annotations

from stepscope.schema.table import Table, column

STAGE_OPERATIONS = Table(
    name="stage_operations",
    doc="One row per operation of a worker in a step of a job with pipeline and data parallelism, "
    "of an imported trace.",
    key=("job", "id"),
    columns=(
        column("job", "BIGINT", "Number of the job; drawn at import."),
        column("id", "BIGINT", "Index of the operation in the file."),
        column("name", "VARCHAR", "Name of the file."),
        column("data_rank", "INTEGER", "Rank among those with the same part of the model."),
        column("stage", "INTEGER", "Pipeline stage, 0 for the first layers."),
        column("rank", "INTEGER NULL", "Rank in the job."),
        column("step", "BIGINT", "Number of the step."),
        column("kind", "VARCHAR", "Kind of operation, such as forward-compute or backward-recv."),
        column("sequence", "BIGINT", "Number among the worker's operations of the kind in a step."),
        column("chunk", "INTEGER NULL", "Chunk of the model among those of the stage."),
        column("model_chunk", "INTEGER NULL", "Chunk of the model in the order of the model."),
        column("microbatch", "INTEGER NULL", "Number of the microbatch."),
        column("start_ns", "BIGINT", "Start, from an origin that a step has in common.", "ns"),
        column("duration_ns", "BIGINT", "Duration.", "ns"),
    ),
)
