"""Small SQLite exports of Nsight Systems, with the columns of schema 3.24.14."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

START_NS = 1_776_781_226_557_295_056
PID = 1001
PROCESS = 1 << 48 | PID << 24
"""Global pid: virtual machine 1."""
THREAD = PROCESS | PID
Row = dict[str, Any]
_WORK = ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
COLUMNS = {
    "StringIds": ("id", "value"),
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", "utcTime", "localTime", "systemClockNs"),
    "TARGET_INFO_SYSTEM_ENV": ("globalVid", "devStateName", "name", "nameEnum", "value"),
    "TARGET_INFO_GPU": (
        *("vmId", "id", "name", "totalMemory", "memoryBandwidth", "clockRate", "smCount"),
        *("chipName", "maxRegistersPerBlock", "maxShmemPerBlock", "threadsPerWarp"),
        *("maxWarpsPerSm", "maxThreadsPerBlock", "computeMajor", "computeMinor"),
    ),
    "TARGET_INFO_CUDA_DEVICE": ("gpuId", "cudaId", "pid", "uuid", "numMultiprocessors"),
    "META_DATA_EXPORT": ("name", "value"),
    "PROCESSES": ("globalPid", "pid", "name"),
    "ThreadNames": ("nameId", "priority", "globalTid"),
    "DIAGNOSTIC_EVENT": ("timestamp", "timestampType", "source", "severity", "text", "globalPid"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        *_WORK,
        *("demangledName", "shortName", "mangledName", "registersPerThread"),
        *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
        *("staticSharedMemory", "dynamicSharedMemory", "graphNodeId", "graphId"),
    ),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (*_WORK, "graphId", "graphExecId"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        *_WORK, "bytes", "copyKind", "srcKind", "dstKind", "graphNodeId"
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": (*_WORK, "value", "bytes", "graphNodeId", "memKind"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        *("start", "end", "eventClass", "globalTid", "correlationId", "nameId", "returnValue"),
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (*_WORK, "syncType", "eventId", "eventSyncId"),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
        *("timestamp", "deviceId", "contextId", "streamId", "correlationId", "globalPid"),
        *("eventId", "eventSyncId"),
    ),
    "NVTX_EVENTS": (
        *("start", "end", "eventType", "rangeId", "category", "color", "text", "globalTid"),
        *("endGlobalTid", "textId", "domainId"),
    ),
}  # fmt: skip
"""Columns by table, in the order of the file."""
NAMES = {
    1: "void gemm<float>(float*)", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "cudaMemcpyAsync",
    5: "cuLaunchKernelEx", 6: "cudaStreamWaitEvent_v3020", 7: "loader", 8: "train_step",
    9: "cudaEventRecord_v3020", 10: "cudaMemsetAsync_v3020",
}  # fmt: skip


def write_export(
    path: Path, rows: Mapping[str, Iterable[Row]], *, lacking: Sequence[str] = ()
) -> Path:
    """Write an export.

    Args:
        path: the file.
        rows: rows by table; tables without any are not created.
        lacking: columns that the file does not have.
    """
    connection = sqlite3.connect(path)
    for table, values in rows.items():
        columns = [name for name in COLUMNS[table] if name not in lacking]
        types = [f'"{name}"' + " INTEGER PRIMARY KEY" * (name == "id") for name in columns]
        connection.execute(f"CREATE TABLE {table} ({', '.join(types)})")
        marks = ", ".join("?" * len(columns))
        connection.executemany(
            f"INSERT INTO {table} VALUES ({marks})",  # noqa: S608
            ([row.get(name) for name in columns] for row in values),
        )
    connection.commit()
    connection.close()
    return path


def work(start: int, end: int, correlation: int, **more: Any) -> Row:
    """Return a row of device work on device 0, stream 7."""
    ids = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": PROCESS}
    return {"start": start, "end": end, "correlationId": correlation, **ids, **more}


def kernel(start: int, end: int, correlation: int, **more: Any) -> Row:
    """Return a row of a kernel with a grid of 34 blocks of 64 threads."""
    sizes = {f"{name}{axis}": 1 for name in ("grid", "block") for axis in "XYZ"}
    sizes |= {"gridX": 34, "blockX": 64, "registersPerThread": 32}
    shared = {"staticSharedMemory": 16, "dynamicSharedMemory": 1024}
    names = {"demangledName": 1, "shortName": 2}
    return work(start, end, correlation, **{**sizes, **shared, **names, **more})


def call(start: int, end: int, correlation: int, name: int = 3, **more: Any) -> Row:
    """Return a row of a call of the runtime."""
    row = {"start": start, "end": end, "correlationId": correlation, "nameId": name}
    return {**row, "eventClass": 0, "globalTid": THREAD, "returnValue": 0, **more}


def nvtx(start: int, end: int | None, text: str | None, **more: Any) -> Row:
    """Return a row of an NVTX range of push and pop in the default domain."""
    row = {"start": start, "end": end, "text": text, "eventType": 59, "globalTid": THREAD}
    return {**row, "domainId": 0, **more}


def facts() -> dict[str, list[Row]]:
    """Return the rows of tables without events."""
    gpu = {"id": 0, "name": "NVIDIA A", "totalMemory": 1 << 30, "smCount": 68, "computeMajor": 8}
    gpu |= {"computeMinor": 6, "threadsPerWarp": 32, "maxWarpsPerSm": 48, "chipName": "GA102"}
    return {
        "StringIds": [{"id": number, "value": text} for number, text in NAMES.items()],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": START_NS}],
        "TARGET_INFO_SYSTEM_ENV": [{"name": "Hostname", "value": "node7"}],
        "TARGET_INFO_GPU": [gpu],
        "META_DATA_EXPORT": [{"name": "EXPORT_SCHEMA_VERSION", "value": "3.24.14"}],
        "PROCESSES": [{"globalPid": PROCESS, "pid": PID, "name": "python3"}],
        "ThreadNames": [{"nameId": 7, "globalTid": THREAD}],
    }


def training(steps: int = 3) -> dict[str, list[Row]]:
    """Return the rows of a training with some of everything, 1 ms per step."""
    rows: dict[str, list[Row]] = {
        **facts(),
        "DIAGNOSTIC_EVENT": [
            {"severity": 1, "text": "Profiling has started.", "globalPid": 0},
            {"severity": 2, "text": "Not all NVTX events\nmight be there.", "globalPid": PROCESS},
        ],
        **{table: [] for table in list(COLUMNS)[9:]},
    }
    cupti = "CUPTI_ACTIVITY_KIND_"
    rows["NVTX_EVENTS"] += [
        nvtx(0, None, "NCCL", eventType=75, domainId=3),
        nvtx(0, None, "phase", eventType=33, domainId=3, category=5),
        nvtx(100, None, "epoch 0", eventType=34),
    ]
    for step in range(steps):
        at, key = 1_000_000 * (step + 1), 10 * step
        rows["NVTX_EVENTS"] += [
            nvtx(at, at + 900_000, None, textId=8),
            nvtx(at + 10, at + 90_000, f"aten::mm, seq = {step}, op_id = 1, sizes = [[2, 3], []]"),
            nvtx(at + 95_000, at + 99_000, "reduce", domainId=3, category=5, eventType=60),
        ]
        rows[f"{cupti}RUNTIME"] += [
            call(at + 100, at + 5_000, key + 1),
            call(at + 6_000, at + 7_000, key + 2, 4),
            call(at + 8_000, at + 9_000, key + 3, 10),
            call(at + 10_000, at + 11_000, key + 4, 9),
            call(at + 12_000, at + 13_000, key + 5, 6),
            call(at + 14_000, at + 15_000, key + 6, 5, eventClass=1),
        ]
        rows[f"{cupti}KERNEL"] += [
            kernel(at + 20_000, at + 420_007, key + 1),
            kernel(at + 400_000, at + 500_000, key + 6, streamId=9, graphId=4, graphNodeId=2),
        ]
        rows[f"{cupti}MEMCPY"].append(
            work(at + 430_000, at + 450_003, key + 2, bytes=64, copyKind=1, srcKind=0, dstKind=2)
        )
        rows[f"{cupti}MEMSET"].append(work(at + 451_000, at + 452_000, key + 3, bytes=4, memKind=2))
        rows[f"{cupti}GRAPH_TRACE"].append(
            work(at + 600_000, at + 700_000, key + 6, streamId=9, graphId=4)
        )
        record = {"streamId": 9, "contextId": 1, "globalPid": PROCESS, "eventSyncId": key + 1}
        rows[f"{cupti}CUDA_EVENT"].append({**record, "correlationId": key + 4, "eventId": 8})
        rows[f"{cupti}SYNCHRONIZATION"].append(
            work(at + 12_100, at + 12_200, key + 5, syncType=2, eventId=8, eventSyncId=key + 1)
        )
    return rows
