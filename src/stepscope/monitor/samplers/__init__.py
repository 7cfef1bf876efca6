"""Samplers of one node: a sampler reads one source (`/proc/stat`, NVML, cgroups).

base        protocol of a sampler, rates from counters, samplers that fail or hang
machine     cores, disks, memory, network
job_memory  memory of the job and of its processes by kind, its limits
processes   processes and threads of the job
send_queue  bytes that wait to be sent
counters    counters of the processor
cgroup, gpu limits of the job; GPUs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepscope.monitor.samplers import (
    cgroup,
    counters,
    gpu,
    job_memory,
    machine,
    processes,
    send_queue,
)
from stepscope.monitor.samplers.base import (
    Failure,
    GuardedSampler,
    Sample,
    Sampler,
    SamplerError,
    SamplerFailures,
    SamplerThread,
    Unavailable,
    read_bytes,
)
from stepscope.monitor.samplers.cgroup import most_used_memory_limit
from stepscope.monitor.samplers.processes import JobTree

__all__ = [
    "Failure",
    "GuardedSampler",
    "JobTree",
    "Sample",
    "Sampler",
    "SamplerError",
    "SamplerFailures",
    "SamplerThread",
    "Unavailable",
    "build_samplers",
    "most_used_memory_limit",
    "read_bytes",
]


def build_samplers(job: JobTree, *, proc: str = "/proc") -> tuple[list[Sampler], dict[str, str]]:
    """Create the available samplers, and a reason for every unavailable group.

    Never raises: a node without one source is still worth recording.

    Args:
        job: the job.
        proc: mount point of procfs.
    """
    builders: dict[str, Callable[[], Iterable[Sampler]]] = {
        "cpu": lambda: [machine.CpuSampler(job, proc=proc)],
        "memory": lambda: [machine.MemorySampler(proc=proc)],
        "disk": lambda: [machine.DiskSampler(proc=proc)],
        "network": lambda: [
            machine.NetworkSampler(proc=proc),
            send_queue.SendQueueSampler(job, proc=proc),
        ],
        "processes": lambda: [
            processes.ProcessSampler(job),
            processes.ThreadSampler(job, proc=proc),
        ],
        "job_memory": lambda: [job_memory.JobMemorySampler(job, proc=proc)],
        "cpu_counters": lambda: [counters.CounterSampler(job, proc=proc)],
        "cgroup": lambda: [cgroup.ThrottleSampler(job.root_pid)],
        "gpu": gpu.build_gpu_samplers,
    }
    samplers: list[Sampler] = []
    missing: dict[str, str] = {}
    for group, build in builders.items():
        try:
            samplers.extend(build())
        except Unavailable as reason:
            missing[group] = str(reason)
        except Exception as error:  # noqa: BLE001 - such as a driver's library of another version
            missing[group] = f"cannot be read: {error}"
    for sampler in samplers:
        if isinstance(sampler, counters.CounterSampler):
            missing |= sampler.missing
    if job.runqueue_missing is not None:
        missing["process_runqueue"] = job.runqueue_missing
    return samplers, missing
