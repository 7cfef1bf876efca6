"""Inputs of a rule as protocols: `rule_feed` implements them over runs, tests over arrays.

Inputs cover the time range from `start_ns` to `end_ns`. An evaluation hands an incremental rule
one range after another, in order and without overlap; any other rule gets the whole run.

Time is divided into scans of `scan_ns`, starting at `origin_ns`. A rule decides at the end of each
scan that holds data, so its decisions do not depend on the way the run was cut into ranges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, Self

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive steps of one rank; arrays have one element per step."""

    rank: str
    """`rank 3`; `trainer` outside a distributed job; the name of a trace of unknown rank."""
    node: str
    """Empty for the steps of a trace."""
    first: int
    """Number of the first of these steps."""
    start_ns: intervals.Int
    end_ns: intervals.Int
    wall_ns: intervals.Int
    """End minus start minus evaluation inside the step."""
    phase_ns: Mapping[str, intervals.Int]
    """By phase of `analysis.steps.phases`, of a trace by part of `analysis.trace_steps.step_parts`;
    sums to `wall_ns`."""
    profiled: NDArray[np.bool_]
    """True where the framework's own profiler recorded the step of a watched job."""
    range_ns: intervals.Int | None = None
    """Duration of the range that imported files record as the step; None where there are none."""

    def __len__(self) -> int:
        return len(self.end_ns)

    @property
    def duration_ns(self) -> intervals.Int:
        """Duration of each step: that of its recorded range, or else its wall time."""
        return self.wall_ns if self.range_ns is None else self.range_ns

    @property
    def number(self) -> intervals.Int:
        """Number of each step."""
        return self.first + np.arange(len(self), dtype=np.int64)

    def between(self, start: int, end: int) -> Self:
        """Select consecutive steps by their indices, the end exclusive."""
        rows = slice(start, end)
        return replace(
            self,
            first=self.first + start,
            start_ns=self.start_ns[rows],
            end_ns=self.end_ns[rows],
            wall_ns=self.wall_ns[rows],
            phase_ns={phase: ns[rows] for phase, ns in self.phase_ns.items()},
            profiled=self.profiled[rows],
            range_ns=None if self.range_ns is None else self.range_ns[rows],
        )


class TracedSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one trace, divided as for the verdict."""

    times: StepTimes
    rank_number: int | None
    """None if the rank is unknown."""
    category_ns: Mapping[str, intervals.Int]
    """By category of `analysis.trace_steps`; sums to the wall time."""
    are_marked: bool
    """False for a trace without steps: one step covers all of it."""
    has_host: bool
    """False without operators and Python functions: idle time of the device has no reason."""
    on_host: bool
    """True without work of a device: the host computes itself."""

    @property
    def wall_ns(self) -> int:
        """Wall time of all steps; above 0."""
        return int(self.times.wall_ns.sum())

    def share(self, parts: Iterable[str]) -> float:
        """Return the share of some parts in the wall time of all steps."""
        return sum(int(self.times.phase_ns[part].sum()) for part in parts) / self.wall_ns

    def category_share(self, category: str) -> float:
        """Return the share of a category in the wall time of all steps."""
        return int(self.category_ns[category].sum()) / self.wall_ns


class TracedBatches(msgspec.Struct, frozen=True, kw_only=True):
    """Fetches of batches by the training thread."""

    duration_ns: intervals.Int
    has_workers: bool
    """False if the training process creates the batches itself (num_workers=0)."""


class TracedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that ran kernels in a trace; arrays have one element per step."""

    number: int
    model: str | None
    memory_bytes: int | None
    """Memory of the GPU; None where not recorded."""
    compute_capability: float | None
    """Such as 8.0; None where not recorded, and for AMD."""
    busy_ratio: NDArray[np.float64]
    """Share of each step in which a kernel runs."""
    utilization_ratio: float | None
    """Share of the time from the start of the first step to the end of the last one in which a
    kernel runs."""
    tensor_core_ratio: float | None
    """Share of kernel time in kernels on tensor cores, guessed from names."""
    min_bytes: intervals.Int | None
    """Least memory that the framework has allocated in each step; None without totals in the
    memory events."""
    peak_bytes: intervals.Int | None
    """Most memory that the framework has allocated in each step."""

    def ratio_of_memory(self, size_bytes: intervals.Int | None) -> NDArray[np.float64] | None:
        """Return sizes as shares of the memory of the GPU; None if either is unknown."""
        if size_bytes is None or not self.memory_bytes:
            return None
        return size_bytes / self.memory_bytes


class RuleTrace(Protocol):
    """One trace."""

    @property
    def name(self) -> str:
        """Name in the run."""

    @property
    def rank(self) -> str:
        """`rank 3`; the name if the rank is unknown."""

    @property
    def start_ns(self) -> int:
        """Start of the window."""

    @property
    def end_ns(self) -> int:
        """End of the window."""

    @property
    def is_watched(self) -> bool:
        """True for a window of a watched job: its steps are inputs of their own."""

    @property
    def recorder(self) -> schema.Recorder:
        """Framework whose profiler wrote it."""

    @property
    def step_count(self) -> int | None:
        """Number of training steps, None if the script marks none."""

    @property
    def steps(self) -> TracedSteps | None:
        """Steps and their parts; None if the trace has no duration, or devices whose work is not
        known: the parts are those of idle and busy time of the device."""

    @property
    def unknown_devices(self) -> str | None:
        """Reason why devices without work in the trace tell nothing, as a clause; None where they
        do."""

    @property
    def batches(self) -> TracedBatches | None:
        """Fetches of batches from a DataLoader; None without any."""

    @property
    def gpus(self) -> Sequence[TracedGpu]:
        """GPUs that ran kernels."""

    @property
    def range_names(self) -> Collection[str]:
        """Names of the ranges and operators on the host."""

    @property
    def eligible_ratio(self) -> float | None:
        """Share of kernel time launched by operators that could use tensor cores, guessed from
        names; None without kernels."""

    @property
    def gpu_time(self) -> analysis.GpuTime | None:
        """Breakdown of device time; None without device work."""

    @property
    def copies(self) -> Sequence[analysis.CopyKind]:
        """Copies by direction and memory kinds."""

    @property
    def activities(self) -> Sequence[analysis.ActivityKind]:
        """Counts and times of device and runtime activity by kind."""

    @property
    def streams(self) -> Sequence[analysis.StreamIdle]:
        """Causes of idle time by stream."""

    @property
    def kernel_ns(self) -> intervals.Int:
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


def imported_steps(trace: RuleTrace) -> TracedSteps | None:
    """Return the steps of a trace of a job that was not watched; None if none are marked."""
    steps = None if trace.is_watched else trace.steps
    return steps if steps is not None and steps.are_marked else None


class RankStepTimes(StepTimes, frozen=True, kw_only=True):
    """Steps of one rank of a watched job that ended in the range, numbered from its start."""

    process: schema.ProcessInfo
    exchange_ns: NDArray[np.float64] | None = None
    """Exposed gradient exchange in the backward passes of each step, from the recorder of
    collectives; NaN where it is unknown. None for steps that are not of `settled_steps`."""


class Batches(msgspec.Struct, frozen=True, kw_only=True):
    """Batches created on one node, ordered by the start of their creation."""

    node: str
    start_ns: intervals.Int
    duration_ns: intervals.Int
    process: intervals.Int
    """A number per process of the node; only equality has a meaning."""
    by_threads: bool = False
    """True if threads of training processes create them, not processes of a DataLoader."""


class ModeTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one mode, such as EVAL, of a process whose imported files record steps as ranges."""

    process: str
    mode: str
    start_ns: int
    """Start of the first step."""
    end_ns: int
    """End of the last step."""
    total_ns: int


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
    def nodes(self) -> Mapping[str, schema.NodeInfo]:
        """Nodes by name."""

    @property
    def processes(self) -> Sequence[schema.ProcessInfo]:
        """Training processes."""

    @property
    def steps(self) -> Sequence[RankStepTimes]:
        """Steps that ended in the range, by rank; ranks without any may be absent."""

    @property
    def modes(self) -> Sequence[ModeTimes]:
        """Steps that imported files record as ranges, and that started in the range, by mode."""

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
    def compiler_time(self) -> Mapping[str, analysis.Series]:
        """Nanoseconds in torch.compile by rank, from stack samples.

        A rank whose stacks were sampled is present even if no sample was in the compiler.
        """

    @property
    def compilations(self) -> Mapping[str, Mapping[str, analysis.Series]]:
        """Recorded compilations that ended in the range, by rank and name: start and duration in
        nanoseconds. The name is the function, of torch.compile the cause."""

    @property
    def tensors(self) -> Sequence[analysis.TensorSeries]:
        """Statistics of tensors that became readable, by process, tensor and mode."""

    @property
    def scalars(self) -> Sequence[analysis.LoggedScalars]:
        """Losses and logged values that became readable, by process and name."""

    def values_of(self, collection: str) -> Sequence[analysis.TensorValues]:
        """Return the small matrices of a collection that became readable, such as the confusion
        matrices of `predictions`, by process in the order of recording."""

    def tensors_of(self, run: str) -> Sequence[analysis.TensorSeries]:
        """Return the statistics of the tensors of another run, by its path.

        Raises:
            StepscopeError: there is no such run, or it cannot be read.
        """

    def series(self, metric: str) -> Mapping[analysis.Device, analysis.Series]:
        """Return the samples of a metric of `schema.METRIC_TYPES` by device; empty if none."""

    def from_start(self) -> RuleInputs:
        """Return the inputs of the range from the start of the run to `end_ns`."""


def scan_indices(inputs: RuleInputs, t_ns: intervals.Int) -> intervals.Int:
    """Return the index of the scan that contains each time."""
    indices: intervals.Int = (t_ns - inputs.origin_ns) // inputs.scan_ns
    return indices


def scan_ends(inputs: RuleInputs, scans: intervals.Int) -> list[int]:
    """Return the end of each scan, in epoch nanoseconds."""
    ends: list[int] = (inputs.origin_ns + (scans + 1) * inputs.scan_ns).tolist()
    return ends
