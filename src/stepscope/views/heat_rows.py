"""Names of the rows of heat maps."""

from __future__ import annotations

from stepscope.analysis import HeatmapRow

MAX_CORES = 32
"""Cores that a heat map shows unless the node is selected by name."""
_NAMES = {
    "gpu_busy_ratio": "GPU {} utilisation",
    "gpu_memory_used_ratio": "GPU {} memory",
    "gpu_memory_used_bytes": "GPU {} memory",
    "cpu_busy_ratio": "CPU",
    "core_busy_ratio": "core {}",
    "memory_used_ratio": "memory",
    "memory_used_bytes": "memory",
    "cpu_iowait_ratio": "I/O wait",
    "network_received_bytes_per_s": "received {}",
    "network_sent_bytes_per_s": "sent {}",
    "network_bytes": "network {}",
}


def name_row(row: HeatmapRow) -> str:
    """Name a row of a heat map."""
    return _NAMES[row.metric].format(row.device).strip()
