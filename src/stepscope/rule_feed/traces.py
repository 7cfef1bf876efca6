"""A trace as rules see it, computed on first use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    ACTIVITY_COPY_COLUMNS,
    COPY_COLUMNS,
    KERNEL_COLUMNS,
    ActivityKind,
    CopyKind,
    DeviceWork,
    GpuTime,
    RuntimeCalls,
    StreamIdle,
    combine_device_work,
    is_step,
    measure_gpu_time,
    measure_stream_idle,
    summarize_activities,
    summarize_copies,
)
from stepscope.intervals import Int
from stepscope.run import Trace

_REGION = re.compile(r"Torch-Compiled Region: (.+)/(\d+)")
"""Number of the compiled frame and of its variant."""


class StoredRuleTrace:
    """Implementation of `stepscope.rules.RuleTrace`."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.name = trace.name
        self.rank = trace.name if trace.rank is None else f"rank {trace.rank}"
        self.end_ns = trace.end_ns

    @cached_property
    def step_count(self) -> int | None:
        """Count of steps marked by the host; None without any."""
        rows = self._trace.columns("annotations", ("name",), condition="on_device = 0")["name"]
        names = {name for name in rows.values if name is not None and is_step(name)}
        return len(names) or None

    @cached_property
    def gpu_time(self) -> GpuTime | None:
        """Division of device time; None without devices."""
        return measure_gpu_time(self._work)

    @cached_property
    def copies(self) -> list[CopyKind]:
        """Copies by direction and memories."""
        return summarize_copies(self._trace.columns("copies", ACTIVITY_COPY_COLUMNS))

    @cached_property
    def activities(self) -> list[ActivityKind]:
        """Activities by kind."""
        columns = ("name", "duration_ns")
        return summarize_activities(
            self._trace.columns("kernels", columns),
            self._trace.columns("copies", (*columns, "kind")),
            self._trace.columns("runtime_calls", columns),
        )

    @cached_property
    def streams(self) -> list[StreamIdle]:
        """Idle time of streams by reason."""
        calls = self._trace.columns("runtime_calls", ("id", "start_ns", "duration_ns"))
        return measure_stream_idle(self._work, RuntimeCalls.from_columns(calls))

    @cached_property
    def kernel_ns(self) -> Int:
        """Durations of computation kernels."""
        return (self._work.end - self._work.start)[self._work.compute]

    @cached_property
    def operator_ns(self) -> Mapping[str, int]:
        """Host self time of operators by name."""
        columns = self._trace.columns("operators", ("name", "host_self_ns"))
        return _summed(columns["name"], columns["host_self_ns"])

    @cached_property
    def device_ns(self) -> Mapping[str, int]:
        """Durations of kernels by name."""
        columns = self._trace.columns("kernels", ("name", "duration_ns"))
        return _summed(columns["name"], columns["duration_ns"])

    @cached_property
    def compiled_variants(self) -> Mapping[str, int]:
        """Count of executed variants by compiled frame."""
        variants: dict[str, set[str]] = {}
        for table in ("operators", "annotations"):
            rows = self._trace.columns(table, ("name",), condition="name LIKE '%Compiled Region%'")
            for name in rows["name"].values:
                region = _REGION.search(name or "")
                if region is not None:
                    variants.setdefault(region[1], set()).add(region[2])
        return {frame: len(numbers) for frame, numbers in variants.items()}

    @cached_property
    def _work(self) -> DeviceWork:
        return combine_device_work(
            self._trace.columns("kernels", KERNEL_COLUMNS),
            self._trace.columns("copies", COPY_COLUMNS),
        )


def _summed(names: Any, time_ns: NDArray[np.int64]) -> dict[str, int]:
    is_named = names.codes >= 0
    # Doubles hold sums of nanoseconds exactly up to a hundred days.
    totals = np.bincount(
        names.codes[is_named], weights=time_ns[is_named], minlength=len(names.values)
    ).astype(np.int64)
    return {str(name): int(total) for name, total in zip(names.values, totals, strict=True)}
