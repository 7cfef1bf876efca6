"""Work of devices, and waits for it, as events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepscope import schema
from stepscope.importers.kineto import Chunk
from stepscope.importers.nsys.builder import (
    Codes,
    Facts,
    device_columns,
    name_codes,
    on_stream,
    pid_of,
)
from stepscope.importers.nsys.database import ABSENT, Int, Rows

KERNEL = schema.event_kind("kernel")
MEMCPY = schema.event_kind("memcpy")
MEMSET = schema.event_kind("memset")
SYNCHRONISATION = schema.event_kind("synchronisation")
WORK_KINDS = (KERNEL, MEMCPY, MEMSET)

_NO_NUMBER = 2**32 - 1
"""Number of what there is not, such as the stream of a wait for all streams."""
_COPY_KINDS = ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
_COPIES = {n: (kind, "") for n, kind in enumerate(_COPY_KINDS, 1)} | {
    n: (kind, "Unified ") for n, kind in enumerate(("HtoD", "DtoH", "DtoD"), 11)
}
"""Direction of a copy, and what it is for, by ENUM_CUDA_MEMCPY_OPER."""
_MEMORY_KINDS = (
    *("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static"),
)
_WAITS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
"""Kinds of waits by ENUM_CUPTI_SYNC_TYPE, as Kineto names them."""


def convert_kernels(process: int, rows: Rows, facts: Facts) -> Chunk:
    builder = on_stream(rows)
    grid, block = (
        np.stack([_fit(rows[f"{name}{axis}"]) for axis in "XYZ"], axis=1)
        for name in ("grid", "block")
    )
    shared = [rows[f"{name}SharedMemory"] for name in ("static", "dynamic")]
    columns = {
        **device_columns(rows),
        **_find_occupancy(
            rows["deviceId"], grid, block, facts.multiprocessors.get(pid_of(process), {})
        ),
        "registers_per_thread": rows["registersPerThread"],
        "shared_memory_bytes": np.where(np.minimum(*shared) < 0, ABSENT, shared[0] + shared[1]),
        "grid": grid,
        "block": block,
        "graph": np.where(rows["graphId"] > 0, rows["graphId"], ABSENT),
        "graph_node": np.where(rows["graphNodeId"] > 0, rows["graphNodeId"], ABSENT),
    }
    builder.add(KERNEL, name_codes(builder, rows["name"], facts), **columns)
    return builder.finish()


def _find_occupancy(
    device: Int, grid: Codes, block: Codes, multiprocessors: Mapping[int, int]
) -> dict[str, Any]:
    """Return blocks and warps per multiprocessor, as Kineto has them, where these are known."""
    devices, inverse = np.unique(device, return_inverse=True)
    counts = [multiprocessors.get(number, 0) for number in devices.tolist()]
    if not any(counts):
        return {}
    per_device = np.array([count or np.nan for count in counts])[inverse]
    is_stated = (grid > 0).all(axis=1) & (block > 0).all(axis=1)
    blocks = np.where(is_stated, grid.prod(axis=1, dtype=np.float64) / per_device, np.nan)
    warps = -(-block.prod(axis=1, dtype=np.int64) // 32)
    return {"blocks_per_multiprocessor": blocks, "warps_per_multiprocessor": blocks * warps}


def convert_graphs(_process: int, rows: Rows, _facts: Facts) -> Chunk:
    builder = on_stream(rows)
    names = builder.distinct(rows["graph"], lambda number: f"CUDA graph {number}")
    graph = np.where(rows["graph"] > 0, rows["graph"], ABSENT)
    builder.add(KERNEL, names, **device_columns(rows), graph=graph)
    return builder.finish()


def convert_copies(_process: int, rows: Rows, _facts: Facts) -> Chunk:
    builder = on_stream(rows)
    parts = [np.clip(rows[name], -1, 99) for name in ("copyKind", "srcKind", "dstKind")]
    keys = (parts[0] + 1) * 10_000 + (parts[1] + 1) * 100 + parts[2] + 1

    def name(key: int) -> str:
        kind, use = _COPIES.get(key // 10_000 - 1, ("unknown", ""))
        source, target = _memory(key // 100 % 100 - 1), _memory(key % 100 - 1)
        ends = f"{source} -> {target}" if source and target else ""
        return f"Memcpy {kind}" + (f" ({use}{ends})" if use or ends else "").replace(" )", ")")

    columns = {**device_columns(rows), "bytes": rows["bytes"]}
    columns["graph_node"] = np.where(rows["graphNodeId"] > 0, rows["graphNodeId"], ABSENT)
    builder.add(MEMCPY, builder.distinct(keys, name), **columns)
    return builder.finish()


def convert_sets(_process: int, rows: Rows, _facts: Facts) -> Chunk:
    builder = on_stream(rows)
    kinds = rows["memKind"]
    names = builder.distinct(kinds, lambda n: f"Memset ({_memory(n) or 'Unknown'})")
    columns = {**device_columns(rows), "bytes": rows["bytes"]}
    columns["graph_node"] = np.where(rows["graphNodeId"] > 0, rows["graphNodeId"], ABSENT)
    builder.add(MEMSET, names, **columns)
    return builder.finish()


def _memory(kind: int) -> str:
    return _MEMORY_KINDS[kind] if 0 <= kind < len(_MEMORY_KINDS) else ""


def convert_waits(process: int, rows: Rows, facts: Facts) -> Chunk:
    rows["streamId"] = np.where(rows["streamId"] < _NO_NUMBER, rows["streamId"], ABSENT)
    contexts, inverse = np.unique(rows["contextId"], return_inverse=True)
    devices = [facts.contexts.get((process, number), ABSENT) for number in contexts.tolist()]
    of_context = np.array(devices, dtype=np.int64)[inverse]
    rows["deviceId"] = np.where(of_context == ABSENT, rows["deviceId"], of_context)
    builder = on_stream(rows)
    keys = [(process, number) for number in rows["eventSyncId"].tolist()]
    nothing = (ABSENT, ABSENT)
    records = np.array([facts.records.get(key, nothing) for key in keys], np.int64).reshape(-1, 2)
    columns = {
        **device_columns(rows),
        "event": np.where(rows["eventId"] < _NO_NUMBER, rows["eventId"], ABSENT),
        "waited_stream": records[:, 0],
        "record_correlation": records[:, 1],
    }
    names = builder.distinct(rows["syncType"], lambda number: _WAITS.get(number, "Sync"))
    builder.add(SYNCHRONISATION, names, **columns)
    return builder.finish()


def _fit(values: Int) -> Codes:
    return np.where((values < 0) | (values >= 2**31), ABSENT, values).astype(np.int32)
