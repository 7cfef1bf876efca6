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
    """Metric: its name, title, unit and meaning in one sentence."""

    name: str
    title: str
    """Name in words; the device follows it."""
    unit: Unit
    doc: str


_METRICS = (
    MetricType(
        "cpu_busy_ratio",
        "CPU busy",
        "ratio",
        "Share of time since the last sample in which the cores available to the job were busy, "
        "mean over cores.",
    ),
    MetricType(
        "cpu_iowait_ratio",
        "I/O wait",
        "ratio",
        "Share of time since the last sample in which the cores available to the job were idle "
        "with outstanding disk requests, mean over cores.",
    ),
    MetricType(
        "cpu_busy_max_ratio",
        "busiest core",
        "ratio",
        "Highest `core_busy_ratio` of the cores available to the job.",
    ),
    MetricType(
        "cpu_iowait_max_ratio",
        "I/O wait of the core with most",
        "ratio",
        "Highest `core_iowait_ratio` of the cores available to the job.",
    ),
    MetricType(
        "core_busy_ratio",
        "core busy",
        "ratio",
        "Share of time since the last sample in which a core was busy.",
    ),
    MetricType(
        "core_iowait_ratio",
        "I/O wait of core",
        "ratio",
        "Share of time since the last sample in which a core was idle with outstanding disk "
        "requests.",
    ),
    MetricType(
        "job_cpu_cores",
        "cores used by the job",
        "count",
        "Mean number of cores used by the job's process tree.",
    ),
    MetricType(
        "outside_cpu_cores",
        "cores used by other processes",
        "count",
        "Mean number of cores used by processes other than the job's and stepscope's, or stolen.",
    ),
    MetricType(
        "stolen_cpu_cores",
        "cores taken by the hypervisor",
        "count",
        "Mean number of cores that the hypervisor gave to other virtual machines while this one "
        "needed them.",
    ),
    MetricType(
        "own_cpu_cores",
        "cores used by stepscope",
        "count",
        "Mean number of cores used by stepscope's processes outside the job.",
    ),
    MetricType("memory_used_bytes", "memory used", "bytes", "Total minus available memory."),
    MetricType("memory_available_bytes", "memory available", "bytes", "Available memory."),
    MetricType(
        "memory_used_ratio",
        "memory used",
        "ratio",
        "Share of memory in use, in runs imported from tools that do not record the total.",
    ),
    MetricType("swap_used_bytes", "swap used", "bytes", "Swap in use."),
    MetricType("disk_read_bytes_per_s", "disk read", "bytes_per_s", "Read rate of a disk."),
    MetricType("disk_write_bytes_per_s", "disk write", "bytes_per_s", "Write rate of a disk."),
    MetricType(
        "network_received_bytes_per_s",
        "network received",
        "bytes_per_s",
        "Receive rate, without loopback.",
    ),
    MetricType(
        "network_sent_bytes_per_s", "network sent", "bytes_per_s", "Send rate, without loopback."
    ),
    MetricType(
        "network_unsent_bytes",
        "network unsent",
        "bytes",
        "Bytes that the job's TCP connections to other hosts have not sent yet. Where the kernel "
        "refuses netlink, not acknowledged yet, and read less often than other metrics.",
    ),
    MetricType(
        "network_bytes",
        "network traffic",
        "bytes",
        "Traffic of one sample, in runs imported from SageMaker Debugger (device: Algorithm, "
        "which is training, or Platform, and Debugger's name, joined by a colon).",
    ),
    MetricType(
        "process_cpu_cores",
        "cores used by process",
        "count",
        "Mean number of cores used by one process of the job.",
    ),
    MetricType(
        "process_memory_bytes",
        "resident memory of process",
        "bytes",
        "Resident memory of one process of the job.",
    ),
    MetricType(
        "process_anonymous_bytes",
        "anonymous memory of process",
        "bytes",
        "Memory of one process of the job that is no part of a file: heap, stacks and other "
        "anonymous memory, swapped pages included. Pages that a fork shares count in each process.",
    ),
    MetricType(
        "process_file_bytes",
        "mapped files of process",
        "bytes",
        "Resident pages of mapped files of one process of the job.",
    ),
    MetricType(
        "process_shared_memory_bytes",
        "shared memory of process",
        "bytes",
        "Resident pages of shared memory (/dev/shm, System V) of one process of the job.",
    ),
    MetricType(
        "process_swap_bytes",
        "swap of process",
        "bytes",
        "Swapped memory of one process of the job.",
    ),
    MetricType(
        "process_private_bytes",
        "private memory of process",
        "bytes",
        "Memory that only this process of the job has mapped, from /proc/<pid>/smaps_rollup, which "
        "is read less often than other metrics.",
    ),
    MetricType(
        "process_shared_bytes",
        "pages shared with other processes, process",
        "bytes",
        "Resident memory of one process of the job that other processes have mapped, too; read as "
        "often as `process_private_bytes`.",
    ),
    MetricType(
        "process_major_faults_per_s",
        "page faults from disk of process",
        "per_s",
        "Page faults of one process of the job that had to read a disk.",
    ),
    MetricType(
        "job_memory_bytes",
        "memory of the job",
        "bytes",
        "Memory that the job on this node holds and the kernel cannot drop: anonymous memory of "
        "its processes, shared pages once, swapped pages included, and files in /dev/shm.",
    ),
    MetricType(
        "job_process_count", "processes of the job", "count", "Number of processes of the job."
    ),
    MetricType(
        "shared_memory_used_bytes", "shared memory used", "bytes", "Files in the job's /dev/shm."
    ),
    MetricType(
        "shared_memory_limit_bytes", "shared memory size", "bytes", "Size of the job's /dev/shm."
    ),
    MetricType(
        "cgroup_memory_used_bytes",
        "memory of the control group",
        "bytes",
        "Memory of the control group whose memory limit is nearest, without pages of files.",
    ),
    MetricType(
        "cgroup_memory_limit_bytes",
        "memory limit of the control group",
        "bytes",
        "Memory limit of that control group.",
    ),
    MetricType(
        "cgroup_oom_kills",
        "processes killed for memory",
        "count",
        "Processes that the kernel has ended in the job's control group because memory was full.",
    ),
    MetricType(
        "memory_stalled_ratio",
        "time stalled on memory",
        "ratio",
        "Share of time since the last sample in which some task of the job's control group, or of "
        "the node, waited for memory.",
    ),
    MetricType(
        "address_space_free_bytes",
        "address space free",
        "bytes",
        "Address space that is left to the process of the job with least of it, where it is "
        "limited (ulimit -v).",
    ),
    MetricType(
        "address_space_limit_bytes",
        "address space limit",
        "bytes",
        "Limit of that process's address space.",
    ),
    MetricType(
        "process_runqueue_ratio",
        "main thread waiting for a core, process",
        "ratio",
        "Share of time since the last sample in which the main thread of one process of the job "
        "was ready to run but waited for a core.",
    ),
    MetricType(
        "process_waiting_threads",
        "threads waiting for a core, process",
        "count",
        "Mean number of threads of one process of the job, without its main thread, that were "
        "ready to run but waited for a core. Threads that ran for less than a tenth of the time of "
        "the busiest one do not count.",
    ),
    MetricType(
        "process_cycles_per_s",
        "CPU cycles of process",
        "per_s",
        "Clock cycles of the cores in user space for one process of the job, all threads together.",
    ),
    MetricType(
        "process_instructions_per_s",
        "instructions of process",
        "per_s",
        "Instructions that one process of the job completed in user space.",
    ),
    MetricType(
        "process_cache_misses_per_s",
        "cache misses of process",
        "per_s",
        "Accesses of one process of the job that missed the last level of cache, in user space.",
    ),
    MetricType(
        "process_itlb_misses_per_s",
        "iTLB misses of process",
        "per_s",
        "Instruction fetches of one process of the job that missed the instruction TLB, in user "
        "space.",
    ),
    MetricType(
        "process_instructions_per_cycle",
        "instructions per cycle of process",
        "count",
        "Instructions per clock cycle of one process of the job since the last sample.",
    ),
    MetricType(
        "process_cache_misses_per_1000_instructions",
        "cache misses per 1,000 instructions of process",
        "count",
        "Cache misses per 1,000 instructions of one process of the job since the last sample.",
    ),
    MetricType(
        "process_itlb_misses_per_1000_instructions",
        "iTLB misses per 1,000 instructions of process",
        "count",
        "Misses of the instruction TLB per 1,000 instructions of one process of the job since the "
        "last sample.",
    ),
    MetricType(
        "cgroup_throttled_ratio",
        "time throttled by the CPU quota",
        "ratio",
        "Share of time since the last sample in which the job's cgroup was throttled because its "
        "CPU quota was used up.",
    ),
    MetricType(
        "gpu_busy_ratio", "GPU busy", "ratio", "Share of time in which a kernel was running."
    ),
    MetricType(
        "gpu_memory_busy_ratio",
        "GPU memory busy",
        "ratio",
        "Share of time in which device memory was accessed.",
    ),
    MetricType("gpu_memory_used_bytes", "GPU memory used", "bytes", "Device memory in use."),
    MetricType(
        "gpu_memory_used_ratio",
        "GPU memory used",
        "ratio",
        "Share of device memory in use, in runs imported from tools that do not record the total.",
    ),
    MetricType("gpu_power_watt", "GPU power", "watt", "Board power."),
    MetricType(
        "gpu_sm_clock_megahertz", "GPU SM clock", "megahertz", "Clock of the multiprocessors."
    ),
    MetricType(
        "gpu_memory_clock_megahertz", "GPU memory clock", "megahertz", "Clock of the memory."
    ),
    MetricType("gpu_temperature_celsius", "GPU temperature", "celsius", "Core temperature."),
    MetricType(
        "gpu_throttle_reasons",
        "GPU throttle reasons",
        "bitmask",
        "Reasons for reduced clocks, as NVML's bit mask; 0 for none.",
    ),
    MetricType(
        "gpu_pcie_received_bytes_per_s",
        "GPU PCIe received",
        "bytes_per_s",
        "PCIe rate from host to device.",
    ),
    MetricType(
        "gpu_pcie_sent_bytes_per_s",
        "GPU PCIe sent",
        "bytes_per_s",
        "PCIe rate from device to host.",
    ),
    MetricType(
        "missed_samples",
        "missed samples",
        "count",
        "Sampling ticks without a sample immediately before this one.",
    ),
)

METRIC_TYPES: dict[str, MetricType] = {metric.name: metric for metric in _METRICS}
"""Metrics by name."""
