"""CPU, GPU and GPU memory all have room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable, require_more
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import (
    NO_GPU,
    gpu_busy,
    gpu_memory,
    node_samples,
    scan_ends,
    scans_of,
)
from stepscope.rules.parameters import Count, Percentage
from stepscope.rules.signals import Device, Series, Signals
from stepscope.rules.tally import Tally, box
from stepscope.rules.trailing import Floats, Tail, quantiles_at_scans
from stepscope.schema import Finding

_K = TypeVar("_K", str, Device)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeParameters:
    """When a node has room for larger batches."""

    cpu_threshold_p95: Percentage = 70.0
    """The 95th percentile of the node's CPU utilisation (%) is below this …"""
    gpu_threshold_p95: Percentage = 70.0
    """… and that of a GPU's utilisation below this …"""
    gpu_memory_threshold_p95: Percentage = 70.0
    """… and that of the same GPU's memory in use below this."""
    patience: Count = 1000
    """No decision until a node has more CPU samples than this."""
    window: Count = 500
    """Samples that the percentiles are of: the latest ones."""


@dataclass(slots=True)
class _Usage:
    """One series: its latest samples and all of them."""

    tail: Tail
    all: Tally = field(default_factory=Tally)

    def p95(self, signals: Signals, series: Series, patience: int) -> tuple[Int, Floats]:
        """Scans with more samples than that, and p95 at the end of each."""
        self.all.add(series.value)
        scans, found = quantiles_at_scans(
            self.tail, series.value, scans_of(signals, series), (0.95,), patience=patience
        )
        return scans, found[:, 0]


@dataclass(slots=True)
class _State:
    cpu: dict[str, _Usage] = field(default_factory=dict)
    gpu: dict[Device, _Usage] = field(default_factory=dict)
    memory: dict[Device, _Usage] = field(default_factory=dict)
    cases: dict[Device, int] = field(default_factory=dict)
    firing: Firing = field(default_factory=Firing)


class BatchSize(IncrementalRule[BatchSizeParameters, _State]):
    """Checks whether CPU, GPU and GPU memory all have room.

    ## What it checks
    At the end of each scan, over the last `window` samples of a node: p95 of its CPU utilisation
    (mean of the cores), and of each GPU p95 of utilisation and of memory in use. All three below
    their thresholds is a violation: one GPU in one scan. Datapoints are the CPU samples of the
    node that has most.

    ## Why it matters
    A job that fills neither processors nor memory pays for a machine that it does not need, or
    computes with less parallelism than it could.

    ## What to do
    Make the batch larger, or run on a smaller machine. Frameworks that take all GPU memory for
    themselves at the start never fire this rule: their memory says nothing.

    ## Where the numbers differ from SageMaker Debugger's
    The whiskers of GPU memory are computed from its own quartiles; Debugger takes the lower one of
    GPU utilisation. Memory is the share of the GPU's memory in use. RuleTriggered counts scans;
    Debugger's counts scans times GPUs.
    """

    parameters_type = BatchSizeParameters
    recommendation = "Increase the batch size, or run on a smaller machine."
    evidence = ("system",)
    plots = ("gpu_busy_ratio", "cpu_busy_ratio", "gpu_memory_used_bytes", "gpu_memory_used_ratio")

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        p = self.parameters
        enough = max(p.window, p.patience)
        cpu = self._low(
            state.cpu, node_samples(signals, "cpu_busy_ratio"), signals, enough, p.cpu_threshold_p95
        )
        gpu = self._low(state.gpu, gpu_busy(signals), signals, p.window, p.gpu_threshold_p95)
        memory = self._low(
            state.memory, gpu_memory(signals), signals, p.window, p.gpu_memory_threshold_p95
        )
        for device in gpu.keys() & memory.keys():
            low = np.intersect1d(gpu[device], memory[device])
            low = np.intersect1d(low, cpu.get(device.node, np.empty(0, dtype=np.int64)))
            state.cases[device] = state.cases.get(device, 0) + len(low)
            state.firing.add(scan_ends(signals, low))
        return state

    def _low(
        self,
        usages: dict[_K, _Usage],
        series: Mapping[_K, Series],
        signals: Signals,
        patience: int,
        threshold: float,
    ) -> dict[_K, Int]:
        """Scans in which p95 of each series was below a threshold in per cent."""
        low = {}
        for key, each in series.items():
            usage = usages.setdefault(key, _Usage(Tail(self.parameters.window)))
            scans, p95 = usage.p95(signals, each, patience)
            low[key] = scans[p95 < threshold / 100]
        return low

    def decide(self, state: _State) -> Finding | None:
        seen = max((usage.tail.seen for usage in state.cpu.values()), default=0)
        if not state.gpu:
            raise NotApplicable(NO_GPU, seen)
        if not state.cpu:
            raise NotApplicable("the CPU was not sampled")
        if not state.memory:
            raise NotApplicable("it is not known how much memory the GPUs have or use", seen)
        p = self.parameters
        require_more(seen, max(p.patience, p.window), "samples of a node's CPU")
        wrong = [device for device, count in state.cases.items() if count]
        return self.finding(
            triggered=state.firing,
            violations=sum(state.cases.values()),
            datapoints=seen,
            details={
                "cpu_percent": {node: box(each.all, 100) for node, each in state.cpu.items()},
                "gpu_busy_percent": {str(d): box(each.all, 100) for d, each in state.gpu.items()},
                "gpu_memory_percent": {
                    str(d): box(each.all, 100) for d, each in state.memory.items()
                },
            },
            sentences=[
                f"Over {p.window} samples, p95 was below {p.cpu_threshold_p95:g} % for the CPU, "
                f"{p.gpu_threshold_p95:g} % for the GPU and {p.gpu_memory_threshold_p95:g} % for "
                f"its memory in {sum(state.cases.values())} cases; a case is one GPU in one scan.",
                "Memory says nothing where the framework takes all of it at the start.",
            ],
            devices=wrong,
        )
