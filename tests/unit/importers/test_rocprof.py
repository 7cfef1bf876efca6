"""JSON files of rocprofv3: kernels, copies, calls, ranges."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli import root
from stepscope.errors import UnreadableTraceError
from stepscope.importers.rocprof import RocprofImporter
from stepscope.store import RunReader, open_run
from stepscope.testing.importer_contract import ImporterContract

BOOT_NS = 63_857_982_592_000
KINDS = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API", "operations": ["hipApiName", "hipLaunchKernel", "hipMemcpyAsync"]},
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_DEVICE"]},
    {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA", "roctxRangePop"]},
    {"kind": "RCCL_API", "operations": ["ncclAllReduce"]},
]
GPU, CPU = 37946, 37944
HIP = ((1, 1), (2, 3), (9, 4))
"""Operation and correlation of the calls of HIP."""


def call(kind: int, operation: int, start: int, end: int, number: int, **more: Any) -> Any:
    record = {"kind": kind, "operation": operation, "thread_id": 7, "size": 48,
              "correlation_id": {"internal": number, "external": 0}}  # fmt: skip
    times = {"start_timestamp": BOOT_NS + start, "end_timestamp": BOOT_NS + end}
    return record | times | more


def dispatch(start: int, end: int, number: int, kernel: int = 8) -> Any:
    info = {
        "agent_id": {"handle": GPU}, "queue_id": {"handle": 19}, "kernel_id": kernel,
        "group_segment_size": 1024, "workgroup_size": {"x": 256, "y": 1, "z": 1},
        "grid_size": {"x": 1000, "y": 2, "z": 1},
    }  # fmt: skip
    return call(11, 2, start, end, number, dispatch_info=info, stream_id={"handle": 0})


def agent(handle: int, kind: int, name: str, number: int) -> dict[str, Any]:
    return {"id": {"handle": handle}, "type": kind, "product_name": name,
            "logical_node_type_id": number, "cu_count": 256, "wave_front_size": 64}  # fmt: skip


RECORDING: dict[str, Any] = {
    "rocprofiler-sdk-tool": [
        {
            "metadata": {"pid": 908, "node": {"hostname": "mi350-3"}},
            "agents": [agent(CPU, 1, "EPYC", 0), agent(GPU, 2, "AMD Instinct MI350X", 3)],
            "strings": {
                "buffer_records": KINDS,
                "marker_api": [{"key": 5, "value": "forward"}],
            },
            "kernel_symbols": [
                {"kernel_id": 8, "formatted_kernel_name": "gemm", "arch_vgpr_count": 128}
            ],
            "buffer_records": {
                "kernel_dispatch": [dispatch(1000, 1400, 1), dispatch(1500, 1600, 2, kernel=9)],
                "memory_copy": [
                    call(2, 1, 300, 700, 3, bytes=4096, src_agent_id={"handle": CPU},
                         dst_agent_id={"handle": GPU})
                ],
                "hip_api": [call(1, n, 100 * n, 100 * n + 50, number) for n, number in HIP],
                "marker_api": [call(3, 1, 50, 900, 5), call(3, 2, 900, 901, 6)],
                "rccl_api": [call(4, 0, 950, 960, 7)],
            },
        }
    ]
}  # fmt: skip


def imported(tmp_path: Path, recording: Any) -> RunReader:
    (tmp_path / "r.json").write_text(json.dumps(recording))
    arguments = ["import", str(tmp_path / "r.json"), "-o", str(tmp_path / "run")]
    root.main(arguments, standalone_mode=False)
    return open_run(tmp_path / "run")


def rows(reader: RunReader, table: str, *columns: str) -> list[tuple[Any, ...]]:
    read = reader.table(table, columns, order_by="start_ns")
    return list(zip(*(values.tolist() for values in read.values()), strict=True))


class TestRocprof(ImporterContract):
    importer = RocprofImporter

    def write(self, directory: Path) -> Path:
        path = directory / "r.json"
        path.write_text(json.dumps(RECORDING))
        return path


def test_every_record_is_one_row(tmp_path: Path) -> None:
    reader = imported(tmp_path, RECORDING)
    kernels = ("name", "start_ns", "duration_ns", "device", "grid_x", "grid_y", "block_x")
    assert rows(reader, "kernels", *kernels) == [
        ("gemm", BOOT_NS + 1000, 400, 3, 4, 2, 256),
        ("kernel 9", BOOT_NS + 1500, 100, 3, 4, 2, 256),
    ]
    assert rows(reader, "kernels", "registers_per_thread", "shared_memory_bytes")[0] == (128, 1024)
    copies = rows(reader, "copies", "name", "start_ns", "duration_ns", "bytes", "device")
    assert copies == [("Memcpy HtoD", BOOT_NS + 300, 400, 4096, 3)]
    calls = ["hipLaunchKernel", "hipMemcpyAsync", "operation 9"]
    assert [name for (name,) in rows(reader, "runtime_calls", "name")] == calls
    ranges = rows(reader, "annotations", "name", "start_ns", "duration_ns")
    assert ranges == [("forward", BOOT_NS + 50, 850), ("ncclAllReduce", BOOT_NS + 950, 10)]
    ids = dict(rows(reader, "runtime_calls", "name", "id"))
    assert rows(reader, "kernels", "launch") == [(ids["hipLaunchKernel"],), (None,)]
    assert rows(reader, "copies", "launch") == [(ids["hipMemcpyAsync"],)]
    devices = reader.table("devices", ["device", "name", "multiprocessor_count", "warp_size"])
    assert [values.tolist() for values in devices.values()] == [
        [3], ["AMD Instinct MI350X"], [256], [64],
    ]  # fmt: skip
    assert reader.table("traces", ["node"])["node"].tolist() == ["mi350-3"]


def test_missing_times_and_impossible_numbers(tmp_path: Path) -> None:
    recording = copy.deepcopy(RECORDING)
    records = recording["rocprofiler-sdk-tool"][0]["buffer_records"]
    records["kernel_dispatch"][0]["end_timestamp"] = 0
    records["kernel_dispatch"].append(dispatch(-BOOT_NS, -BOOT_NS, 20))
    records["hip_api"][0]["kind"] = -1
    reader = imported(tmp_path, recording)
    assert rows(reader, "kernels", "name", "duration_ns") == [("kernel 9", 100)]
    quality = reader.table("quality", ["kind", "count"])
    counts = dict(zip(quality["kind"].tolist(), quality["count"].tolist(), strict=True))
    assert (counts["impossible_duration"], counts["impossible_time"]) == (1, 1)
    assert rows(reader, "runtime_calls", "name")[0] == ("operation 1",)


def test_each_process_is_a_trace(tmp_path: Path) -> None:
    recording = copy.deepcopy(RECORDING)
    processes = recording["rocprofiler-sdk-tool"]
    processes.append(copy.deepcopy(processes[0]))  # with the same correlations
    processes[1]["metadata"]["pid"] = 909
    processes.append({"metadata": {"pid": 910}})
    reader = imported(tmp_path, recording)
    names = reader.table("traces", ["name"])["name"].tolist()
    assert names == ["process 908 of r.json", "process 909 of r.json"]
    # Each kernel has the call of its own process.
    launches = "SELECT 1 FROM kernels JOIN runtime_calls c USING (trace) WHERE launch = c.id"
    assert len(reader.sql(launches)["1"]) == len(names)


@pytest.mark.parametrize(
    ("recording", "reason"),
    [
        ({"rocprofiler-sdk-tool": [{}]}, "a JSON file of rocprofv3, has nothing to import"),
        ({"rocprofiler-sdk-tool": []}, "a JSON file of rocprofv3, has nothing to import"),
        ({"rocprofiler-sdk-tool": [{"agents": 4}]}, "is a damaged file of rocprofv3"),
        (
            {"rocprofiler-sdk-tool": [{"agents": [agent(2**64, 2, "GPU", 0)]}]},
            "is a damaged file of rocprofv3",
        ),
    ],
)
def test_files_without_content_are_refused(tmp_path: Path, recording: Any, reason: str) -> None:
    with pytest.raises(UnreadableTraceError, match=reason):
        imported(tmp_path, recording)
