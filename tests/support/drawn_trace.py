"""Events of a recording as a recorder writes them, in microseconds from a common start."""

from __future__ import annotations

from typing import Any

START_US = 1_700_000_000_000_000
Event = dict[str, Any]


def event(
    category: str,
    name: str,
    at: float,
    duration: float,
    *,
    thread: Any = 10,
    pid: Any = 10,
    **args: Any,
) -> Event:
    """Return a complete event."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": thread,
        "ts": START_US + at,
        "dur": duration,
        "args": args,
    }


def launch(number: int, at: float, duration: float = 2) -> Event:
    """Make a runtime call that launches a kernel."""
    return event("cuda_runtime", "cudaLaunchKernel", at, duration, correlation=number)


def kernel(
    name: str,
    at: float,
    duration: float,
    number: int,
    *,
    stream: int = 7,
    device: int = 0,
    **args: Any,
) -> Event:
    """Return a kernel, launched by the call of that number."""
    location = {"thread": stream, "pid": device, "device": device, "stream": stream}
    return event("kernel", name, at, duration, **location, correlation=number, **args)


def copy(
    name: str, at: float, duration: float, number: int, size: int, *, stream: int = 7
) -> Event:
    """Return a copy or set of device memory."""
    category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
    location = {"thread": stream, "pid": 0, "device": 0, "stream": stream}
    return event(category, name, at, duration, **location, correlation=number, bytes=size)


def step(number: int, at: float, duration: float) -> Event:
    """Return a step's mark on the host."""
    return event("user_annotation", f"ProfilerStep#{number}", at, duration)


def distributed(
    events: list[Event], rank: int, world: int, backend: str = "nccl"
) -> dict[str, Any]:
    """Return the content of a file that names its rank."""
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": backend, "rank": rank, "world_size": world},
        "traceEvents": events,
    }


def training() -> list[Event]:
    """Two steps of 100 us: a fetch, an operator with its launches, kernels, an all-reduce."""
    events = []
    for i, at in enumerate((0, 100)):
        first = 10 * i
        events += [
            step(i + 1, at, 100),
            event(
                "user_annotation",
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                at + 2,
                18,
            ),
            event("cpu_op", "aten::mm", at + 25, 30),
            launch(first + 1, at + 30),
            launch(first + 2, at + 34),
            launch(first + 3, at + 38),
            copy("Memcpy HtoD (Pinned -> Device)", at + 33, 5, first + 1, 5_000),
            kernel("ampere_fp16_s16816gemm_fp16_128x128", at + 40, 20, first + 2, grid=[40, 2, 1]),
            kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 50, 30, first + 3, stream=20),
        ]
    return events
