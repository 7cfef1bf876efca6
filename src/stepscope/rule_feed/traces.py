"""A trace as rules see it, computed on first use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, rules, run

_REGION = re.compile(r"Torch-Compiled Region: (.+)/(\d+)")
"""Number of the compiled frame and of its variant."""
_AMD = re.compile(r"\bAMD\b")
"""Profilers write the architecture of AMD's devices where others have the compute capability."""


class StoredRuleTrace:
    """Implementation of `stepscope.rules.RuleTrace`."""

    def __init__(self, trace: run.Trace) -> None:
        self._trace = trace
        self.name = trace.name
        self.rank = trace.label
        self.start_ns = trace.start_ns
        self.end_ns = trace.end_ns
        self.is_watched = trace.process is not None
        self.unknown_devices = trace.unknown_devices
        self.recorder = trace.recorder

    @cached_property
    def step_count(self) -> int | None:
        """Count of steps marked by the host; None without any."""
        rows = self._trace.columns("annotations", ("name",), condition="on_device = 0")["name"]
        names = {name for name in rows.values if name is not None and analysis.is_step(name)}
        return len(names) or None

    @cached_property
    def steps(self) -> rules.TracedSteps | None:
        """Steps and their parts; None if the trace has no duration, or devices whose work is not
        known."""
        if self.unknown_devices is not None:
            return None
        divided = self._divided
        extent = divided.steps.extent
        if not divided.steps.wall_ns.sum():
            return None
        return rules.TracedSteps(
            times=rules.StepTimes(
                rank=self.rank,
                node="",
                first=int(divided.steps.names[0]),
                start_ns=extent.start,
                end_ns=extent.end,
                wall_ns=divided.steps.wall_ns,
                phase_ns=divided.part_ns,
                profiled=np.zeros(len(extent.start), dtype=np.bool_),
            ),
            rank_number=self._trace.rank,
            category_ns=divided.category_ns,
            are_marked=divided.marked,
            has_host=divided.has_host,
            on_host=divided.on_host,
        )

    @cached_property
    def batches(self) -> rules.TracedBatches | None:
        """Fetches of batches from a DataLoader; None without any."""
        fetches = run.read_fetches(self._trace)
        if not len(fetches.duration_ns):
            return None
        return rules.TracedBatches(duration_ns=fetches.duration_ns, has_workers=fetches.has_workers)

    @cached_property
    def gpus(self) -> list[rules.TracedGpu]:
        """GPUs that ran kernels; none if there is device work that is not understood."""
        if self.unknown_devices is not None:
            return []
        by_device = analysis.split_by_device(
            self._trace.columns("kernels", analysis.METRIC_KERNEL_COLUMNS), {}
        )
        facts = run.read_devices(self._trace)
        events = self._trace.columns("memory_events", analysis.CURVE_COLUMNS)
        memory = {
            device.device: device
            for device in analysis.split_memory_by_device(events)
            if device.device_type != 0 and device.absolute
        }
        return [
            self._describe_gpu(
                device, kernels, facts.get(device, run.DeviceFacts()), memory.get(device)
            )
            for device, kernels in by_device.items()
        ]

    def _describe_gpu(
        self,
        device: int,
        kernels: analysis.DeviceKernels,
        facts: run.DeviceFacts,
        memory: analysis.DeviceMemory | None,
    ) -> rules.TracedGpu:
        steps = self._divided.steps
        extent = steps.extent
        metrics = analysis.measure_gpu_metrics(
            kernels, int(extent.start[0]), int(extent.end[-1]), None
        )
        busy_ns = intervals.overlap(
            extent, intervals.union(intervals.Intervals(kernels.start, kernels.end))
        )
        minima, peaks = (
            (None, None) if memory is None else analysis.measure_step_memory(memory, extent)
        )
        return rules.TracedGpu(
            number=device,
            model=facts.name,
            memory_bytes=facts.memory_bytes,
            compute_capability=_read_capability(facts),
            busy_ratio=busy_ns / np.maximum(steps.wall_ns, 1),
            utilization_ratio=metrics.utilization_ratio,
            tensor_core_ratio=metrics.tensor_core_ratio,
            min_bytes=minima,
            peak_bytes=peaks,
        )

    @cached_property
    def range_names(self) -> frozenset[str]:
        """Names of the ranges and operators on the host."""
        tables = (("annotations", "on_device = 0"), ("operators", ""))
        rows = [self._trace.columns(table, ("name",), condition=only) for table, only in tables]
        return frozenset(name for row in rows for name in row["name"].values if name is not None)

    @cached_property
    def eligible_ratio(self) -> float | None:
        """Share of kernel time launched by operators that could use tensor cores, guessed from
        names; None without kernels."""
        return analysis.measure_eligible_ratio(
            self._trace.columns("operators", analysis.TREE_COLUMNS),
            self._trace.columns("kernels", ("operator", "duration_ns")),
        )

    @cached_property
    def gpu_time(self) -> analysis.GpuTime | None:
        """Division of device time; None without devices, or with work that is not understood."""
        if self.unknown_devices is not None:
            return None
        return analysis.measure_gpu_time(self._work)

    @cached_property
    def copies(self) -> list[analysis.CopyKind]:
        """Copies by direction and memories."""
        return analysis.summarize_copies(
            self._trace.columns("copies", analysis.ACTIVITY_COPY_COLUMNS)
        )

    @cached_property
    def activities(self) -> list[analysis.ActivityKind]:
        """Activities by kind."""
        columns = ("name", "duration_ns")
        return analysis.summarize_activities(
            self._trace.columns("kernels", columns),
            self._trace.columns("copies", (*columns, "kind")),
            self._trace.columns("runtime_calls", columns),
            self._trace.collectives.predicate(),
        )

    @cached_property
    def streams(self) -> list[analysis.StreamIdle]:
        """Idle time of streams by reason."""
        return analysis.measure_stream_idle(self._work, run.calls_of(self._trace))

    @cached_property
    def kernel_ns(self) -> intervals.Int:
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
    def _divided(self) -> run.DividedTrace:
        return run.divide_trace(self._trace, run.find_marked_steps(self._trace))

    @cached_property
    def _work(self) -> analysis.DeviceWork:
        return analysis.combine_device_work(
            self._trace.columns("kernels", analysis.KERNEL_COLUMNS),
            self._trace.columns("copies", analysis.COPY_COLUMNS),
        )


def _read_capability(facts: run.DeviceFacts) -> float | None:
    """Return the compute capability of a device as a number, such as 8.6."""
    if facts.compute_major is None or _AMD.search(facts.name or ""):
        return None
    return float(f"{facts.compute_major}.{facts.compute_minor or 0}")


def _summed(names: Any, time_ns: NDArray[np.int64]) -> dict[str, int]:
    is_named = names.codes >= 0
    # Doubles hold sums of nanoseconds exactly up to a hundred days.
    totals = np.bincount(
        names.codes[is_named], weights=time_ns[is_named], minlength=len(names.values)
    ).astype(np.int64)
    return {str(name): int(total) for name, total in zip(names.values, totals, strict=True)}
