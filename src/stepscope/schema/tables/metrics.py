"""What the monitor samples from the node, and what every metric means."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.schema.table import PROVENANCE, Column, Table
from stepscope.schema.units import Unit

METRICS = Table(
    name="metrics",
    doc="One row per metric, device and sampling time.",
    key=("process", "log", "seq"),
    together="metric",
    columns=(
        *PROVENANCE,
        Column(name="t_ns", type="BIGINT", unit="epoch_ns", doc="When it was sampled."),
        Column(name="metric", type="VARCHAR", doc="Which metric; see `METRIC_TYPES`."),
        Column(
            name="device",
            type="VARCHAR",
            doc="What it was sampled of: a core number, GPU number, disk, interface or pid; "
            "empty for the whole node.",
        ),
        Column(name="value", type="DOUBLE", doc="The value, in the metric's unit."),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricType:
    """One metric: its unit and one sentence."""

    name: str
    unit: Unit
    doc: str


_METRICS = (
    MetricType(
        name="cpu_busy_ratio",
        unit="ratio",
        doc="Share of the time since the last sample in which the cores available to the job ran "
        "anything, on average.",
    ),
    MetricType(
        name="cpu_iowait_ratio",
        unit="ratio",
        doc="Share of the time since the last sample in which the cores available to the job were "
        "idle with disk requests outstanding, on average.",
    ),
    MetricType(
        name="cpu_busy_max_ratio",
        unit="ratio",
        doc="`core_busy_ratio` of the busiest of the cores available to the job.",
    ),
    MetricType(
        name="cpu_iowait_max_ratio",
        unit="ratio",
        doc="`core_iowait_ratio` of the core, of those available to the job, that waited longest.",
    ),
    MetricType(
        name="core_busy_ratio",
        unit="ratio",
        doc="Share of the time since the last sample in which a core ran anything.",
    ),
    MetricType(
        name="core_iowait_ratio",
        unit="ratio",
        doc="Share of the time since the last sample in which a core was idle with disk requests "
        "outstanding.",
    ),
    MetricType(
        name="job_cpu_cores",
        unit="count",
        doc="Cores kept busy by the job's process tree since the last sample.",
    ),
    MetricType(
        name="outside_cpu_cores",
        unit="count",
        doc="Cores kept busy by everything but the job's tree and stepscope itself, or stolen.",
    ),
    MetricType(
        name="stolen_cpu_cores",
        unit="count",
        doc="Cores that this virtual machine wanted while the hypervisor had them run others.",
    ),
    MetricType(
        name="own_cpu_cores",
        unit="count",
        doc="Cores kept busy by stepscope's own processes outside the job.",
    ),
    MetricType(name="memory_used_bytes", unit="bytes", doc="Total minus available memory."),
    MetricType(name="memory_available_bytes", unit="bytes", doc="Memory that could be had."),
    MetricType(
        name="memory_used_ratio",
        unit="ratio",
        doc="Share of the memory in use, in runs imported from tools that do not say of how much.",
    ),
    MetricType(name="swap_used_bytes", unit="bytes", doc="Swap in use."),
    MetricType(name="disk_read_bytes_per_s", unit="bytes_per_s", doc="Read from a disk."),
    MetricType(name="disk_write_bytes_per_s", unit="bytes_per_s", doc="Written to a disk."),
    MetricType(
        name="network_received_bytes_per_s", unit="bytes_per_s", doc="Received, no loopback."
    ),
    MetricType(name="network_sent_bytes_per_s", unit="bytes_per_s", doc="Sent, no loopback."),
    MetricType(
        name="network_bytes",
        unit="bytes",
        doc="Traffic of one sample, in runs imported from SageMaker Debugger (device: Algorithm, "
        "which is training, or Platform, and Debugger's name, joined by a colon).",
    ),
    MetricType(
        name="process_cpu_cores",
        unit="count",
        doc="Cores kept busy by one process of the job (device: pid).",
    ),
    MetricType(
        name="process_memory_bytes",
        unit="bytes",
        doc="Resident memory of one process of the job (device: pid).",
    ),
    MetricType(
        name="process_runqueue_ratio",
        unit="ratio",
        doc="Share of the time since the last sample in which the main thread of one process "
        "of the job (device: pid) was ready to run but had no core.",
    ),
    MetricType(
        name="cgroup_throttled_ratio",
        unit="ratio",
        doc="Share of the time since the last sample in which the job's cgroup had used up its "
        "CPU quota and stood still.",
    ),
    MetricType(name="gpu_busy_ratio", unit="ratio", doc="Share of time with a kernel running."),
    MetricType(
        name="gpu_memory_busy_ratio", unit="ratio", doc="Share of time memory was accessed."
    ),
    MetricType(name="gpu_memory_used_bytes", unit="bytes", doc="Device memory in use."),
    MetricType(
        name="gpu_memory_used_ratio",
        unit="ratio",
        doc="Share of device memory in use, in runs imported from tools that do not say of how "
        "much.",
    ),
    MetricType(name="gpu_power_watt", unit="watt", doc="Board power."),
    MetricType(name="gpu_sm_clock_megahertz", unit="megahertz", doc="Clock of the processors."),
    MetricType(name="gpu_memory_clock_megahertz", unit="megahertz", doc="Clock of the memory."),
    MetricType(name="gpu_temperature_celsius", unit="celsius", doc="Core temperature."),
    MetricType(
        name="gpu_throttle_reasons",
        unit="bitmask",
        doc="Why the clocks are held down, as NVML's bit mask; 0 when they are not.",
    ),
    MetricType(
        name="gpu_pcie_received_bytes_per_s", unit="bytes_per_s", doc="PCIe, host to device."
    ),
    MetricType(name="gpu_pcie_sent_bytes_per_s", unit="bytes_per_s", doc="PCIe, device to host."),
    MetricType(
        name="missed_samples",
        unit="count",
        doc="Sampling times that passed without a sample just before this one.",
    ),
)

METRIC_TYPES: dict[str, MetricType] = {metric.name: metric for metric in _METRICS}
"""Every metric by name."""
