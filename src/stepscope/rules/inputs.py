"""Inputs of a rule, as protocols: `rule_feed` implements them over a run directory, tests over
arrays.

Inputs cover the time range from `start_ns` to `end_ns`. An evaluation hands an incremental rule
one range after another, in order and without overlap; any other rule gets the whole run.

Time is divided into scans of `scan_ns`, starting at `origin_ns`. A rule decides at the end of each
scan that holds data, so its decisions do not depend on the way the run was cut into ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Device, LoggedScalars, Series, TensorSeries, TensorValues
from stepscope.intervals import Int
from stepscope.rules.traces import RuleTrace, StepTimes
from stepscope.schema import NodeInfo, ProcessInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStepTimes(StepTimes):
    """Steps of one rank of a watched job that ended in the range, numbered from its start."""

    process: ProcessInfo
    exchange_ns: NDArray[np.float64] | None = None
    """Exposed gradient exchange in the backward passes of each step, from the recorder of
    collectives; NaN where it is unknown. None for steps that are not of `settled_steps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Batches created on one node, ordered by the start of their creation."""

    node: str
    start_ns: Int
    duration_ns: Int
    process: Int
    """A number per process of the node; only equality has a meaning."""
    by_threads: bool = False
    """True if threads of training processes create them, not processes of a DataLoader."""


class RuleInputs(Protocol):
    """Inputs of a rule for one time range of a run."""

    @property
    def origin_ns(self) -> int:
        """Start of the job."""

    @property
    def scan_ns(self) -> int:
        """Length of a scan."""

    @property
    def start_ns(self) -> int:
        """Start of the range."""

    @property
    def end_ns(self) -> int:
        """End of the range, exclusive."""

    @property
    def is_imported(self) -> bool:
        """True if the run is of files of other tools, so that nothing more can be recorded."""

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Nodes by name."""

    @property
    def processes(self) -> Sequence[ProcessInfo]:
        """Training processes."""

    @property
    def steps(self) -> Sequence[RankStepTimes]:
        """Steps that ended in the range, by rank; ranks without any may be absent."""

    @property
    def settled_steps(self) -> Sequence[RankStepTimes]:
        """Steps of this or an earlier range whose exposed exchange became known, or will not."""

    @property
    def batches(self) -> Sequence[Batches]:
        """Batches whose creation ended in the range, by node."""

    @property
    def traces(self) -> Sequence[RuleTrace]:
        """Traces that became readable."""

    @property
    def compiler_time(self) -> Mapping[str, Series]:
        """Nanoseconds in torch.compile by rank, from stack samples.

        A rank whose stacks were sampled is present even if no sample was in the compiler.
        """

    @property
    def compilations(self) -> Mapping[str, Mapping[str, Series]]:
        """Recorded compilations that ended in the range, by rank and name: start and duration in
        nanoseconds. The name is the function, of torch.compile the cause."""

    @property
    def tensors(self) -> Sequence[TensorSeries]:
        """Statistics of tensors that became readable, by process, tensor and mode."""

    @property
    def scalars(self) -> Sequence[LoggedScalars]:
        """Losses and logged values that became readable, by process and name."""

    def values_of(self, collection: str) -> Sequence[TensorValues]:
        """Return the small matrices of a collection that became readable, such as the confusion
        matrices of `predictions`, by process in the order of recording."""

    def tensors_of(self, run: str) -> Sequence[TensorSeries]:
        """Return the statistics of the tensors of another run, by its path.

        Raises:
            StepscopeError: there is no such run, or it cannot be read.
        """

    def series(self, metric: str) -> Mapping[Device, Series]:
        """Return the samples of a metric of `schema.METRIC_TYPES` by device; empty if none."""

    def from_start(self) -> RuleInputs:
        """Return the inputs of the range from the start of the run to `end_ns`."""


def scan_indices(inputs: RuleInputs, t_ns: Int) -> Int:
    """Return the index of the scan that contains each time."""
    indices: Int = (t_ns - inputs.origin_ns) // inputs.scan_ns
    return indices


def scan_ends(inputs: RuleInputs, scans: Int) -> list[int]:
    """Return the end of each scan, in epoch nanoseconds."""
    ends: list[int] = (inputs.origin_ns + (scans + 1) * inputs.scan_ns).tolist()
    return ends
