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

from stepscope.analysis import ActivityKind, CopyKind, Device, GpuTime, Series, StreamIdle
from stepscope.intervals import Int
from stepscope.schema import NodeInfo, ProcessInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStepTimes:
    """Steps of one rank that ended in the range; arrays have one element per step."""

    rank: str
    """`rank 3`, or `process 4711` outside a distributed job."""
    node: str
    process: ProcessInfo
    first: int
    """Number of the first of these steps, counted from the start of the rank."""
    start_ns: Int
    end_ns: Int
    wall_ns: Int
    """End minus start minus evaluation inside the step."""
    phase_ns: Mapping[str, Int]
    """By phase of `analysis.steps`; sums to `wall_ns`."""
    profiled: NDArray[np.bool_]
    """True where the framework's own profiler was recording."""

    def __len__(self) -> int:
        return len(self.end_ns)

    @property
    def number(self) -> Int:
        """Number of each step."""
        return self.first + np.arange(len(self), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Batches created on one node, ordered by the start of their creation."""

    node: str
    start_ns: Int
    duration_ns: Int
    process: Int
    """A number per process of the node; only equality has a meaning."""


class RuleTrace(Protocol):
    """One trace: what a framework's profiler captured in one window."""

    @property
    def name(self) -> str:
        """Name in the run."""

    @property
    def rank(self) -> str:
        """`rank 3`; the name if the rank is unknown."""

    @property
    def end_ns(self) -> int:
        """End of the window."""

    @property
    def step_count(self) -> int | None:
        """Number of training steps, None if the script marks none."""

    @property
    def gpu_time(self) -> GpuTime | None:
        """Breakdown of device time; None without device work."""

    @property
    def copies(self) -> Sequence[CopyKind]:
        """Copies by direction and memory kinds."""

    @property
    def activities(self) -> Sequence[ActivityKind]:
        """Counts and times of device and runtime activity by kind."""

    @property
    def streams(self) -> Sequence[StreamIdle]:
        """Causes of idle time by stream."""

    @property
    def kernel_ns(self) -> Int:
        """Durations of kernels, communication excluded."""

    @property
    def operator_ns(self) -> Mapping[str, int]:
        """Self time of operators on the host, by name."""

    @property
    def device_ns(self) -> Mapping[str, int]:
        """Total duration of kernels, by name."""

    @property
    def compiled_variants(self) -> Mapping[str, int]:
        """Number of compiled variants that ran, by frame."""


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
    def nodes(self) -> Mapping[str, NodeInfo]:
        """Nodes by name."""

    @property
    def steps(self) -> Sequence[RankStepTimes]:
        """Steps that ended in the range, by rank; ranks without any may be absent."""

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
