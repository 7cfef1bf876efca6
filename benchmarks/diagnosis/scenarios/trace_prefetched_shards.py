# /// scenario
# healthy = true
# severities = [1.0, 1.2, 1.4]
# drawn = "traces"
# held_out = true
# ///
"""The traces of two ranks with sharded parameters, whose collectives and copies are hidden.

Parameters are gathered while the layer before computes, gradients are reduced while the next layer
does, and activations go to the host and back at the same time. The first step allocates memory.
"""

# Arithmetic: a step computes 24 * 1.0 + 24 * 2.0 + 1.5 = 73.5 ms. At severity 1 a layer gathers for
# 0.55 ms beside 1.0 ms of computation, and gathers and reduces for 1.1 ms beside 2.0 ms backwards;
# at 1.4 for 0.77 and 1.54 ms. Not hidden are the first gather and the last reduction, 1.1 to 1.54
# ms, the start of a step, 0.5 ms, and 40 * 0.15 = 6 ms of allocations in one of six steps, 1 ms a
# step: 2.6 to 3.1 of 77 ms = 4%. Ranks differ by 2% from layer to layer, which adds about 1 ms. All
# together less than 6%.

import random
import subprocess
import sys
import tempfile
from pathlib import Path

from drawn import drawn_arguments
from traced import MULTI_TENSOR, STEPS, TENSOR_CORES

from stepscope.testing.traces import (
    COMMUNICATION_STREAM,
    COMPUTE_STREAM,
    COPY_STREAM,
    LAUNCH_US,
    TraceJob,
)

LAYERS = 24
GATHER = ("_all_gather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
REDUCE = (
    "_reduce_scatter_base",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)


def draw_step(jobs, severity, times, *, first):
    """Draw a step of all ranks."""
    starts = [job.now for job in jobs]
    length = 550 * severity
    for job in jobs:
        job.fetch(vary(times, 150, 300), workers=True)
        job.copy(2_000 * severity, stream=COPY_STREAM)
        for _ in range(40 if first else 0):
            job.allocate(150)
    gathered = collect(jobs, GATHER, length)
    for layer in range(LAYERS):
        ready = gathered
        if layer < LAYERS - 1:
            gathered = collect(jobs, GATHER, length)
        for job in jobs:
            wait_on_device(job, ready)
            for _ in range(4):
                kernel = (TENSOR_CORES, vary(times, 245, 255))
                job.operator("aten::addmm", vary(times, 16, 24), kernel=kernel)
            if layer % 2 == 0:
                job.follow(COPY_STREAM)
                job.copy(1_000 * severity, route="DtoH (Device -> Pinned)", stream=COPY_STREAM)
    for layer in range(LAYERS):
        ready = gathered
        if layer < LAYERS - 1:
            gathered = collect(jobs, GATHER, length)
        for job in jobs:
            wait_on_device(job, ready)
            for _ in range(8):
                kernel = (TENSOR_CORES, vary(times, 245, 255))
                job.operator("aten::mm", vary(times, 16, 24), kernel=kernel)
            if layer % 2 == 0:
                job.copy(1_000 * severity, stream=COPY_STREAM)
        collect(jobs, REDUCE, length, after_computation=True)
    for job, start in zip(jobs, starts, strict=True):
        job.join()
        with job.optimizer("AdamW"):
            job.operator("aten::_fused_adamw_", 60, kernel=(MULTI_TENSOR, 1_500))
        job.item()
        job._host("user_annotation", f"ProfilerStep#{job._step}", start, job.now - start)
        job._step += 1


def collect(jobs, names, duration, *, after_computation=False):
    """Draw a collective, which ends at the same time in all ranks, and return its end."""
    starts = []
    for job in jobs:
        if after_computation:
            job.follow(COMMUNICATION_STREAM)
        starts.append(max(job.now + LAUNCH_US, job.free.get(COMMUNICATION_STREAM, 0.0)))
    end = max(starts) + duration
    for job, start in zip(jobs, starts, strict=True):
        with job.range(f"nccl:{names[0]}"):
            job.launch(names[1], end - start, stream=COMMUNICATION_STREAM, grid=[16, 1, 1])
    return end


def wait_on_device(job, moment):
    """Let the computation wait for a collective."""
    job._host("cuda_runtime", "cudaStreamWaitEvent", job.now, 2)
    job.now += 2
    job.free[COMPUTE_STREAM] = max(job.free.get(COMPUTE_STREAM, 0.0), moment)


def vary(times, low, high):
    """Draw a duration, in quarters of a microsecond."""
    return round(times.uniform(low, high) * 4) / 4


def main():
    """Write the traces of the ranks and import them into the run."""
    args = drawn_arguments(__doc__)
    times = random.Random(args.seed)
    jobs = [TraceJob(rank=rank, world_size=2) for rank in range(2)]
    for number in range(STEPS):
        draw_step(jobs, 0.2 if args.fixed else args.severity, times, first=number == 0)
    with tempfile.TemporaryDirectory() as directory:
        files = []
        for job in jobs:
            job.wait("cudaDeviceSynchronize")
            files.append(Path(directory, f"rank{job.rank}.json"))
            files[-1].write_bytes(job.encode())
        command = [sys.executable, "-m", "stepscope", "import", *files, "-o", args.run]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(f"{STEPS} steps of 64 samples: {jobs[0].now / 1e3 / STEPS:.4f} ms a step")


if __name__ == "__main__":
    main()
