"""Tables of snapshots of a caching allocator of device memory."""

from __future__ import annotations

from stepscope.schema.table import Table, column

_SNAPSHOT = column("snapshot", "BIGINT", "Number of the snapshot; drawn at import.")
_DEVICE = column("device", "INTEGER", "Number of the device.")
_STREAM = column("stream", "BIGINT", "Stream that it was allocated for.")
_STACK = column(
    "stack",
    "VARCHAR NULL",
    "Frames of the allocation, outermost first, joined by ';'. A frame is function|file|line. C++ "
    "is there only in stacks without Python.",
)

MEMORY_SNAPSHOTS = Table(
    name="memory_snapshots",
    doc="One row per device in a snapshot of PyTorch's caching allocator "
    "(torch.cuda.memory._dump_snapshot).",
    key=("snapshot", "device"),
    columns=(
        _SNAPSHOT,
        column("name", "VARCHAR", "Name of the file."),
        column("rank", "INTEGER NULL", "Rank of the process, if known."),
        column("process", "VARCHAR NULL", "Process that stepscope watched; null if imported."),
        _DEVICE,
        column("settings", "VARCHAR NULL", "Settings of the allocator as a JSON object."),
    ),
)

MEMORY_SEGMENTS = Table(
    name="memory_segments",
    doc="One row per segment: memory that the allocator has reserved on the device.",
    key=("snapshot", "id"),
    columns=(
        _SNAPSHOT,
        column("id", "BIGINT", "Position in the snapshot."),
        _DEVICE,
        column("address", "BIGINT", "First address."),
        column("size_bytes", "BIGINT", "Size.", "bytes"),
        _STREAM,
        column("kind", "VARCHAR", "`small` or `large`, by the size of its blocks."),
        column("pool", "VARCHAR NULL", "Pool, such as 0.1; that of a graph is not 0.0."),
        column("is_expandable", "SMALLINT", "1 for a segment that can grow, 0 otherwise."),
    ),
)

MEMORY_BLOCKS = Table(
    name="memory_blocks",
    doc="One row per block of a segment.",
    key=("snapshot", "id"),
    columns=(
        _SNAPSHOT,
        column("id", "BIGINT", "Position in the snapshot."),
        _DEVICE,
        column("segment", "BIGINT", "Its segment."),
        column("address", "BIGINT", "First address."),
        column("size_bytes", "BIGINT", "Size.", "bytes"),
        column("requested_bytes", "BIGINT NULL", "Size before rounding.", "bytes"),
        column(
            "state",
            "VARCHAR",
            "`active_allocated`: of a tensor; `active_awaiting_free`: released, and another stream "
            "still uses it; `inactive`: free.",
        ),
        _STACK,
    ),
)

MEMORY_HISTORY = Table(
    name="memory_history",
    doc="One row per action of the allocator in the history of a snapshot, which is a ring: it has "
    "the latest ones.",
    key=("snapshot", "id"),
    columns=(
        _SNAPSHOT,
        column("id", "BIGINT", "Position in the snapshot."),
        _DEVICE,
        column("t_ns", "BIGINT NULL", "Time.", "epoch_ns"),
        column(
            "action",
            "VARCHAR",
            "`alloc`, `free_requested`, `free_completed`; `segment_alloc`, `segment_free`, "
            "`segment_map`, `segment_unmap`; `oom`; `snapshot`.",
        ),
        column("address", "BIGINT NULL", "First address; null for `oom`."),
        column("size_bytes", "BIGINT", "Size; for `oom` that was requested.", "bytes"),
        _STREAM,
        column(
            "device_free_bytes", "BIGINT NULL", "For `oom`: free memory of the device.", "bytes"
        ),
        _STACK,
    ),
)

SNAPSHOT_TABLES = (MEMORY_SNAPSHOTS, MEMORY_SEGMENTS, MEMORY_BLOCKS, MEMORY_HISTORY)
"""Tables of snapshots."""
