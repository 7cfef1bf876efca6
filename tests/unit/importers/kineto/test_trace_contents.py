"""Devices, groups, threads and collectives of a file in the tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.kineto_files import (
    Event,
    imported,
    kernel,
    labels,
    launch,
    memory,
    op,
    python,
    span,
    trace,
    training,
    without_category,
)

NCCL = {
    "Collective name": "allreduce",
    "In msg nelems": 25_557_032,
    "Out msg nelems": 25_557_032,
    "Group size": 8,
    "dtype": "Float",
    "In split size": "[]",
    "Out split size": "[]",
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": "[0, 1, ..., 7]",
}


def test_collectives_of_operator_and_kernel() -> None:
    """The kernel has the External id of `record_param_comms`, not that of the annotation."""
    events = [
        span("user_annotation", "nccl:all_reduce", 0, 900, args={"External id": 2100}),
        op("record_param_comms", 10, 800, {**NCCL, "Seq": 4, "Record function id": 0}, external=9),
        launch(100, 50, 3, external=9),
        kernel(500, 4_000, 3, {**NCCL, "grid": [24, 1, 1]}, name="ncclDevKernel_AllReduce_Sum_f32"),
    ]
    tables = imported(trace(*events))
    collectives = tables.by_id("collectives")
    assert [(n, collectives[n]["on_device"]) for n in sorted(collectives)] == [(1, 0), (3, 1)]
    for row in collectives.values():
        assert (row["name"], row["dtype"], row["group"]) == ("allreduce", "Float", "0")
        assert (row["in_elements"], row["group_size"]) == (25_557_032, 8)
        assert row["group_ranks"] == "[0, 1, ..., 7]"
        assert row["group_description"] == "default_pg"
    assert (collectives[1]["sequence"], collectives[3]["sequence"]) == (4, None)
    row = tables.one("kernels")
    assert (row["operator"], row["grid_x"], row["args"]) == (1, 24, None)


@pytest.mark.parametrize(
    ("args", "column", "expected"),
    [
        ({"Process Group ID": 3, "Process Group Name": None}, "group", "3"),
        ({"Process Group Name": 7}, "group", "7"),
        ({"Process Group Ranks": [0, 1]}, "group_ranks", "[0,1]"),
        ({"In split size": [1, 2]}, "in_split", "[1,2]"),
        ({"Src Rank": 1, "Dst Rank": 2}, "peer_destination", 2),
        ({"Group size": 2**40}, "group_size", None),
        ({"In msg nelems": 2**70}, "in_elements", None),
        ({"Comms Id": 2**63}, "args", '{"Comms Id":9223372036854775808}'),
    ],
)
def test_collectives_as_other_versions_write_them(
    args: dict[str, Any], column: str, expected: object
) -> None:
    collectives = imported(trace(op("record_param_comms", 0, 10, {**NCCL, **args}))).one(
        "collectives"
    )
    assert collectives[column] == expected


def test_an_invalid_collective_is_kept_as_it_is() -> None:
    odd = {"Collective name": "allreduce", "Group size": "many"}
    tables = imported(trace(op("record_param_comms", 0, 10, odd)))
    assert json.loads(tables.one("operators")["args"]) == odd
    assert not tables.rows("collectives")


def test_a_runtime_call_keeps_the_keys_of_a_collective() -> None:
    tables = imported(trace(launch(0, 10, 3, {"Collective name": "x", "Group size": 2})))
    args = json.loads(tables.one("runtime_calls")["args"])
    assert args == {"Collective name": "x", "Group size": 2}


def test_kernels_of_amd_have_no_grid() -> None:
    device = {"device": 2, "stream": 0, "correlation": 5, "kind": "Dispatch Kernel"}
    call = {"cid": 5, "kernel": "Cijk_gemm", "grid": [1, 2, 3], "stream": "0x0"}
    events = [
        launch(0, 10, 5, call, name="hipLaunchKernel"),
        span("kernel", "Cijk_gemm", 100, 50, pid=2, tid=0, args=device),
    ]
    tables = imported(trace(*events))
    row = tables.one("kernels")
    assert (row["device"], row["launch"], row["grid_x"], row["occupancy_percent"]) == (
        2,
        0,
        None,
        None,
    )
    assert json.loads(row["args"]) == {"kind": "Dispatch Kernel"}
    assert json.loads(tables.one("runtime_calls")["args"]) == call


def test_threads_of_older_recorders() -> None:
    events = [
        span("Operator", "a", 0, 100, pid="77", tid="thread 3"),
        span("Kernel", "k", 500, 10, pid="GPU 1", tid="stream 7", args={"device": 1, "stream": 7}),
        span("Memcpy", "m", 600, 10, pid="GPU 1", tid="stream 20"),
    ]
    tracks = {row["tid"]: row for row in imported(trace(*events)).rows("tracks")}
    assert tracks["thread 3"]["kind"] == "host"
    assert (tracks["stream 7"]["device"], tracks["stream 7"]["stream"]) == (1, 7)
    assert (tracks["stream 20"]["device"], tracks["stream 20"]["stream"]) == (1, 20)


def test_names_of_processes_and_threads() -> None:
    def metadata(name: str, value: object, **more: object) -> Event:
        key = {"process_labels": "labels"}.get(name, "sort_index" if "sort" in name else "name")
        return {"ph": "M", "name": name, "pid": 10, "tid": 1, **more, "args": {key: value}}

    events = [
        metadata("process_name", "first"),
        metadata("process_name", "python"),
        metadata("process_labels", "CPU"),
        metadata("process_sort_index", 10),
        metadata("thread_name", "thread 1 (python)"),
        metadata("thread_sort_index", 3),
        metadata("thread_name", None, tid=2),
        {"ph": "M", "name": "odd"},
    ]
    row = imported(trace(*events, op("a", 0, 1))).one("tracks")
    assert (row["process_name"], row["process_labels"]) == ("python", "CPU")
    assert (row["thread_name"], row["process_order"], row["thread_order"]) == (
        "thread 1 (python)", 10, 3,
    )  # fmt: skip


def test_devices_and_process_groups() -> None:
    device = {"id": 1, "name": "A100", "totalGlobalMem": 85_051_572_224, "computeMajor": 8,
              "numSms": 108, "warpSize": 32, "sharedMemPerMultiprocessor": 167_936}  # fmt: skip
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl",
             "pg_size": 2, "ranks": [0, 1], "uid": 5}  # fmt: skip
    info = {"backend": "nccl", "rank": 1, "world_size": 2, "pg_config": [group, "odd"]}
    tables = imported(
        trace(*training(), deviceProperties=[device, 7], distributedInfo=info, host_name="h")
    )
    row = tables.one("devices")
    assert (row["device"], row["name"], row["multiprocessor_count"]) == (1, "A100", 108)
    assert row["memory_bytes"] == 85_051_572_224
    assert json.loads(row["args"]) == {"sharedMemPerMultiprocessor": 167_936}
    row = tables.one("process_groups")
    assert (row["name"], row["size"], row["ranks"]) == ("0", 2, "[0,1]")
    assert json.loads(row["args"]) == {"uid": 5}
    row = tables.one("traces")
    assert (row["rank"], row["world_size"], row["backend"]) == (1, 2, "nccl")
    assert json.loads(row["metadata"]) == {"schemaVersion": 1, "host_name": "h"}


@pytest.mark.parametrize(
    "odd", [None, [], 5, "x", {"rank": "first"}, {"rank": 2**40, "pg_config": 1}]
)
def test_headers_of_any_type(odd: object) -> None:
    row = imported(trace(op("a", 0, 1), distributedInfo=odd, deviceProperties=odd)).one("traces")
    assert row["rank"] is None


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-3.json.gz", 3),
        ("worker_rank12.pt.trace.json", 12),
        ("trace.json", None),
        ("frank5", None),
    ],
)
def test_a_rank_may_be_in_the_name(name: str, rank: int | None) -> None:
    assert imported(trace(*training()), name=name).one("traces")["rank"] == rank


def test_records_that_the_recorder_dropped() -> None:
    lines = ["other", "Record counts: Out-of-range = 3, Blocklisted runtime = 9, dropped = 4"]
    dropped = imported(trace(*training(), INFO=lines)).quality["dropped_by_recorder"]
    assert dropped["count"] == 7
    assert "dropped: 4" in dropped["detail"]


# --- traces without some kinds of events ----------------------------------------------------------


def test_devices_only() -> None:
    tables = imported(trace(kernel(0, 10, 3), kernel(50, 10, 4, category="gpu_memcpy")))
    assert tables.counts() == {
        "kernels": 1, "copies": 1, "tracks": 1, "quality": 2, "timeline": 1, "traces": 1,
    }  # fmt: skip
    assert tables.one("kernels")["carry_over"] == 0  # no launch was recorded at all
    assert tables.quality["unlinked_device"]["count"] == 2


def test_host_only() -> None:
    tables = imported(trace(op("a", 0, 10), python("f", 0, 20, 1), memory(5, 512)))
    assert set(tables.counts()) == {
        "operators", "python_functions", "memory_events", "tracks", "quality", "timeline", "traces",
    }  # fmt: skip
    row = tables.one("traces")
    assert (row["has_stacks"], row["has_memory"], row["has_shapes"]) == (1, 1, 0)


def test_the_row_in_traces_is_written_last() -> None:
    assert imported(trace(*training())).written[-1] == "traces"


def test_steps_of_xla() -> None:
    """Ranges of a host with the number of a step, as its annotation writes them."""
    steps = [
        span("", name, 1_000 * n, 900, pid=7, args={"step_num": str(90 + n), "_r": "1"})
        for n, name in enumerate(("train", "train", "eval"))
    ]
    on_device = span("", "fusion", 0, 50, pid=3, tid=3, args={"step_num": "1"})
    names = labels({3: "/device:TPU:0", 7: "/host:CPU"}, {(3, 3): "XLA Ops"})
    tables = imported(trace(*names, *map(without_category, [*steps, on_device])))
    assert tables.names("annotations") == ["ProfilerStep#90", "ProfilerStep#91"]
    assert tables.names("kernels") == ["fusion"]
    assert tables.names("other_events") == ["eval"]


@pytest.mark.parametrize(
    ("name", "is_fetch"),
    [
        ("IteratorGetNext", True),
        ("model/IteratorGetNext:IteratorGetNext", True),
        ("IteratorGetNextOp::DoCompute#id=3#", True),
        ("MakeIterator", False),
    ],
)
def test_waits_for_tf_data_on_hosts_of_xla(name: str, is_fetch: bool) -> None:
    wait = span("", name, 0, 900, pid=7)
    names = labels({3: "/device:GPU:0", 7: "/host:CPU"}, {(3, 3): "Stream #3"})
    tables = imported(trace(*names, *map(without_category, [wait, wait | {"pid": 3, "tid": 3}])))
    assert tables.names("annotations") == ["IteratorGetNextOp::DoCompute"] * is_fetch
    assert tables.names("kernels") == [name]
    metadata = json.loads(tables.one("traces")["metadata"])
    assert metadata["recorder"] == ("TensorFlow" if is_fetch else "XLA")


@pytest.mark.parametrize("has_marks", [False, True])
def test_steps_of_a_line_of_a_tpu(has_marks: bool) -> None:
    """The first device's line of steps, unless the host marks them."""
    events = [
        span("", str(10 + n), 1_000 * n, 900, pid=pid, tid=1) for n in range(3) for pid in (3, 4)
    ]
    events += [span("", "7", 1_000, 50, pid=3, tid=3), span("", "PjitFunction(f)", 0, 5, pid=7)]
    if has_marks:
        events.append(span("", "train", 0, 2_900, pid=7, args={"step_num": "90"}))
    processes = {3: "/device:TPU:0", 4: "/device:TPU:1", 7: "/host:CPU"}
    lines = {(3, 1): "Steps", (4, 1): "Steps", (3, 3): "XLA Ops"}
    tables = imported(trace(*labels(processes, lines), *map(without_category, events)))
    assert tables.names("annotations") == [
        f"ProfilerStep#{n}" for n in ([90] if has_marks else [10, 11, 12])
    ]
    assert tables.names("kernels") == ["7"]
    assert [row["on_device"] for row in tables.rows("annotations")] == [0] * (1 if has_marks else 3)
