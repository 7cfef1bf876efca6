"""Drawn traces of a training job with a GPU: a simulated host, its launches and its streams.

    job = TraceJob()
    for _ in range(5):
        with job.step():
            job.fetch(800)
            job.operator("aten::mm", 20, kernel=("ampere_sgemm_128x64_tn", 400))
    path.write_bytes(job.encode())

Times are microseconds. The host runs one thing after another; a kernel starts when it was launched
and the kernel before it on its stream is done; a wait lasts until the streams are empty. So what
a trace shows follows from what the job does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

START_US = 1_700_000_000_000_000
HOST = 100
"""Process and thread of the host."""
COMPUTE_STREAM, COMMUNICATION_STREAM, COPY_STREAM = 7, 20, 24
LAUNCH_US = 5.0
DEVICE = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-40GB",
    "computeMajor": 8,
    "computeMinor": 0,
    "numSms": 108,
    "totalGlobalMem": 42_000_000_000,
}


class TraceJob(msgspec.Struct, kw_only=True):
    """A job that is drawn as the trace of one rank.

    Args:
        rank: number of the rank; None for a job of one process.
        world_size: number of ranks.
    """

    rank: int | None = None
    world_size: int = 1
    now: float = 0.0
    """Time of the host."""
    events: list[dict[str, Any]] = msgspec.field(default_factory=list)
    free: dict[int, float] = msgspec.field(default_factory=dict)
    """Time at which each stream is done."""
    _step: int = 0
    _launches: int = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Draw a step: the range that the profiler writes around its contents."""
        with self.range(f"ProfilerStep#{self._step}"):
            yield
        self._step += 1

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Draw a range of a framework or of the script around its contents."""
        start = self.now
        yield
        self._host("user_annotation", name, start, self.now - start)

    @contextmanager
    def optimizer(self, name: str = "Adam") -> Iterator[None]:
        """Draw an optimizer step around its contents."""
        with self.range(f"Optimizer.step#{name}.step"):
            yield

    def fetch(self, duration: float, *, workers: bool = False) -> None:
        """Fetch a batch, made by the host itself or by workers."""
        iterator = "_MultiProcessingDataLoaderIter" if workers else "_SingleProcessDataLoaderIter"
        with self.range(f"enumerate(DataLoader)#{iterator}.__next__"):
            self.now += duration

    @contextmanager
    def function(self, name: str) -> Iterator[None]:
        """Draw a Python function around its contents, as with `with_stack=True`."""
        start = self.now
        yield
        self._host("python_function", name, start, self.now - start)

    def python(self, duration: float) -> None:
        """Run Python code that calls no operator."""
        self.now += duration

    def operator(
        self,
        name: str,
        duration: float,
        *,
        kernel: tuple[str, float] | None = None,
        stream: int = COMPUTE_STREAM,
        **arguments: Any,
    ) -> None:
        """Call an operator, whose kernel is launched at its end."""
        start = self.now
        self.now += duration
        if kernel is not None:
            self.launch(*kernel, stream=stream, **arguments)
        self._host("cpu_op", name, start, self.now - start)

    def launch(
        self, name: str, duration: float, *, stream: int = COMPUTE_STREAM, **arguments: Any
    ) -> None:
        """Launch a kernel."""
        number = self._call("cudaLaunchKernel", LAUNCH_US)
        grid = {"grid": [1000, 1, 1], "block": [256, 1, 1], "blocks per SM": 9.3}
        self._device("kernel", name, duration, number, stream, **(grid | arguments))

    def collective(self, name: str, duration: float) -> None:
        """Launch a collective, which starts when the gradients so far are computed."""
        self.follow(COMMUNICATION_STREAM)
        with self.range(f"nccl:{name}"):
            self.launch(
                f"ncclDevKernel_{name}_Sum_f32_RING_LL", duration, stream=COMMUNICATION_STREAM
            )

    def follow(self, stream: int) -> None:
        """Let a stream wait for the computation so far, as by an event."""
        self.free[stream] = max(self.free.get(stream, 0.0), self.free.get(COMPUTE_STREAM, 0.0))

    def join(self) -> None:
        """Let the computation wait for all streams, as before an optimizer step."""
        done = max(self.free.values(), default=0.0)
        self.free[COMPUTE_STREAM] = done

    def copy(
        self,
        duration: float,
        *,
        route: str = "HtoD (Pinned -> Device)",
        stream: int = COMPUTE_STREAM,
    ) -> None:
        """Copy memory, as with `non_blocking=True`. The call lasts for copies that use pageable
        memory."""
        number = self._call("cudaMemcpyAsync", LAUNCH_US)
        end = self._device("gpu_memcpy", f"Memcpy {route}", duration, number, stream)
        if "Pageable" in route:
            call = self.events[-2]
            self.now = max(self.now, end)
            call["dur"] = START_US + self.now - call["ts"]

    def blocking_copy(self, duration: float, *, route: str = "HtoD (Pinned -> Device)") -> None:
        """Copy memory in an operator that waits for it, as without `non_blocking`, and returns a
        microsecond after the copy is done."""
        start = self.now
        self.copy(duration, route=route)
        self.wait()
        self.now += 1
        self.events[-1]["dur"] += 1
        self._host("cpu_op", "aten::copy_", start, self.now - start)

    def item(self, duration: float = 3) -> None:
        """Read a value from a tensor, which waits for everything launched before."""
        start = self.now
        self.copy(1, route="DtoH (Device -> Pageable)")
        self.wait()
        self.now += duration
        self._host("cpu_op", "aten::item", start, self.now - start)

    def wait(self, name: str = "cudaStreamSynchronize") -> None:
        """Wait until the streams are empty."""
        start = self.now
        self.now = max([self.now + 1, *self.free.values()])
        self._host("cuda_runtime", name, start, self.now - start)

    def allocate(self, duration: float, name: str = "cudaMalloc") -> None:
        """Allocate or release device memory, which waits for the device."""
        start = self.now
        self.now = max([self.now, *self.free.values()]) + duration
        self._host("cuda_runtime", name, start, self.now - start)

    def compile(self, duration: float) -> None:
        """Compile, as torch.compile does."""
        with self.range("_compile.compile_inner (dynamo_timed)"):
            self.now += duration

    def encode(self) -> bytes:
        """Encode the trace as the profiler's JSON."""
        content: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [DEVICE] if self._launches else [],
            "traceEvents": self.events,
        }
        if self.rank is not None:
            content["distributedInfo"] = {
                "backend": "nccl" if self._launches else "gloo",
                "rank": self.rank,
                "world_size": self.world_size,
            }
        return msgspec.json.encode(content)

    def _call(self, name: str, duration: float) -> int:
        self._launches += 1
        self._host("cuda_runtime", name, self.now, duration, correlation=self._launches)
        self.now += duration
        return self._launches

    def _device(
        self, category: str, name: str, duration: float, number: int, stream: int, **arguments: Any
    ) -> float:
        start = max(self.now, self.free.get(stream, 0.0))
        self.free[stream] = start + duration
        arguments |= {"device": 0, "stream": stream, "correlation": number}
        position = {"pid": 0, "tid": stream, "ts": START_US + start, "dur": duration}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, **position, "args": arguments}
        )
        return start + duration

    def _host(
        self, category: str, name: str, start: float, duration: float, **arguments: Any
    ) -> None:
        position = {"pid": HOST, "tid": HOST, "ts": START_US + start, "dur": duration}
        self.events.append(
            {"ph": "X", "cat": category, "name": name, **position, "args": arguments}
        )
