"""Room for a larger batch on CPU, GPU and in GPU memory."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np

from stepscope import analysis, quantities, schema
from stepscope.quantities import number
from stepscope.rules import samples
from stepscope.rules.base import BoxPlot, IncrementalRule, NotApplicable, Trigger, require_more_than
from stepscope.rules.inputs import RuleInputs
from stepscope.rules.parameters import Count, Percentage

K = TypeVar("K", str, analysis.Device)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeParameters:
    """Thresholds below which a node has room for larger batches."""

    cpu_threshold_p95: Percentage = 70.0
    """The 95th percentile of the node's CPU utilization (%) is below this …"""
    gpu_threshold_p95: Percentage = 70.0
    """… and that of a GPU's utilization is below this …"""
    gpu_memory_threshold_p95: Percentage = 70.0
    """… and that of the same GPU's memory use is below this."""
    patience: Count = 1000
    """No decision until a node has more CPU samples than this."""
    window: Count = 500
    """Latest samples over which the percentiles are computed."""


class BatchSizeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Usage over the whole run."""

    cpu_percent: dict[str, BoxPlot] = {}
    """CPU utilization by node."""
    gpu_busy_percent: dict[str, BoxPlot] = {}
    """GPU utilization by GPU, as `node/number`."""
    gpu_memory_percent: dict[str, BoxPlot] = {}
    """GPU memory use by GPU, as `node/number`."""


class _State(msgspec.Struct):
    cpu: dict[str, samples.UsageSamples] = msgspec.field(default_factory=dict)
    gpu: dict[analysis.Device, samples.UsageSamples] = msgspec.field(default_factory=dict)
    memory: dict[analysis.Device, samples.UsageSamples] = msgspec.field(default_factory=dict)
    case_count: dict[analysis.Device, int] = msgspec.field(default_factory=dict)
    trigger: Trigger = msgspec.field(default_factory=Trigger)


class BatchSize(IncrementalRule[BatchSizeParameters, _State]):
    """Checks whether CPU, GPU and GPU memory all have room for a larger batch.

    ## What it checks
    At the end of each scan, over the last `window` samples of a node: p95 of its CPU utilization
    (mean of the cores), and for each GPU p95 of utilization and of memory use. All three below
    their thresholds is a violation: one GPU in one scan. Datapoints are the CPU samples of the
    node that has most.

    ## Why it matters
    A job that uses neither its processors nor its memory fully pays for a machine that it does not
    need, or computes with less parallelism than it could.

    ## What to do
    Increase the batch size, or run on a smaller machine. The rule never fires for frameworks that
    allocate all GPU memory at startup: their memory use carries no information.

    ## Where the numbers differ from SageMaker Debugger's
    The whiskers of GPU memory are computed from its own quartiles; Debugger uses the lower whisker
    of GPU utilization. Memory is the used share of the GPU's memory. RuleTriggered counts scans;
    Debugger's counts scans times GPUs.
    """

    topic = "GPU utilization"
    parameters_type = BatchSizeParameters
    recommendation = "Increase the batch size, or run on a smaller machine."
    metrics = ("cpu_busy_ratio", "gpu_busy_ratio", "gpu_memory_used_bytes", "gpu_memory_used_ratio")
    evidence = ("system",)
    plots = ("gpu_busy_ratio", "cpu_busy_ratio", "gpu_memory_used_bytes", "gpu_memory_used_ratio")
    missing_in_traces = samples.NO_SAMPLES_IN_TRACES
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        p = self.parameters
        cpu = self._low_scans(
            state.cpu,
            samples.node_series(inputs, "cpu_busy_ratio"),
            inputs,
            max(p.window, p.patience),
            p.cpu_threshold_p95,
        )
        gpu = self._low_scans(
            state.gpu, samples.gpu_utilization(inputs), inputs, p.window, p.gpu_threshold_p95
        )
        memory = self._low_scans(
            state.memory,
            samples.gpu_memory_ratio(inputs),
            inputs,
            p.window,
            p.gpu_memory_threshold_p95,
        )
        for device in gpu.keys() & memory.keys():
            state.case_count.setdefault(device, 0)
            if device.node not in cpu:
                continue
            all_windows = (gpu[device], memory[device], cpu[device.node])
            low = functools.reduce(np.intersect1d, (windows.scan for windows in all_windows))
            state.case_count[device] += len(low)
            state.trigger.add_scans(inputs, low)
            for windows in all_windows:
                covered = windows.where(np.isin(windows.scan, low))
                state.trigger.cover(covered.start_ns, covered.end_ns)
        return state

    def _low_scans(
        self,
        usages: dict[K, samples.UsageSamples],
        by_key: Mapping[K, analysis.Series],
        inputs: RuleInputs,
        patience: int,
        threshold: float,
    ) -> dict[K, samples.WindowQuantiles]:
        """Return the windows of each series whose p95 was below a threshold in percent."""
        low = {}
        for key, series in by_key.items():
            usage = usages.setdefault(key, samples.UsageSamples.of_window(self.parameters.window))
            windows = usage.add(inputs, series, (0.95,), patience=patience)
            low[key] = windows.where(windows.quantiles[:, 0] < threshold / 100)
        return low

    def decide(self, state: _State) -> schema.Finding | None:
        sample_count = max((usage.count for usage in state.cpu.values()), default=0)
        if not state.gpu:
            raise NotApplicable(samples.NO_GPU, sample_count, advice=samples.GPU_ADVICE)
        if not state.cpu:
            raise NotApplicable("no CPU samples")
        if not state.memory:
            raise NotApplicable("no GPU memory samples, or unknown memory size", sample_count)
        p = self.parameters
        require_more_than(max(p.patience, p.window), sample_count, "CPU samples per node")
        case_count = sum(state.case_count.values())
        return self.finding(
            triggered=state.trigger,
            violations=case_count,
            datapoints=sample_count,
            details=BatchSizeDetails(
                cpu_percent=_box_plots(state.cpu),
                gpu_busy_percent=_box_plots(state.gpu),
                gpu_memory_percent=_box_plots(state.memory),
            ),
            sentences=[
                f"{quantities.count_of(case_count, 'case')} with p95 over {p.window} samples below "
                f"{number(p.cpu_threshold_p95)}% for the CPU, {number(p.gpu_threshold_p95)}% for "
                f"the GPU and {number(p.gpu_memory_threshold_p95)}% for GPU memory. A case is one "
                "GPU in one scan.",
                "Memory use carries no information if the framework allocates all memory at "
                "startup.",
            ],
            devices=[device for device, cases in state.case_count.items() if cases],
        )


def _box_plots(usages: Mapping[K, samples.UsageSamples]) -> dict[str, BoxPlot]:
    return {str(key): usage.sketch.box_plot(100) for key, usage in usages.items()}
