"""Categories: known ones are decoded in one pass; unknown ones are work of a device or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from stepscope import analysis, schema
from stepscope.importers.kineto import decode
from stepscope.importers.kineto.blocks import Block
from stepscope.importers.kineto.categories import KnownCategories
from stepscope.importers.kineto.columns import Chunk
from stepscope.importers.kineto.decode import decode_block
from stepscope.importers.kineto.gather import STRING_COLUMNS
from tests.support.kineto_files import (
    Event,
    Tables,
    imported,
    kernel,
    labels,
    launch,
    memory,
    microseconds,
    op,
    span,
    trace,
    training,
    without_category,
)

ARROWS: list[Event] = [
    {"ph": phase, "cat": "ac2g", "id": 7, "name": "ac2g", "pid": 1, "tid": 1, "ts": 3}
    for phase in "sff"
]
USUAL = [*(event for event in training() if event["ph"] != "M"), *ARROWS, memory(2, 512)]


def decoded(events: list[Event]) -> Chunk:
    return decode_block(Block(text=msgspec.json.encode(events)[1:-1]))


def assert_same(first: Chunk, second: Chunk) -> None:
    assert first.columns.keys() == second.columns.keys()
    for kind, columns in first.columns.items():
        assert columns.keys() == second.columns[kind].keys()
        for name, values in columns.items():
            actual, expected = values, second.columns[kind][name]
            if name in STRING_COLUMNS:  # codes of strings depend on their order
                actual = np.array([*first.strings, None], dtype=object)[values]
                expected = np.array([*second.strings, None], dtype=object)[expected]
            np.testing.assert_array_equal(actual, expected, f"{kind} {name}")
    for name in ("tracks", "metadata", "event_count", "flow_counts", "repaired"):
        assert getattr(first, name) == getattr(second, name), name


@pytest.fixture
def categories(monkeypatch: pytest.MonkeyPatch) -> KnownCategories:
    fresh = KnownCategories()
    monkeypatch.setattr(decode, "_categories", fresh)
    return fresh


@pytest.fixture
def empty_categories(monkeypatch: pytest.MonkeyPatch) -> KnownCategories:
    """Return a `KnownCategories` without categories."""
    monkeypatch.setattr(decode, "scan_block", lambda *_: None)  # these are of the Python decoder
    monkeypatch.setattr("stepscope.importers.kineto.categories._WRITTEN_BY_KINETO", set())
    fresh = KnownCategories()
    monkeypatch.setattr(decode, "_categories", fresh)
    return fresh


def test_a_known_block_is_decoded_in_one_pass(empty_categories: KnownCategories) -> None:
    text = msgspec.json.encode(USUAL)
    assert empty_categories.decode(text) is None
    first = decoded(USUAL)
    assert empty_categories.decode(text) is not None
    assert_same(decoded(USUAL), first)
    assert first.flow_counts == (2, 3)


def test_inexact_times_are_read_as_text(categories: KnownCategories) -> None:
    event = {**op("aten::mm", 0, 0), "dur": msgspec.Raw(b"1.001")}
    for nanosecond in (123, 124):
        event["ts"] = msgspec.Raw(b"1711964646123456.%d" % nanosecond)
        (columns,) = decoded([event]).columns.values()
        assert columns["start"].tolist() == [1_711_964_646_123_456_000 + nanosecond]
        assert columns["duration"].tolist() == [1_001]
        assert categories.decode(msgspec.json.encode([event])) is not None


def test_what_kineto_writes_is_known_from_the_start(
    categories: KnownCategories, request: pytest.FixtureRequest
) -> None:
    assert categories.decode(msgspec.json.encode(USUAL)) is not None
    known_chunk = decoded(USUAL)
    request.getfixturevalue("empty_categories")
    assert_same(known_chunk, decoded(USUAL))


@pytest.mark.parametrize(
    "odd",
    [
        {**op("aten::new", 1, 2), "cat": "new category"},
        {**op("aten::new", 1, 2), "ph": "B"},
        {**op("aten::new", 1, 2), "args": {"External id": "12"}},
        {**op("aten::new", 1, 2), "args": {"unknown": "key"}},
        {**op("aten::new", 1, 2), "args": None},
        {**op("aten::new", 1, 2), "tid": 1.5},
        {**kernel(1, 2, 5), "args": {"Collective name": "all_reduce", "Seq": 3}},
        {**memory(2, 512), "name": "something else"},
        {**memory(2, 512), "cat": "other instants"},
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    ],
)
def test_odd_events_are_decoded_the_slow_way(categories: KnownCategories, odd: Event) -> None:
    first = decoded([*USUAL, odd])
    assert_same(decoded([*USUAL, odd]), first)
    categories.__init__()  # type: ignore[misc]
    decoded(USUAL)
    assert_same(decoded([*USUAL, odd]), first)
    assert_same(decoded([*USUAL, odd]), first)


def test_a_kind_is_known_in_all_its_categories_or_none(categories: KnownCategories) -> None:
    other_instant = {**memory(2, 512), "cat": "other instants"}
    instant = {**other_instant, "name": "something else"}
    first = decoded([*USUAL, other_instant, instant])
    categories.__init__()  # type: ignore[misc]
    decoded([*USUAL, instant])
    assert_same(decoded([*USUAL, other_instant, instant]), first)
    assert_same(decoded([*USUAL, other_instant, instant]), first)


# --- devices of every maker ----------------------------------------------------------------------


def steps(category: str, **replaced: Any) -> list[Event]:
    """Return two steps, each with a launch and its work of a category."""
    events = []
    for number in range(2):
        at = 10_000 * number
        events += [
            span("user_annotation", f"ProfilerStep#{number}", at, 9_999),
            op("aten::mm", at + 100, 2_000),
            launch(at + 200, 100, number + 1),
            kernel(at + 400, 6_000, number + 1, category=category, **replaced),
        ]
    return events


CALLS = {
    schema.event_kind(name): schema.event_kind(name).categories
    for name in ("runtime_call", "driver_call")
}


@pytest.mark.parametrize("category", ["hpu_op", "mps_kernel", "npu_kernel", "foo_kernel", "", "x"])
def test_work_is_told_by_its_launch(category: str) -> None:
    tables, usual = imported(trace(*steps(category))), imported(trace(*steps("kernel")))
    assert tables.rows("kernels") == usual.rows("kernels")
    assert tables.quality["device_layout"]["count"] == 2
    assert "device_not_understood" not in tables.quality
    assert not tables.rows("other_events")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("cudaMemcpyAsync", "copies"),
        ("hipMemsetAsync", "copies"),
        ("urEnqueueKernelLaunch", "kernels"),
    ],
)
def test_a_launch_tells_the_kind_of_its_work(name: str, table: str) -> None:
    tables = imported(trace(launch(0, 10, 3, name=name), kernel(100, 50, 3, category="foo_op")))
    assert tables.one(table)["launch"] == 0


@pytest.mark.parametrize("category", [text for texts in CALLS.values() for text in texts])
def test_each_category_of_calls_launches_work(category: str) -> None:
    tables = imported(trace(launch(0, 10, 3, category=category), kernel(100, 50, 3)))
    kind = next(kind for kind, texts in CALLS.items() if category in texts)
    assert tables.one("runtime_calls")["driver"] == kind.constants["driver"]
    assert tables.one("kernels")["launch"] == 0
    assert set(tables.quality) == {"clock_base"}


@pytest.mark.parametrize("category", ["hpu_op", "mtia_ccp_events_op", "neuron_op", "npu_task"])
def test_work_without_a_launch_is_not_understood(category: str) -> None:
    events = [span(category, f"task {n}", 1_000 * n, 500, pid=1, tid=2) for n in range(3)]
    tables = imported(trace(*events, op("aten::mm", 0, 9_000)))
    note = tables.quality["device_not_understood"]
    assert (note["count"], note["of_count"]) == (3, 4)
    assert note["detail"] == f"category {category}: 3 events, 1.5 µs"
    assert not tables.rows("kernels")


def test_a_labelled_process_is_not_understood() -> None:
    label = {"ph": "M", "name": "process_labels", "pid": 1, "tid": 0, "args": {"labels": "TPU 0"}}
    tables = imported(trace(label, span("", "fusion", 0, 500, pid=1, tid=2)))
    assert tables.quality["device_not_understood"]["detail"] == "process TPU 0: 1 event, 500 ns"


@pytest.mark.parametrize("device", ["/device:GPU:0/stream:all", "/job:a/task:0/device:GPU:0"])
def test_streams_of_tensorflow_1_are_not_understood(device: str) -> None:
    """Its timeline has each kernel several times: https://www.tensorflow.org/api_docs/python/tf/compat/v1/RunMetadata."""
    args = {"name": f"{device} Compute"}
    name = {"ph": "M", "name": "process_name", "pid": 7, "args": args}
    tables = imported(trace(name, span("Op", "MatMul", 0, 500, pid=7, tid=0)))
    assert tables.quality["device_not_understood"]["detail"] == "category Op: 1 event, 500 ns"


@pytest.mark.parametrize(
    ("category", "process"),
    [
        ("cuda_sync", "GPU 0"), ("cuda_event", "GPU 0"), ("Trace", "GPU 0"), ("overhead", ""),
        ("mtia_counters", ""), ("foo_runtime", ""), ("v8", "GPU Process"), ("", "python"),
        ("", "Communication"), ("", "CANN"),  # without a process of the hardware
    ],
)  # fmt: skip
def test_what_is_no_work_is_not_doubted(category: str, process: str) -> None:
    name = {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": process}}
    args = {"correlation": 9}
    call = launch(0, 10, 9, name="cudaStreamSynchronize")
    tables = imported(trace(name, call, span(category, "a", 5, 9, pid=0, tid=7, args=args)))
    assert set(tables.quality) == {"clock_base"}
    table = "synchronisations" if category == "cuda_sync" else "other_events"
    assert tables.names(table) == ["a"]


def test_a_wait_on_a_stream_is_not_its_work() -> None:
    call = launch(0, 10, 9, name="cudaStreamSynchronize")
    tables = imported(trace(call, kernel(5, 9, 9, category="foo_op")))
    assert not tables.rows("kernels")
    assert tables.quality["device_not_understood"]["count"] == 1


def test_a_trace_of_paddle() -> None:
    """Names end with the duration, and copies state no device."""
    number = {"correlation id": 5}
    tables = imported(
        trace(
            span("ProfileStep", "ProfileStep#3[0.009 ms]", 0, 9_000, tid="1(Python)"),
            span("Operator", "matmul dygraph[0.002 ms]", 100, 2_000, tid="1(C++)"),
            span("CudaRuntime", "cudaLaunchKernel[0.000 ms]", 200, 50, tid="1(C++)", args=number),
            span(
                "Kernel", "gemm[0.001 ms]", 900, 1_000, pid=2, tid=7,
                args=number | {"device": 2, "stream": 7},
            ),
            span("Memcpy", "MEMCPY_HtoD[0.001 ms]", 2_000, 800, pid=2, tid=7, args={"stream": 7}),
            *(
                span("Dataloader", f"{name}[0.001 ms]", start, 50, tid="1(Python)")
                for name, start in (("next", 10), ("_DataLoaderIterSingleProcess", 80))
            ),
            schemaVersion="1.0.1",
            span_indx="0",
        )
    )  # fmt: skip
    step, *fetches = tables.names("annotations")
    assert step == "ProfilerStep#3"
    assert fetches == ["_DataLoaderIter#next", "_DataLoaderIterSingleProcess"]
    assert all(map(analysis.is_data_loader, fetches))
    assert "unmatched_external_id" not in tables.quality
    assert tables.names("operators") == ["matmul dygraph"]
    kernel_row, copy = tables.one("kernels"), tables.one("copies")
    assert (kernel_row["name"], kernel_row["launch"], kernel_row["operator"]) == ("gemm", 2, 1)
    assert (kernel_row["device"], copy["device"]) == (2, 2)
    assert "device_not_understood" not in tables.quality
    assert not tables.rows("other_events")


def link(category: str, ends: Mapping[str, Event]) -> list[Event]:
    """Return an arrow from the start of an event to that of another, by phase."""
    return [
        {"ph": phase, "cat": category, "name": category, "id": 3}
        | {key: event[key] for key in ("pid", "tid", "ts")}
        for phase, event in ends.items()
    ]


def test_devices_of_the_autograd_profiler() -> None:
    """Threads are devices; the work of an operator contains that of the operators in it."""
    outer, inner = op("linear", 0, 100, pid="CPU functions"), op("mm", 20, 50, pid="CPU functions")
    work = [
        span("", name, start, length, pid="CUDA functions", tid=device)
        for name, start, length, device in (
            ("linear", 200, 90_000, 0), ("mm", 20_000, 40_000, 0), ("add", 300, 10, 1),
        )
    ]  # fmt: skip
    arrow = link("cpu_to_cuda", {"s": inner, "f": work[1]})
    tables = imported(trace(*map(without_category, [outer, inner, *work]), *arrow))
    assert tables.names("operators") == ["linear", "mm"]
    kernels = {row["name"]: row for row in tables.rows("kernels")}
    assert {name: (row["duration_ns"], row["device"]) for name, row in kernels.items()} == {
        "linear": (90_000, 0), "mm": (40_000, 0), "add": (10, 1),
    }  # fmt: skip
    assert kernels["mm"]["operator"] == 1
    assert tables.quality["device_layout"]["detail"] == "CUDA"
    assert "overflow" not in tables.quality


def test_processes_of_rocprof() -> None:
    call = span("", "hipLaunchKernel", 1_000, 5_000, pid=2, tid=7)
    work = span("", "gemm.kd", 9_000, 70_000, pid=7, tid=0)
    events = [
        *labels({1: "0 Markers and Ranges", 2: "1 CPU HIP API", 3: "2 COPY", 7: "3 GPU1"}, {}),
        span("", "iteration 1", 0, 90_000, pid=1, tid=7), call, work,
        span("", "CopyHostToDevice", 2_000, 3_000, pid=3, tid=0),
    ]  # fmt: skip
    arrow = link("DataFlow", {"s": call, "t": work})
    tables = imported(trace(*map(without_category, events), *arrow))
    assert tables.names("annotations") == ["iteration 1"]
    (kernel_row,), (call_row,) = tables.rows("kernels"), tables.rows("runtime_calls")
    assert (kernel_row["launch"], kernel_row["device"]) == (call_row["id"], 1)
    assert tables.names("copies") == ["CopyHostToDevice"]
    assert tables.quality["device_layout"]["detail"] == "HIP"


def test_categories_of_rocprofv3() -> None:
    """As traceconv writes its Perfetto trace."""
    number = {"debug.corr_id": 5}
    tables = imported(
        trace(
            *labels({}, {(1, 9): "COMPUTE AGENT [4] QUEUE [1] (GPU)", (1, 8): "STREAM [2]"}),
            span("hip_runtime_api", "hipLaunchKernel", 0, 500, args=number),
            span("kernel_dispatch", "gemm", 900, 9_000, pid=1, tid=9, args=number),
            span("memory_copy", "MEMORY_COPY_HOST_TO_DEVICE", 20, 600, pid=1, tid=8),
        )
    )
    (kernel_row,), (copy,) = tables.rows("kernels"), tables.rows("copies")
    assert (kernel_row["device"], copy["device"]) == (4, 0)
    streams = {row["stream"] for row in tables.rows("tracks") if row["kind"] == "device"}
    assert streams == {1, 2}
    assert kernel_row["launch"] == tables.one("runtime_calls")["id"]
    assert "device_not_understood" not in tables.quality


ASCEND = {10: "Python", 500: "CANN", 800: "Ascend Hardware", 900: "HCCL", 990: "Overlap Analysis"}
ASCEND_THREADS = {
    (800, 3): "Stream 3", (900, 1): "Group 0 Communication", (900, 2): "Plane 0",
    (990, 0): "Computing", (990, 1): "Communication", (990, 3): "Free",
}  # fmt: skip


def ascend(*events: Event, threads: Mapping[tuple[int, int], str] = ASCEND_THREADS) -> Tables:
    """Import a file as torch_npu writes it: a bare list, times as text, no categories."""
    names = labels(ASCEND, threads)
    plain = [{key: value for key, value in event.items() if value != ""} for event in events]
    for event in plain:
        event["ts"] = bytes(event["ts"]).decode()
    return imported(msgspec.json.encode([*names, *plain]))


def task(name: str, start: int, duration: int, pid: int = 800, tid: int = 3) -> Event:
    return span("", name, start, duration, pid=pid, tid=tid, args={"Task Id": 1})


def arrow(category: str, number: int, source: tuple[int, int, int], target: int) -> list[Event]:
    pid, tid, at = source
    ends = [("s", pid, tid, at), ("f", 800, 3, target)]
    return [
        {"ph": ph, "cat": category, "name": category, "id": str(number)}
        | {"pid": pid, "tid": tid, "ts": microseconds(at)}
        for ph, pid, tid, at in ends
    ]


ASCEND_STEP = [
    op("ProfilerStep#1", 0, 10_000),
    op("aten::mm", 100, 300),
    task("AscendCL@aclnnMm", 500, 400, pid=500, tid=9),
    *arrow("HostToDevice", 4, (500, 9, 600), 1_000),
    *arrow("async_npu", 1_000, (10, 1, 100), 1_000),
    task("aclnnMm_MatMul", 1_000, 2_000),
    task("EVENT_WAIT", 3_000, 4_000),
    task("MEMCPY_ASYNC", 7_000, 100),
    task("hcom_allReduce__1_2", 2_500, 1_500, pid=900, tid=1),
    task("Notify_Wait", 2_500, 1_000, pid=900, tid=2),
    task("Computing", 1_000, 2_000, pid=990, tid=0),
    task("Communication", 2_500, 1_500, pid=990, tid=1),
    task("Free", 4_000, 3_000, pid=990, tid=3),
]


def test_processes_of_ascend() -> None:
    tables = ascend(*ASCEND_STEP)
    assert tables.names("kernels") == ["aclnnMm_MatMul", "hcom_allReduce__1_2"]
    assert tables.names("copies") == ["MEMCPY_ASYNC"]
    assert tables.names("runtime_calls") == ["AscendCL@aclnnMm"]
    assert tables.names("other_events") == [
        "EVENT_WAIT", "Notify_Wait", "Computing", "Communication", "Free",
    ]  # fmt: skip
    matmul, reduction = tables.rows("kernels")
    assert (matmul["device"], reduction["device"]) == (0, 0)
    assert "device_not_understood" not in tables.quality
    assert tables.quality["device_layout"]["detail"] == "Ascend NPU"


def test_arrows_of_ascend_tie_work_to_its_call_and_operator() -> None:
    tables = ascend(*ASCEND_STEP)
    first = len(ASCEND) + len(ASCEND_THREADS)
    matmul = next(row for row in tables.rows("kernels") if row["name"] == "aclnnMm_MatMul")
    assert matmul["launch"] == first + 2
    assert matmul["operator"] == first + 1
    operator = tables.by_id("operators")[first + 1]
    assert operator["launched_ns"] == 2_000


def test_arrows_of_ascend_hold_beside_an_event_without_a_time() -> None:
    without_time = {**ASCEND_STEP[0], "ts": b"unknown"}
    intact, tables = ascend(*ASCEND_STEP), ascend(*ASCEND_STEP, without_time)
    assert tables.quality["impossible_time"]["count"] == 1
    assert [row["operator"] for row in tables.rows("kernels")] == [
        row["operator"] for row in intact.rows("kernels")
    ]


def test_figures_of_ascend_are_those_of_its_overlap_analysis() -> None:
    tables = ascend(*ASCEND_STEP)
    rows = [*tables.rows("kernels"), *tables.rows("copies")]
    columns = {
        name: np.array([row[name] or 0 for row in rows], dtype=np.int64)
        for name in ("track", "device", "start_ns", "duration_ns")
    }
    names = [row["name"] for row in rows]
    end = columns["start_ns"] + columns["duration_ns"]
    zero = np.zeros(len(rows), dtype=np.int64)
    work = analysis.DeviceWork(
        track=columns["track"],
        device=columns["device"],
        start=columns["start_ns"],
        end=end,
        kind=np.array([0, 0, 1], dtype=np.int8),
        communication=np.array([analysis.is_communication(name) for name in names]),
        carry_over=zero.astype(np.bool_),
        launch=zero,
    )
    time = analysis.measure_gpu_time(work)
    assert time is not None
    assert (time.compute_ns, time.comm_ns, time.exposed_comm_ns) == (2_000, 1_500, 1_000)
    assert time.idle_ns == 3_000


def test_collectives_of_ascend_without_their_whole_are_not_understood() -> None:
    threads = {key: name for key, name in ASCEND_THREADS.items() if key != (900, 1)}
    events = [event for event in ASCEND_STEP if (event["pid"], event["tid"]) != (900, 1)]
    note = ascend(*events, threads=threads).quality["device_not_understood"]
    assert note["detail"] == "process HCCL: 1 event, 1 µs"


def test_advice_names_cuda_to_jobs_of_cuda_only() -> None:
    advice = "torch.cuda.stream(s), PYTORCH_CUDA_ALLOC_CONF, with CUDA activities "
    advice += "(ProfilerActivity.CUDA)"
    for accelerator in schema.ACCELERATORS:
        assert ("cuda" in accelerator.adapt(advice).lower()) == accelerator.has_cuda
