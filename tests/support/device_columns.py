"""Device work and runtime calls as columns, from hand-written events."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stepscope.analysis.devices.device_work import DeviceWork, RuntimeCalls, combine_device_work
from stepscope.store import DictColumn


class Event(NamedTuple):
    """One piece of device work, in time units of the test."""

    kind: str
    """kernel, comm, memcpy or memset."""
    start: int
    end: int
    stream: int = 7
    launch: int = -1
    device: int = 0
    carry_over: int = 0


_NAMES = {"kernel": "gemm", "comm": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}


def _columns(events: list[Event]) -> dict[str, Any]:
    def numbers(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.array([getattr(event, name) for event in events], dtype=np.int64)

    return {
        "track": numbers("stream"),
        "device": numbers("device"),
        "start_ns": numbers("start"),
        "duration_ns": numbers("end") - numbers("start"),
        "launch": numbers("launch"),
        "carry_over": numbers("carry_over"),
        "name": DictColumn.encode(_NAMES.get(event.kind, event.kind) for event in events),
        "kind": DictColumn.encode(event.kind for event in events),
    }


def work_of(*events: Event) -> DeviceWork:
    """Make device work from events."""
    kernels = [event for event in events if event.kind in _NAMES]
    return combine_device_work(_columns(kernels), _columns([e for e in events if e not in kernels]))


def calls_of(*calls: tuple[int, int, int]) -> RuntimeCalls:
    """Make runtime calls from (id, start, end)."""
    rows = np.array(calls, dtype=np.int64).reshape(-1, 3)
    return RuntimeCalls.from_columns(
        {"id": rows[:, 0], "start_ns": rows[:, 1], "duration_ns": rows[:, 2] - rows[:, 1]}
    )
