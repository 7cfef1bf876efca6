"""Too few or too many processes make batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepscope.intervals import Int
from stepscope.rules.base import IncrementalRule, NotApplicable
from stepscope.rules.parameters import Positive
from stepscope.rules.signals import Batches, Signals
from stepscope.rules.tally import DURATIONS, Linear, Tally
from stepscope.schema import Finding

SECOND_NS = 1_000_000_000
FEWEST_SECONDS = 10
"""A node is judged once batches were made in more seconds than this."""
LONGEST_SECONDS = 600
"""A batch counts for as many seconds before its end; none should take longer."""
BINS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DataloaderParameters:
    """How many loader processes are right for a node's cores."""

    min_threshold: Positive = 70.0
    """Fewer loader processes than this per cent of the cores are too few."""
    max_threshold: Positive = 200.0
    """More than this per cent of the cores are too many."""


@dataclass(slots=True)
class _Node:
    cores: float | None
    parallel: Tally = field(default_factory=lambda: Tally(Linear(1.0)))
    """Processes that made batches, by second; seconds that can still change are in `pairs`."""
    pairs: Int = field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    """Second and process."""
    loading: Tally = field(default_factory=lambda: Tally(DURATIONS))

    def all_seconds(self) -> Tally:
        """Processes by second, the open seconds included."""
        every = Tally(self.parallel.grid)
        every.merge(self.parallel)
        every.add(_per_second(self.pairs))
        return every


@dataclass(slots=True)
class _State:
    nodes: dict[str, _Node] = field(default_factory=dict)
    loaders: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each rank said of its DataLoaders."""


class Dataloader(IncrementalRule[DataloaderParameters, _State]):
    """Checks whether the number of processes that make batches suits the cores.

    ## What it checks
    For each node and second, how many processes were making batches: DataLoader workers, or the
    training process where there are none. Of the seconds in which any was, the median against the
    cores that the job may use there: below `min_threshold` per cent of them is too few, above
    `max_threshold` too many. A node is judged after 10 seconds with batches. Datapoints are
    batches, violations the nodes with a wrong number; RuleTriggered is 1 while there is one.

    ## Why it matters
    Too few loaders leave GPUs waiting for data; too many take cores from everything else.

    ## What to do
    Change num_workers. Whether it would help at all says DataloaderBottleneck: as long as no rank
    waits for batches, too few loaders do no harm. With GPUs, pin_memory=True lets copies overlap.

    ## Where the numbers differ from SageMaker Debugger's
    A process counts in every second in which it works on a batch, not only in the one in which it
    began, so that slow batches do not look like few workers. Cores are those that the job may
    use on each node.
    """

    parameters_type = DataloaderParameters
    recommendation = "Change the number of data loader processes."
    evidence = ("input-pipeline", "system")
    plots = ("step", "data_wait", "cpu_busy_ratio")

    def start(self) -> _State:
        return _State()

    def update(self, state: _State, signals: Signals) -> _State:
        for batches in signals.batches:
            info = signals.nodes.get(batches.node)
            node = state.nodes.setdefault(
                batches.node, _Node(cores=info.cores_available if info else None)
            )
            node.loading.add(batches.duration_ns)
            node.pairs = _distinct(np.concatenate([node.pairs, _pairs(batches)]))
        open_from = signals.end_ns // SECOND_NS - LONGEST_SECONDS
        for node in state.nodes.values():
            done = node.pairs[:, 0] < open_from
            node.parallel.add(_per_second(node.pairs[done]))
            node.pairs = node.pairs[~done]
        for steps in signals.steps:
            said = [f for f in steps.process.facts if f.get("fact") == "dataloader"]
            if said:
                state.loaders[steps.rank] = said[-1]
        return state

    def _wrong(self, node: _Node) -> str | None:
        """What is wrong with the number of loaders of a node."""
        seconds = node.all_seconds()
        if node.cores is None or len(seconds) <= FEWEST_SECONDS:
            return None
        count = _median(seconds)
        if count < node.cores * self.parameters.min_threshold / 100:
            return "few"
        return "many" if count > node.cores * self.parameters.max_threshold / 100 else None

    def decide(self, state: _State) -> Finding | None:
        if not state.nodes:
            raise NotApplicable("no batch was seen being made: the job uses no torch DataLoader")
        datapoints = sum(len(node.loading) for node in state.nodes.values())
        wrong = {name: how for name, n in state.nodes.items() if (how := self._wrong(n))}
        return self.finding(
            triggered=1 if wrong else 0,
            violations=len(wrong),
            datapoints=datapoints,
            details={
                "loaders": state.loaders,
                "nodes": {name: _details(node) for name, node in sorted(state.nodes.items())},
            },
            sentences=[*self._sentences(state, wrong), *_pinning(state.loaders)],
            nodes=wrong,
        )

    @staticmethod
    def _sentences(state: _State, wrong: Mapping[str, str]) -> list[str]:
        said = []
        for name, node in sorted(state.nodes.items()):
            low, middle, high = node.loading.quantiles([0.25, 0.5, 0.95])
            count, cores = _median(node.all_seconds()), node.cores or 0
            text = f"{name} has {cores:g} cores for the job and ran {count} loader processes."
            if name in wrong:
                change = "Increase" if wrong[name] == "few" else "Decrease"
                text += f" {change} the number of DataLoader workers."
            said.append(
                f"{text} Making a batch took {middle / 1e9:.6g} s in the median, p25 "
                f"{low / 1e9:.6g} s, p95 {high / 1e9:.6g} s."
            )
        return said


def _pairs(batches: Batches) -> Int:
    """Every second in which each batch was being made, with its process."""
    last = np.maximum(batches.start_ns + batches.duration_ns - 1, batches.start_ns) // SECOND_NS
    first = np.maximum(batches.start_ns // SECOND_NS, last - LONGEST_SECONDS + 1)
    length = last - first + 1
    begins = np.cumsum(length) - length
    second = np.repeat(first - begins, length) + np.arange(int(length.sum()))
    return np.stack([second, np.repeat(batches.process, length)], axis=1)


def _distinct(pairs: Int) -> Int:
    """Each pair once, in order."""
    if not len(pairs):
        return pairs
    second, process = pairs.T
    lowest = process.min()
    width = process.max() - lowest + 1
    keys = np.sort(second * width + process - lowest)
    keys = keys[np.append(True, keys[1:] != keys[:-1])]
    return np.stack([keys // width, keys % width + lowest], axis=1)


def _per_second(pairs: Int) -> Int:
    """Number of processes of each second; pairs are unique."""
    return np.unique(pairs[:, 0], return_counts=True)[1]


def _median(seconds: Tally) -> int:
    return int(seconds.quantiles([0.5])[0])


def _details(node: _Node) -> dict[str, Any]:
    low, middle, high = node.loading.quantiles([0.25, 0.5, 0.95])
    counts, edges = np.histogram(node.loading.values / 1e9, bins=BINS, weights=node.loading.counts)
    return {
        "cores_available": node.cores,
        "loader_process_count": _median(node.all_seconds()),
        "loading_p25_s": low / 1e9,
        "loading_p50_s": middle / 1e9,
        "loading_p95_s": high / 1e9,
        "loading_histogram": {
            "edges_s": edges.tolist(),
            "counts": counts.astype(np.int64).tolist(),
        },
    }


def _pinning(loaders: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if any(loader.get("pin_memory") is False for loader in loaders.values()):
        return ["Batches are not in pinned memory: with GPUs, pin_memory=True speeds up copies."]
    return []
