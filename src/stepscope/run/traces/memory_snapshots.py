"""Snapshots of the allocator of device memory."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from stepscope import analysis
from stepscope.run.model.run import Run

_COLUMNS = {
    "memory_segments": ("size_bytes", "is_expandable"),
    "memory_blocks": ("address", "size_bytes", "requested_bytes", "state", "stack"),
    "memory_history": (
        *("t_ns", "action", "address", "size_bytes"),
        *("device_free_bytes", "stack"),
    ),
}
_TEXTS = ("state", "action", "stack")


class MemorySnapshot(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Snapshot of one device."""

    name: str
    rank: int | None
    process: str | None
    device: int
    settings: str | None
    is_expandable: bool
    """A segment can grow."""
    memory: analysis.SnapshotDevice


def read_memory_snapshots(run: Run) -> list[MemorySnapshot]:
    """Read the snapshots of a run, by name and device."""
    rows = run.reader.table("memory_snapshots", order_by="name, snapshot, device")
    values = [column.tolist() for column in rows.values()]
    return [
        _read_snapshot(run, **dict(zip(rows, row, strict=True)))
        for row in zip(*values, strict=True)
    ]


def _read_snapshot(run: Run, *, snapshot: int, device: int, **fields: Any) -> MemorySnapshot:
    segments, blocks, history = (_read_table(run, table, snapshot, device) for table in _COLUMNS)
    return MemorySnapshot(
        device=device,
        is_expandable=bool(segments["is_expandable"].any()),
        memory=analysis.SnapshotDevice(segments=segments, blocks=blocks, history=history),
        **fields,
    )


def _read_table(run: Run, table: str, snapshot: int, device: int) -> dict[str, Any]:
    """Read the rows of one device; missing numbers are -1."""
    names = _COLUMNS[table]
    rows = run.reader.table(
        table,
        names,
        condition="snapshot = ? AND device = ?",
        parameters=(snapshot, device),
        order_by="id",
        encoded=[name for name in names if name in _TEXTS],
    )
    return {
        name: np.ma.filled(values, -1) if isinstance(values, np.ma.MaskedArray) else values
        for name, values in rows.items()
    }
