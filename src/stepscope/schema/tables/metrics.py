"""Table of the monitor's samples, and the metrics in it."""

from __future__ import annotations

import msgspec

from stepscope.schema.labels import Unit
from stepscope.schema.table import PROVENANCE, RECORD_KEY, Table, column

METRICS = Table(
    name="metrics",
    doc="One row per metric, device and sampling time.",
    key=RECORD_KEY,
    cluster_by="metric",
    columns=(
        *PROVENANCE,
        column("t_ns", "BIGINT", "Time of the sample.", "epoch_ns"),
        column("metric", "VARCHAR", "Name of the metric; see `METRIC_TYPES`."),
        column(
            "device",
            "VARCHAR",
            "Core number, GPU number, disk, interface or pid; empty for the whole node.",
        ),
        column("value", "DOUBLE", "Value in the metric's unit."),
    ),
)


class MetricType(msgspec.Struct, frozen=True):
    """Metric: its name, unit and meaning in one sentence."""

    name: str
    unit: Unit
    doc: str


_METRICS = (
    MetricType(
        "cpu_busy_ratio",
        "ratio",
        "Share of time since the last sample in which the cores available to the job were busy, "
        "mean over cores.",
    ),
    MetricType(
        "cpu_iowait_ratio",
        "ratio",
        "Share of time since the last sample in which the cores available to the job were idle "
        "with outstanding disk requests, mean over cores.",
    ),
    MetricType(
        "cpu_busy_max_ratio",
        "ratio",
        "Highest `core_busy_ratio` of the cores available to the job.",
    ),
    MetricType(
        "cpu_iowait_max_ratio",
        "ratio",
        "Highest `core_iowait_ratio` of the cores available to the job.",
    ),
    MetricType(
        "core_busy_ratio", "ratio", "Share of time since the last sample in which a core was busy."
    ),
    MetricType(
        "core_iowait_ratio",
        "ratio",
        "Share of time since the last sample in which a core was idle with outstanding disk "
        "requests.",
    ),
    MetricType("job_cpu_cores", "count", "Mean number of cores used by the job's process tree."),
    MetricType(
        "outside_cpu_cores",
        "count",
        "Mean number of cores used by processes other than the job's and stepscope's, or stolen.",
    ),
    MetricType(
        "stolen_cpu_cores",
        "count",
        "Mean number of cores that the hypervisor gave to other virtual machines while this one "
        "needed them.",
    ),
    MetricType(
        "own_cpu_cores",
        "count",
        "Mean number of cores used by stepscope's processes outside the job.",
    ),
    MetricType("memory_used_bytes", "bytes", "Total minus available memory."),
    MetricType("memory_available_bytes", "bytes", "Available memory."),
    MetricType(
        "memory_used_ratio",
        "ratio",
        "Share of memory in use, in runs imported from tools that do not record the total.",
    ),
    MetricType("swap_used_bytes", "bytes", "Swap in use."),
    MetricType("disk_read_bytes_per_s", "bytes_per_s", "Read rate of a disk."),
    MetricType("disk_write_bytes_per_s", "bytes_per_s", "Write rate of a disk."),
    MetricType("network_received_bytes_per_s", "bytes_per_s", "Receive rate, without loopback."),
    MetricType("network_sent_bytes_per_s", "bytes_per_s", "Send rate, without loopback."),
    MetricType(
        "network_unsent_bytes",
        "bytes",
        "Bytes that the job's TCP connections to other hosts have not sent yet. Where the kernel "
        "refuses netlink, not acknowledged yet, and read less often than other metrics.",
    ),
    MetricType(
        "network_bytes",
        "bytes",
        "Traffic of one sample, in runs imported from SageMaker Debugger (device: Algorithm, "
        "which is training, or Platform, and Debugger's name, joined by a colon).",
    ),
    MetricType(
        "process_cpu_cores", "count", "Mean number of cores used by one process of the job."
    ),
    MetricType("process_memory_bytes", "bytes", "Resident memory of one process of the job."),
    MetricType(
        "process_anonymous_bytes",
        "bytes",
        "Memory of one process of the job that is no part of a file: heap, stacks and other "
        "anonymous memory, swapped pages included. Pages that a fork shares count in each process.",
    ),
    MetricType(
        "process_file_bytes", "bytes", "Resident pages of mapped files of one process of the job."
    ),
    MetricType(
        "process_shared_memory_bytes",
        "bytes",
        "Resident pages of shared memory (/dev/shm, System V) of one process of the job.",
    ),
    MetricType("process_swap_bytes", "bytes", "Swapped memory of one process of the job."),
    MetricType(
        "process_private_bytes",
        "bytes",
        "Memory that only this process of the job has mapped, from /proc/<pid>/smaps_rollup, which "
        "is read less often than other metrics.",
    ),
    MetricType(
        "process_shared_bytes",
        "bytes",
        "Resident memory of one process of the job that other processes have mapped, too; read as "
        "often as `process_private_bytes`.",
    ),
    MetricType(
        "process_major_faults_per_s",
        "per_s",
        "Page faults of one process of the job that had to read a disk.",
    ),
    MetricType(
        "job_memory_bytes",
        "bytes",
        "Memory that the job on this node holds and the kernel cannot drop: anonymous memory of "
        "its processes, shared pages once, swapped pages included, and files in /dev/shm.",
    ),
    MetricType("job_process_count", "count", "Number of processes of the job."),
    MetricType("shared_memory_used_bytes", "bytes", "Files in the job's /dev/shm."),
    MetricType("shared_memory_limit_bytes", "bytes", "Size of the job's /dev/shm."),
    MetricType(
        "cgroup_memory_used_bytes",
        "bytes",
        "Memory of the control group whose memory limit is nearest, without pages of files.",
    ),
    MetricType("cgroup_memory_limit_bytes", "bytes", "Memory limit of that control group."),
    MetricType(
        "cgroup_oom_kills",
        "count",
        "Processes that the kernel has ended in the job's control group because memory was full.",
    ),
    MetricType(
        "memory_stalled_ratio",
        "ratio",
        "Share of time since the last sample in which some task of the job's control group, or of "
        "the node, waited for memory.",
    ),
    MetricType(
        "address_space_free_bytes",
        "bytes",
        "Address space that is left to the process of the job with least of it, where it is "
        "limited (ulimit -v).",
    ),
    MetricType("address_space_limit_bytes", "bytes", "Limit of that process's address space."),
    MetricType(
        "process_runqueue_ratio",
        "ratio",
        "Share of time since the last sample in which the main thread of one process of the job "
        "was ready to run but waited for a core.",
    ),
    MetricType(
        "process_waiting_threads",
        "count",
        "Mean number of threads of one process of the job, without its main thread, that were "
        "ready to run but waited for a core. Threads that ran for less than a tenth of the time of "
        "the busiest one do not count.",
    ),
    MetricType(
        "process_cycles_per_s",
        "per_s",
        "Clock cycles of the cores in user space for one process of the job, all threads together.",
    ),
    MetricType(
        "process_instructions_per_s",
        "per_s",
        "Instructions that one process of the job completed in user space.",
    ),
    MetricType(
        "process_cache_misses_per_s",
        "per_s",
        "Accesses of one process of the job that missed the last level of cache, in user space.",
    ),
    MetricType(
        "process_itlb_misses_per_s",
        "per_s",
        "Instruction fetches of one process of the job that missed the instruction TLB, in user "
        "space.",
    ),
    MetricType(
        "process_instructions_per_cycle",
        "count",
        "Instructions per clock cycle of one process of the job since the last sample.",
    ),
    MetricType(
        "process_cache_misses_per_1000_instructions",
        "count",
        "Cache misses per 1,000 instructions of one process of the job since the last sample.",
    ),
    MetricType(
        "process_itlb_misses_per_1000_instructions",
        "count",
        "Misses of the instruction TLB per 1,000 instructions of one process of the job since the "
        "last sample.",
    ),
    MetricType(
        "cgroup_throttled_ratio",
        "ratio",
        "Share of time since the last sample in which the job's cgroup was throttled because its "
        "CPU quota was used up.",
    ),
    MetricType("gpu_busy_ratio", "ratio", "Share of time in which a kernel was running."),
    MetricType(
        "gpu_memory_busy_ratio", "ratio", "Share of time in which device memory was accessed."
    ),
    MetricType("gpu_memory_used_bytes", "bytes", "Device memory in use."),
    MetricType(
        "gpu_memory_used_ratio",
        "ratio",
        "Share of device memory in use, in runs imported from tools that do not record the total.",
    ),
    MetricType("gpu_power_watt", "watt", "Board power."),
    MetricType("gpu_sm_clock_megahertz", "megahertz", "Clock of the multiprocessors."),
    MetricType("gpu_memory_clock_megahertz", "megahertz", "Clock of the memory."),
    MetricType("gpu_temperature_celsius", "celsius", "Core temperature."),
    MetricType(
        "gpu_throttle_reasons",
        "bitmask",
        "Reasons for reduced clocks, as NVML's bit mask; 0 for none.",
    ),
    MetricType("gpu_pcie_received_bytes_per_s", "bytes_per_s", "PCIe rate from host to device."),
    MetricType("gpu_pcie_sent_bytes_per_s", "bytes_per_s", "PCIe rate from device to host."),
    MetricType(
        "missed_samples", "count", "Sampling ticks without a sample immediately before this one."
    ),
)

METRIC_TYPES: dict[str, MetricType] = {metric.name: metric for metric in _METRICS}
"""Metrics by name."""
