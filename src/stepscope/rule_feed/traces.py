"""A recording of the framework's profiler as rules ask about it; computed when asked for."""

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
    Activity,
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
"""Number of the compiled frame, and of the variant of its code."""


class TraceRecording:
    """Implements `stepscope.rules.RuleTrace`."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.name = trace.name
        self.rank = trace.name if trace.rank is None else f"rank {trace.rank}"
        self.end_ns = trace.end_ns

    @cached_property
    def step_count(self) -> int | None:
        """Steps that the host marked; None when it marked none."""
        rows = self._trace.columns("annotations", ("name",), condition="on_device = 0")["name"]
        names = {name for name in rows.values if name is not None and is_step(name)}
        return len(names) or None

    @cached_property
    def gpu_time(self) -> GpuTime | None:
        """How the time of its devices is divided."""
        return measure_gpu_time(self._work)

    @cached_property
    def copies(self) -> list[CopyKind]:
        """Copies by direction and memories."""
        return summarize_copies(self._trace.columns("copies", ACTIVITY_COPY_COLUMNS))

    @cached_property
    def activities(self) -> list[Activity]:
        """Kinds of activity."""
        named = ("name", "duration_ns")
        return summarize_activities(
            self._trace.columns("kernels", named),
            self._trace.columns("copies", (*named, "kind")),
            self._trace.columns("runtime_calls", named),
        )

    @cached_property
    def streams(self) -> list[StreamIdle]:
        """Why its streams were idle."""
        calls = self._trace.columns("runtime_calls", ("id", "start_ns", "duration_ns"))
        return measure_stream_idle(self._work, RuntimeCalls.from_columns(calls))

    @cached_property
    def kernel_ns(self) -> Int:
        """Durations of kernels that do not communicate."""
        return (self._work.end - self._work.start)[self._work.compute]

    @cached_property
    def operator_ns(self) -> Mapping[str, int]:
        """Own time of operators on the host by name."""
        columns = self._trace.columns("operators", ("name", "host_self_ns"))
        return _summed(columns["name"], columns["host_self_ns"])

    @cached_property
    def device_ns(self) -> Mapping[str, int]:
        """Durations of kernels by name."""
        columns = self._trace.columns("kernels", ("name", "duration_ns"))
        return _summed(columns["name"], columns["duration_ns"])

    @cached_property
    def compiled_variants(self) -> Mapping[str, int]:
        """How many variants of each compiled frame ran."""
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
    known = names.codes >= 0
    # Doubles hold sums of nanoseconds exactly up to a hundred days.
    totals = np.bincount(
        names.codes[known], weights=time_ns[known], minlength=len(names.values)
    ).astype(np.int64)
    return {str(name): int(total) for name, total in zip(names.values, totals, strict=True)}
