"""What a rule may ask of a run, as a protocol: the diagnosis implements it over a run directory,
a test in a few lines.

Signals are those of a time range, from `begin_ns` to `end_ns`. Evaluation hands a rule one range
after another, in order and without overlap; a rule that is asked once gets the whole run.

Times are divided into scans of `scan_ns` from `origin_ns` on. A rule decides at the end of each
scan that holds data, so that its decisions do not depend on how the run was cut into ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Activity, CopyKind, GpuTime, StreamIdle
from stepscope.intervals import Int
from stepscope.schema import NodeInfo, ProcessInfo


class Device(NamedTuple):
    """A device of a node; `number` is empty for the node itself."""

    node: str
    number: str

    def __str__(self) -> str:
        return f"{self.node}/{self.number}"


class Series(NamedTuple):
    """Values by time, in no particular order; NaN where a reading failed."""

    t_ns: Int
    value: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """Steps of one rank that are new in the range; arrays have one entry per step."""

    rank: str
    """`rank 3`, or `process 4711` outside a distributed job."""
    node: str
    process: ProcessInfo
    first: int
    """Number of the first of these steps, counted from the beginning of the rank."""
    start_ns: Int
    end_ns: Int
    wall_ns: Int
    """End minus start minus evaluation inside."""
    phase_ns: Mapping[str, Int]
    """By phase of `analysis.steps`; sums to `wall_ns`."""
    profiled: NDArray[np.bool_]
    """The framework's own profiler was recording."""

    def __len__(self) -> int:
        return len(self.end_ns)

    @property
    def number(self) -> Int:
        """Number of each step."""
        return self.first + np.arange(len(self), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Batches made on one node, by when making them began."""

    node: str
    start_ns: Int
    duration_ns: Int
    process: Int
    """A number per process; only whether two are the same has a meaning."""


class Recording(Protocol):
    """One recording of a framework's profiler."""

    @property
    def name(self) -> str:
        """Its name in the run."""

    @property
    def rank(self) -> str:
        """`rank 3`; the name where no rank is known."""

    @property
    def end_ns(self) -> int:
        """When it ended."""

    @property
    def step_count(self) -> int | None:
        """Steps of the training loop in it, None when they were not marked."""

    @property
    def gpu_time(self) -> GpuTime | None:
        """How the time of its devices is divided; None without device work."""

    @property
    def copies(self) -> Sequence[CopyKind]:
        """Copies by direction and memories."""

    @property
    def activities(self) -> Sequence[Activity]:
        """Kinds of activity."""

    @property
    def streams(self) -> Sequence[StreamIdle]:
        """Why its streams were idle."""

    @property
    def kernel_ns(self) -> Int:
        """Durations of kernels that do not communicate."""

    @property
    def operator_ns(self) -> Mapping[str, int]:
        """Time of operators on the host, those they call not counted, by name."""

    @property
    def device_ns(self) -> Mapping[str, int]:
        """Durations of kernels, summed by name."""

    @property
    def compiled_variants(self) -> Mapping[str, int]:
        """By compiled frame, how many variants of its code ran."""


class Signals(Protocol):
    """The protocol."""

    @property
    def origin_ns(self) -> int:
        """First moment of the job."""

    @property
    def scan_ns(self) -> int:
        """Length of a scan."""

    @property
    def begin_ns(self) -> int:
        """Beginning of the range."""

    @property
    def end_ns(self) -> int:
        """End of the range, exclusive."""

    @property
    def nodes(self) -> Mapping[str, NodeInfo]:
        """The machines by name."""

    @property
    def steps(self) -> Sequence[RankSteps]:
        """Steps by rank; ranks without a new step may be absent."""

    @property
    def batches(self) -> Sequence[Batches]:
        """Batches made, by node."""

    @property
    def recordings(self) -> Sequence[Recording]:
        """Recordings that became readable."""

    @property
    def compiling(self) -> Mapping[str, Series]:
        """By rank, nanoseconds that a compiler took and when: samples of stacks in torch.compile.

        A rank whose stacks were sampled is there even when none of them was in a compiler.
        """

    def series(self, metric: str) -> Mapping[Device, Series]:
        """Samples of a metric of `schema.METRIC_TYPES` by device; empty when never sampled."""

    def so_far(self) -> Signals:
        """Signals of the run from its beginning to `end_ns`."""


def scan_numbers(signals: Signals, t_ns: Int) -> Int:
    """Number of the scan in which each time lies."""
    numbers: Int = (t_ns - signals.origin_ns) // signals.scan_ns
    return numbers
