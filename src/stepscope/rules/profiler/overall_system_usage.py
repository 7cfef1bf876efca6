"""Statistics of what nodes used; never fires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.firing import Firing
from stepscope.rules.inputs import (
    gpu_busy,
    gpu_memory,
    node_samples,
    ordered,
    sampling_times,
)
from stepscope.rules.parameters import NoParameters
from stepscope.rules.signals import Device, Series, Signals
from stepscope.rules.tally import SHARES, Linear, Tally
from stepscope.schema import Finding

FIGURES = {"max": 1.0, "p99": 0.99, "p95": 0.95, "p50": 0.5, "min": 0.0}
PER_CENT = {"cpu": "CPU", "memory": "memory", "io_wait": "I/O wait", "gpu": "GPU"}
PER_CENT["gpu_memory"] = "GPU memory"
NETWORK = ("network_received_bytes_per_s", "network_sent_bytes_per_s")
TRAINING_TRAFFIC = "Algorithm"
"""What begins the names of training's own traffic in runs imported from Debugger."""
BYTES = Linear(1.0)
BYTE_ROWS = ("network_bytes_per_s", "network_bytes")


@dataclass(slots=True)
class _State:
    nodes: dict[str, dict[str, Tally]] = field(default_factory=dict)
    """By node and row."""


class OverallSystemUsage(IncrementalRule[NoParameters, _State]):
    """Sums up what every node used; never fires.

    ## What it checks
    Of each node, at each sampling time: CPU and I/O wait as the mean of its cores, memory in use
    as a share of what there is, GPUs and their memory as the mean of those that were read, network
    as received plus sent bytes per second over all interfaces. Of these the maximum, p99, p95, p50
    and minimum. Datapoints are the CPU samples of the first node by name.

    ## Why it matters
    The table at the top of a report: which resource is used up, and which is paid for and idle.

    ## What to do
    Where p95 of CPU and GPU are both low, a smaller machine would do. Where one is near its limit,
    see the rule for that resource.

    ## Where the numbers differ from SageMaker Debugger's
    A GPU that was not read at some time is left out of the mean; Debugger counts it as zero.
    Quantiles of shares are exact to 0.01 %.
    """

    evidence = ("system",)

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for row, series in _rows(signals).items():
            grid = BYTES if row in BYTE_ROWS else SHARES
            for node, each in series.items():
                rows = state.nodes.setdefault(node, {})
                rows.setdefault(row, Tally(grid)).add(each.value)
        return state

    def decide(self, state: _State) -> Finding | None:
        if not state.nodes:
            raise NotApplicable("no node has been monitored")
        first = state.nodes[min(state.nodes)]
        table = {
            node: {_unit(row): _figures(tally, row) for row, tally in rows.items()}
            for node, rows in sorted(state.nodes.items())
        }
        return self.finding(
            triggered=Firing(),
            datapoints=len(first["cpu"]) if "cpu" in first else 0,
            details={"nodes": table},
            sentences=[_sentence(node, rows) for node, rows in table.items()],
        )


def _rows(signals: Signals) -> dict[str, dict[str, Series]]:
    """One series per row and node."""
    memory = node_samples(signals, "memory_used_ratio")
    for node, series in node_samples(signals, "memory_used_bytes").items():
        info = signals.nodes.get(node)
        if info is not None and info.memory_bytes:
            memory[node] = Series(series.t_ns, series.value / info.memory_bytes)
    return {
        "cpu": node_samples(signals, "cpu_busy_ratio"),
        "memory": memory,
        "io_wait": node_samples(signals, "cpu_iowait_ratio"),
        "gpu": _together(signals, gpu_busy(signals), mean=True),
        "gpu_memory": _together(signals, gpu_memory(signals), mean=True),
        "network_bytes_per_s": _network(signals),
        "network_bytes": _imported_network(signals),
    }


def _network(signals: Signals) -> dict[str, Series]:
    every: dict[Device, Series] = {}
    for metric in NETWORK:
        for device, series in signals.series(metric).items():
            every[Device(device.node, f"{metric} {device.number}")] = ordered(series)
    return _together(signals, every, mean=False)


def _imported_network(signals: Signals) -> dict[str, Series]:
    """Bytes of each sample, as Debugger records them."""
    every = {
        device: ordered(series)
        for device, series in signals.series("network_bytes").items()
        if device.number.startswith(TRAINING_TRAFFIC)
    }
    return _together(signals, every, mean=False)


def _together(
    signals: Signals, devices: Mapping[Device, Series], *, mean: bool
) -> dict[str, Series]:
    """Mean or sum over the devices of each node at each sampling time."""
    of_node: dict[str, list[Series]] = {}
    for device, series in devices.items():
        of_node.setdefault(device.node, []).append(series)
    found = {}
    for node, parts in of_node.items():
        times = sampling_times(signals, parts)
        count = len(times.t_ns)
        total, counted = np.zeros(count), np.zeros(count)
        for part, place in zip(parts, times.place, strict=True):
            total += np.bincount(place, weights=part.value, minlength=count)
            counted += np.bincount(place, minlength=count)
        if count:
            found[node] = Series(times.t_ns, total / counted if mean else total)
    return found


def _unit(row: str) -> str:
    return row if row in BYTE_ROWS else f"{row}_percent"


def _figures(tally: Tally, row: str) -> dict[str, float]:
    scale = 1 if row in BYTE_ROWS else 100
    found = tally.quantiles(list(FIGURES.values()))
    named = zip(FIGURES, found, strict=True)
    return {name: round(max(0.0, value * scale), 2) for name, value in named}


def _sentence(node: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    known = [
        f"{label} {rows[f'{row}_percent']['p95']:g} %"
        for row, label in PER_CENT.items()
        if f"{row}_percent" in rows
    ]
    return f"{node}: the 95th percentile of {', '.join(known) or 'nothing'}."
