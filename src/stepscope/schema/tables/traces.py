"""The recordings whose events the trace tables hold."""

from __future__ import annotations

from stepscope.schema.table import Column, Table

TRACES = Table(
    name="traces",
    doc=(
        "One row per recording of a framework's profiler: one process, one window. It is "
        "written last, so a trace whose row is missing was never completely stored."
    ),
    key=("trace",),
    columns=(
        Column(
            name="trace",
            type="BIGINT",
            doc=(
                "Number of the recording, unique within the run; the other trace tables refer"
                " to it."
            ),
        ),
        Column(
            name="name",
            type="VARCHAR",
            doc=("What people call it: the file imported, or the process and window."),
        ),
        Column(
            name="node",
            type="VARCHAR",
            nullable=True,
            doc="Host on which it was recorded, when known.",
        ),
        Column(
            name="process",
            type="VARCHAR",
            nullable=True,
            doc=(
                "Process that recorded it; names the file processes/<process>.json. Null for "
                "an imported file."
            ),
        ),
        Column(
            name="window",
            type="INTEGER",
            nullable=True,
            doc=("Number of the window in its process. Null for an imported file."),
        ),
        Column(name="rank", type="INTEGER", nullable=True, doc="Rank of the process in its job."),
        Column(
            name="world_size", type="INTEGER", unit="count", nullable=True, doc="Ranks of the job."
        ),
        Column(
            name="backend",
            type="VARCHAR",
            nullable=True,
            doc="Communication backend the file names, such as nccl.",
        ),
        Column(
            name="start_ns",
            type="BIGINT",
            unit="epoch_ns",
            doc="Start of the earliest complete event.",
        ),
        Column(
            name="end_ns", type="BIGINT", unit="epoch_ns", doc="End of the latest complete event."
        ),
        Column(
            name="base_ns",
            type="BIGINT",
            unit="epoch_ns",
            doc=("Offset the file gave for all its times; it is part of every time stored here."),
        ),
        Column(
            name="event_count",
            type="BIGINT",
            unit="count",
            doc="Events read from the file, of every kind.",
        ),
        Column(
            name="has_shapes",
            type="SMALLINT",
            doc="1 when operators carry the shapes of their inputs.",
        ),
        Column(
            name="has_stacks",
            type="SMALLINT",
            doc="1 when Python functions or call stacks were recorded.",
        ),
        Column(name="has_memory", type="SMALLINT", doc="1 when allocations were recorded."),
        Column(
            name="metadata",
            type="VARCHAR",
            doc=("Everything else at the top level of the file, as a JSON object."),
        ),
    ),
)
