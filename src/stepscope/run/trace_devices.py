"""Devices of one trace, as its profiler describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepscope.analysis import none_if_negative
from stepscope.run.traces import Trace

_NUMBERS = ("memory_bytes", "compute_major", "compute_minor", "multiprocessor_count")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Facts of one device; None where the profiler recorded none."""

    name: str | None = None
    memory_bytes: int | None = None
    compute_major: int | None = None
    compute_minor: int | None = None
    multiprocessor_count: int | None = None


def read_devices(trace: Trace) -> dict[int, DeviceFacts]:
    """Read the facts of each device in a trace, by its number."""
    columns = trace.columns("devices", ("device", "name", *_NUMBERS))
    names = columns["name"]
    return {
        device: DeviceFacts(
            name=names.values[names.codes[row]] if names.codes[row] >= 0 else None,
            **{name: none_if_negative(columns[name][row]) for name in _NUMBERS},
        )
        for row, device in enumerate(columns["device"].tolist())
    }


def count_multiprocessors(devices: Mapping[int, DeviceFacts]) -> dict[int, int]:
    """Count the multiprocessors of each device, where the profiler recorded the count."""
    counts = {device: facts.multiprocessor_count for device, facts in devices.items()}
    return {device: count for device, count in counts.items() if count}
