"""Drawn runs for rules: one on which each rule fires, and one on which none does.

A new rule that can fire gets a function here and an entry in `FAULTY`. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from stepscope.store import RunReader, RunWriter, open_run
from stepscope.testing import RunBuilder
from stepscope.testing.drawing import MS, DrawnEvent

GPU_BYTES = 80 << 30
STEP = "wait 50 | forward 300 | backward 450 | optimizer 200"
CODE = {
    "compile": "main > train > compile@torch/_dynamo/convert_frame.py",
    "log": "main > train # print(step)",
}
Draw = Callable[[RunBuilder], None]


def open_drawn(path: Path, draw: Draw) -> RunReader:
    """Write the run that a function draws, with GPUs of known memory size."""
    run = RunBuilder(path, code=CODE, sampling_ms=100)
    draw(run)
    run.write()
    reader = open_run(path)
    for name, node in reader.nodes().items():
        gpus = [{"index": n, "memory_bytes": GPU_BYTES} for n in range(3)]
        with RunWriter(path, name) as writer:
            writer.put_node(msgspec.structs.replace(node, gpus=gpus))
    return open_run(path)


def gpus(run: RunBuilder, busy: float = 0.95, memory: float = 0.8, node: str = "n0") -> None:
    """Add two equal GPUs."""
    for device in ("0", "1"):
        run.metric("gpu_busy_ratio", busy, device=device, node=node)
        run.metric("gpu_memory_used_bytes", memory * GPU_BYTES, device=device, node=node)
        run.metric("gpu_throttle_reasons", 4, device=device, node=node)


def cpu(run: RunBuilder, busy: float = 0.5, iowait: float = 0.01, node: str = "n0") -> None:
    """Add a node with two equal cores."""
    for use, share in (("busy", busy), ("iowait", iowait)):
        for core in ("0", "1"):
            run.metric(f"core_{use}_ratio", share, device=core, node=node)
        run.metric(f"cpu_{use}_ratio", share, node=node)
        run.metric(f"cpu_{use}_max_ratio", share, node=node)
    run.metric("memory_used_bytes", 16 << 30, node=node)
    run.metric("network_received_bytes_per_s", 1e6, device="eth0", node=node)


def steps(text: str = STEP, times: int = 600) -> Draw:
    def draw(run: RunBuilder) -> None:
        run.rank(0).draw(text, times, jitter=0.02)
        gpus(run)
        cpu(run)

    return draw


def healthy(run: RunBuilder) -> None:
    """Draw two ranks on a node; eight workers for eight cores, which hide their work."""
    for number in range(2):
        rank = run.rank(number, workers=4).draw(f"{STEP} | do:log 5", 600, jitter=0.02, seed=number)
        rank.ddp(exchange_ms=100, hidden_ms=95, compute_ms=400)
        rank.fact("nan_search", first_step=0, step_count=600, loss_step=None, loss=None)
        for worker in rank.workers:
            worker.draw("fetch 900 | do 100", 600)
    window(run, "kernel:gemm 90 | memcpy:MemcpyHtoD 1 | kernel:nccl_all 1")
    run.metric("job_memory_bytes", 2 << 30)
    gpus(run)
    cpu(run)


def window(run: RunBuilder, events: str) -> None:
    """Add a window of the first rank's profiler at its end."""
    run.processes[0].draw(f"window ( {events} )")


def underused(run: RunBuilder) -> None:
    run.rank(0).draw(STEP, 600)
    gpus(run, busy=0.3, memory=0.2)
    cpu(run, busy=0.3)


def starving(*, busy: float, iowait: float) -> Draw:
    def draw(run: RunBuilder) -> None:
        run.rank(0).draw(STEP, 600)
        gpus(run, busy=0.05)
        cpu(run, busy=busy, iowait=iowait)

    return draw


def growing(share: Callable[[float], float], seconds: int) -> Draw:
    def draw(run: RunBuilder) -> None:
        run.rank(0).draw("forward 5000 | backward 4000 | optimizer 1000", seconds // 10)
        gpus(run)
        run.metric("gpu_memory_used_bytes", lambda s: share(s) * GPU_BYTES, device="2")

    return draw


def unbalanced(run: RunBuilder) -> None:
    run.rank(0).draw(STEP, 600)
    run.metric("gpu_busy_ratio", 0.9, device="0").metric("gpu_busy_ratio", 0.4, device="1")


def late(run: RunBuilder) -> None:
    run.rank(0).pause(25 * 60_000).draw(STEP, 60)
    cpu(run)


def few_loaders(run: RunBuilder) -> None:
    rank = run.rank(0, workers=2).draw(STEP, 60)
    for worker in rank.workers:
        worker.draw("fetch 900 | do 100", 60)
    cpu(run)


def outliers(run: RunBuilder) -> None:
    rank = run.rank(0)
    for _ in range(12):
        rank.draw(STEP, 40, jitter=0.02).draw("wait 5000 | forward 300 | optimizer 200")


def straggling(run: RunBuilder) -> None:
    for number in range(4):
        slow = 500 if number == 2 else 200
        run.rank(number).draw(f"forward {slow} | backward {800 - slow} | optimizer 100", 120)


def slower(run: RunBuilder) -> None:
    fast, slow = "forward 300 | optimizer 50", "forward 450 | optimizer 50"
    run.rank(0).draw(fast, 200, jitter=0.02).draw(slow, 100, jitter=0.02)


def exposed(run: RunBuilder) -> None:
    for number in range(2):
        run.rank(number).ddp(exchange_ms=400, hidden_ms=50, compute_ms=100).draw(STEP, 120)


def pageable(run: RunBuilder) -> None:
    rank = run.rank(0).draw(STEP, 30).draw("window ( kernel:gemm 90 )")
    start = rank.now
    rank.events.append(
        DrawnEvent("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", start, start + 9 * MS)
    )


def hot(run: RunBuilder) -> None:
    run.rank(0).draw(STEP, 200)
    run.metric("gpu_throttle_reasons", 0x20, device="0")


def recompiling(run: RunBuilder) -> None:
    rank = run.rank(0).draw(STEP, 60)
    for _ in range(12):
        rank.draw(STEP, 4).draw("forward 2000 ( do:compile 1500 ) | backward 450 | optimizer 200")


def dividing_by_zero(run: RunBuilder) -> None:
    rank = run.rank(0).draw(STEP, 60)
    rank.fact("nan_search", first_step=0, step_count=40, loss_step=None, loss=None)
    rank.fact(
        "nan_origin",
        step=40,
        phase="loss",
        operator="div",
        file="/home/user/train.py",
        line=31,
        result={"shape": [4], "dtype": "float32", "element_count": 4, "nan_count": 1},
        inputs=[{"shape": [4], "zero_count": 1}, {"shape": [4], "zero_count": 2}],
        reached="loss",
        reached_step=40,
    )


def leaking(run: RunBuilder) -> None:
    """Draw a node of 64 GiB and a rank that keeps 1 MiB a second."""
    run.rank(0).draw(STEP, 600)
    run.metric("job_memory_bytes", lambda s: (2 << 30) + (1 << 20) * s)
    run.metric("process_anonymous_bytes", lambda s: (1 << 30) + (1 << 20) * s, device="1000")
    run.metric("memory_available_bytes", lambda s: (48 << 30) - (1 << 20) * s)


def idling(run: RunBuilder) -> None:
    run.rank(0).draw("window ( kernel:gemm 10 | do:log 40 | kernel:gemm 10 )")


FAULTY: dict[str, Draw] = {
    "CPUBottleneck": starving(busy=0.98, iowait=0),
    "IOBottleneck": starving(busy=0.3, iowait=0.6),
    "LowGPUUtilization": underused,
    "StepOutlier": outliers,
    "GPUMemoryIncrease": growing(lambda s: 0.1 if s < 550 else 0.3, 600),
    "BatchSize": underused,
    "MaxInitializationTime": late,
    "LoadBalancing": unbalanced,
    "Dataloader": few_loaders,
    "DataloaderBottleneck": steps("wait 600 | forward 120 | backward 200 | optimizer 80", 120),
    "GPUMemoryLeak": growing(lambda s: 0.1 + 0.0001 * s, 2400),
    "RankStraggler": straggling,
    "CommunicationBound": exposed,
    "FrameworkOverhead": steps("forward 100 | backward 100 | optimizer 50 | do:log 200", 120),
    "PageableCopies": pageable,
    "ThermalThrottling": hot,
    "CheckpointStall": steps(f"{STEP} | {STEP} | {STEP} | {STEP} | save 1000", 40),
    "StepTimeRegression": slower,
    "RecompileStorm": recompiling,
    "TraceRecommendations": idling,
    "HostMemoryGrowth": leaking,
    "NanOrigin": dividing_by_zero,
}
"""Run on which the rule fires, for every rule that can fire."""
