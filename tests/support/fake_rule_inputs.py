"""Rule inputs made of arrays, which can be cut into ranges like a growing run."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from stepscope.analysis import (
    CATEGORIES,
    PHASES,
    STEP_PARTS,
    STORED_REDUCTIONS,
    ActivityKind,
    CopyKind,
    Device,
    GpuTime,
    LoggedScalars,
    Series,
    StreamIdle,
    TensorSeries,
    TensorValues,
)
from stepscope.rules import (
    Batches,
    RankStepTimes,
    Rule,
    StepTimes,
    TracedBatches,
    TracedGpu,
    TracedSteps,
)
from stepscope.schema import PYTORCH, Finding, NodeInfo, ProcessInfo, Recorder

ORIGIN_NS, SECOND_NS = 1_700_000_000_000_000_000, 1_000_000_000
SCAN_NS = 60 * SECOND_NS
GPU_BYTES = 80 << 30
DEFAULTS = {"element_count": 100, "nan_count": 0, "infinite_count": 0, "zero_count": 0}
"""Counts of a tensor unless they are given."""
MAX_OVER_CORES = {f"cpu_{n}_max_ratio": f"core_{n}_ratio" for n in ("busy", "iowait")}
"""Metrics that are computed from the samples of the cores, as the monitor does."""


def node_info(
    name: str, *, cores: float = 8, gpus: int = 8, recording_s: float | None = None
) -> NodeInfo:
    return NodeInfo(
        node=name,
        platform="Linux",
        cpu_model="drawn",
        cores_total=int(cores),
        cores_available=cores,
        memory_bytes=100,
        memory_limit_bytes=None,
        sample_interval_ns=SECOND_NS // 2,
        spool="/spool",
        clock_anchor_monotonic_ns=0,
        clock_anchor_epoch_ns=ORIGIN_NS,
        recording_end_ns=None if recording_s is None else ORIGIN_NS + round(recording_s * 1e9),
        gpus=[{"index": n, "memory_bytes": GPU_BYTES} for n in range(gpus)],
    )


@dataclass(frozen=True, kw_only=True)
class FakeTrace:
    name: str = "window"
    rank: str = "rank 0"
    start_ns: int = ORIGIN_NS
    end_ns: int = ORIGIN_NS + 10 * SECOND_NS
    is_watched: bool = True
    recorder: Recorder = PYTORCH
    steps: TracedSteps | None = None
    unknown_devices: str | None = None
    batches: TracedBatches | None = None
    gpus: Sequence[TracedGpu] = ()
    range_names: Collection[str] = ()
    eligible_ratio: float | None = None
    step_count: int | None = 10
    gpu_time: GpuTime | None = None
    copies: Sequence[CopyKind] = ()
    activities: Sequence[ActivityKind] = ()
    streams: Sequence[StreamIdle] = ()
    kernel_ns: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    operator_ns: Mapping[str, int] = field(default_factory=dict)
    device_ns: Mapping[str, int] = field(default_factory=dict)
    compiled_variants: Mapping[str, int] = field(default_factory=dict)


def traced_steps(
    rank: int | None = 0,
    *,
    first: int = 0,
    has_host: bool = True,
    are_marked: bool = True,
    categories_ms: Mapping[str, ArrayLike] | None = None,
    **parts_ms: ArrayLike,
) -> TracedSteps:
    """Return consecutive steps of a trace; parts in milliseconds, a scalar applies to every step.

    Categories default to the parts of the same name; the rest of a step is `other`.
    """
    count = max(np.size(values) for values in parts_ms.values())

    def spread(values: ArrayLike) -> np.ndarray:
        rows = np.rint(np.asarray(values) * 1e6).astype(np.int64)
        return np.broadcast_to(rows, (count,)).copy()

    part_ns = {part: spread(parts_ms.get(part, 0)) for part in STEP_PARTS}
    wall = np.sum(list(part_ns.values()), axis=0)
    category_ns = {name: spread((categories_ms or parts_ms).get(name, 0)) for name in CATEGORIES}
    category_ns["other"] = wall - np.sum(list(category_ns.values()), axis=0)
    end = ORIGIN_NS + np.cumsum(wall)
    return TracedSteps(
        times=StepTimes(
            rank="window" if rank is None else f"rank {rank}",
            node="",
            first=first,
            start_ns=end - wall,
            end_ns=end,
            wall_ns=wall,
            phase_ns=part_ns,
            profiled=np.zeros(count, dtype=np.bool_),
        ),
        rank_number=rank,
        category_ns=category_ns,
        are_marked=are_marked,
        has_host=has_host,
        on_host=False,
    )


def traced_gpu(
    number: int = 0,
    *,
    busy: ArrayLike = 1.0,
    capability: float | None = 8.0,
    utilization: float | None = 1.0,
    tensor_cores: float | None = 0.5,
    minimum: ArrayLike | None = None,
    peak: ArrayLike | None = None,
) -> TracedGpu:
    """Return a GPU of a trace; `minimum` and `peak` are shares of its memory by step."""

    def size(ratio: ArrayLike | None) -> np.ndarray | None:
        return None if ratio is None else np.rint(np.atleast_1d(ratio) * GPU_BYTES).astype(np.int64)

    return TracedGpu(
        number=number,
        model="drawn",
        memory_bytes=GPU_BYTES,
        compute_capability=capability,
        busy_ratio=np.atleast_1d(np.asarray(busy, dtype=np.float64)),
        utilization_ratio=utilization,
        tensor_core_ratio=tensor_cores,
        min_bytes=size(minimum),
        peak_bytes=size(peak),
    )


def make_stream(*, busy: int, host_wait: int, device: int = 0) -> StreamIdle:
    return StreamIdle(
        stream=7 + device,
        device=device,
        work_count=2,
        span_ns=busy + host_wait,
        busy_ns=busy,
        idle_ns=host_wait,
        host_wait_ns=host_wait,
        kernel_wait_ns=0,
        other_ns=0,
        host_wait_ratio=1.0,
        kernel_wait_ratio=0.0,
        other_ratio=0.0,
        host_wait_count=1,
        kernel_wait_count=0,
        other_count=0,
        longest_host_wait_ns=host_wait,
    )


@dataclass(kw_only=True)
class FakeRuleInputs:
    """Inputs of a whole run, or after `cut` of a range."""

    is_imported: bool = False
    nodes: dict[str, NodeInfo] = field(default_factory=dict)
    every_series: dict[str, dict[Device, Series]] = field(default_factory=dict)
    """By metric, including those of cores."""
    steps: list[RankStepTimes] = field(default_factory=list)
    modes: tuple[()] = ()
    batches: list[Batches] = field(default_factory=list)
    traces: list[FakeTrace] = field(default_factory=list)
    compiler_time: dict[str, Series] = field(default_factory=dict)
    compilations: dict[str, dict[str, Series]] = field(default_factory=dict)
    tensors: list[TensorSeries] = field(default_factory=list)
    scalars: list[LoggedScalars] = field(default_factory=list)
    values: list[TensorValues] = field(default_factory=list)
    other_runs: dict[str, list[TensorSeries]] = field(default_factory=dict)
    origin_ns: int = ORIGIN_NS
    scan_ns: int = SCAN_NS
    start_ns: int = ORIGIN_NS
    end_ns: int = ORIGIN_NS

    @property
    def processes(self) -> list[ProcessInfo]:
        return [steps.process for steps in self.steps]

    def node(self, name: str = "n0", **fields: float) -> FakeRuleInputs:
        self.nodes[name] = node_info(name, **fields)  # type: ignore[arg-type]
        return self

    def sample(
        self,
        metric: str,
        values: ArrayLike,
        *,
        device: str = "",
        node: str = "n0",
        from_s: float = 0,
        every_s: float = 0.5,
    ) -> FakeRuleInputs:
        """Add samples at a constant interval."""
        value = np.asarray(values, dtype=np.float64)
        t_ns = ORIGIN_NS + np.rint((from_s + every_s * np.arange(len(value))) * 1e9).astype(int)
        self.every_series.setdefault(metric, {})[Device(node, device)] = Series(t_ns, value)
        if node not in self.nodes:
            self.node(node)
        self.end_ns = max(self.end_ns, int(t_ns.max(initial=0)) + 1)
        return self

    def rank(
        self,
        rank: int | None = 0,
        *,
        node: str = "n0",
        from_s: float = 0,
        facts: Sequence[dict[str, object]] = (),
        profiled: ArrayLike = False,
        **phases_s: ArrayLike,
    ) -> FakeRuleInputs:
        """Add consecutive steps; phases in seconds, a scalar applies to every step."""
        count = max(np.size(values) for values in phases_s.values())
        phase_ns = {
            phase: np.broadcast_to(
                np.rint(np.asarray(phases_s.get(phase, 0)) * 1e9).astype(np.int64), (count,)
            ).copy()
            for phase in PHASES
        }
        wall = np.sum(list(phase_ns.values()), axis=0)
        end = ORIGIN_NS + round(from_s * 1e9) + np.cumsum(wall)
        process = ProcessInfo(
            process=f"p{rank}",
            node=node,
            pid=100 + (rank or 0),
            parent_pid=1,
            role="main",
            rank=rank,
            started_ns=ORIGIN_NS,
            facts=list(facts),
        )
        self.steps.append(
            RankStepTimes(
                rank="trainer" if rank is None else f"rank {rank}",
                node=node,
                process=process,
                first=0,
                start_ns=end - wall,
                end_ns=end,
                wall_ns=wall,
                phase_ns=phase_ns,
                profiled=np.broadcast_to(profiled, (count,)).copy(),
            )
        )
        if node not in self.nodes:
            self.node(node)
        self.end_ns = max(self.end_ns, int(end[-1]) + 1)
        return self

    def load(
        self, start_s: ArrayLike, duration_s: ArrayLike, process: ArrayLike, *, node: str = "n0"
    ) -> FakeRuleInputs:
        """Add batches."""
        start = np.atleast_1d(np.asarray(start_s, dtype=np.float64))
        start_ns = ORIGIN_NS + np.rint(start * 1e9).astype(np.int64)
        length = np.rint(np.asarray(duration_s, dtype=np.float64) * 1e9).astype(np.int64)
        duration_ns = np.broadcast_to(length, start.shape)
        number = np.broadcast_to(np.asarray(process, dtype=np.int64), start.shape)
        batches = Batches(node=node, start_ns=start_ns, duration_ns=duration_ns, process=number)
        self.batches.append(batches)
        if node not in self.nodes:
            self.node(node)
        self.end_ns = max(self.end_ns, int((start_ns + duration_ns).max()) + 1)
        return self

    def trace(self, **fields: object) -> FakeRuleInputs:
        """Add a trace of the profiler."""
        self.traces.append(FakeTrace(**fields))  # type: ignore[arg-type]
        self.end_ns = max(self.end_ns, self.traces[-1].end_ns)
        return self

    def imported(
        self, rank: int | None = 0, *, name: str = "", steps: TracedSteps, **fields: object
    ) -> FakeRuleInputs:
        """Add an imported trace."""
        name = name or f"trace {rank}"
        return self.trace(
            name=name,
            rank=name if rank is None else f"rank {rank}",
            end_ns=int(steps.times.end_ns[-1]),
            is_watched=False,
            steps=steps,
            **fields,
        )

    def compile(self, rank: str, at_s: ArrayLike, each_s: float = 0.05) -> FakeRuleInputs:
        """Add stack samples in a compiler; an empty array means that stacks were sampled."""
        t_ns = ORIGIN_NS + np.rint(np.asarray(at_s, dtype=np.float64) * 1e9).astype(np.int64)
        self.compiler_time[rank] = Series(t_ns, np.full(len(t_ns), each_s * 1e9))
        return self

    def tensor(
        self,
        name: str,
        *,
        collection: str = "",
        process: str = "p0",
        mode: str = "TRAIN",
        every_s: float = 1.0,
        from_s: float = 0.5,
        **statistics: ArrayLike,
    ) -> FakeRuleInputs:
        """Add a tensor of 100 elements with statistics by recorded step; others are unknown."""
        count = max(np.size(values) for values in statistics.values())
        stored = {
            reduction: np.broadcast_to(
                np.asarray(statistics.get(reduction, DEFAULTS.get(reduction, np.nan)), np.float64),
                (count,),
            ).copy()
            for reduction in STORED_REDUCTIONS
        }
        t_ns = ORIGIN_NS + np.rint((from_s + every_s * np.arange(count)) * 1e9).astype(np.int64)
        self.tensors.append(
            TensorSeries(
                name=name,
                collection=collection or ("gradients" if "gradient" in name else "weights"),
                process=process,
                rank=int(process[1:]),
                mode=mode,
                shape="100",
                dtype="float32",
                step=np.arange(count),
                t_ns=t_ns,
                stored=stored,
            )
        )
        self.end_ns = max(self.end_ns, int(t_ns[-1]) + 1)
        return self

    def scalar(
        self,
        name: str,
        values: ArrayLike,
        *,
        process: str = "p0",
        every_s: float = 1.0,
        from_s: float = 0.5,
    ) -> FakeRuleInputs:
        """Add logged values."""
        value = np.asarray(values, dtype=np.float64)
        t_ns = ORIGIN_NS + np.rint((from_s + every_s * np.arange(len(value))) * 1e9).astype(int)
        self.scalars.append(LoggedScalars(name=name, process=process, t_ns=t_ns, value=value))
        self.end_ns = max(self.end_ns, int(t_ns[-1]) + 1)
        return self

    def matrix(self, matrix: TensorValues) -> FakeRuleInputs:
        """Add a small matrix."""
        self.values.append(matrix)
        self.end_ns = max(self.end_ns, matrix.t_ns + 1)
        return self

    # --- the protocol ---------------------------------------------------------------------------

    def series(self, metric: str) -> dict[Device, Series]:
        if metric in MAX_OVER_CORES:
            return self._max_over_cores(MAX_OVER_CORES[metric])
        return self.every_series.get(metric, {})

    def _max_over_cores(self, metric: str) -> dict[Device, Series]:
        highest: dict[str, dict[int, float]] = {}
        for device, series in self.every_series.get(metric, {}).items():
            if device.number:
                of_node = highest.setdefault(device.node, {})
                for t_ns, value in zip(series.t_ns.tolist(), series.value.tolist(), strict=True):
                    so_far = of_node.get(t_ns, 0.0)
                    of_node[t_ns] = max(so_far, value) if np.isfinite(value) else so_far
        return {
            Device(node, ""): Series(
                np.array(list(values), dtype=np.int64), np.array(list(values.values()))
            )
            for node, values in highest.items()
        }

    def values_of(self, collection: str) -> list[TensorValues]:
        return [matrix for matrix in self.values if matrix.collection == collection]

    def tensors_of(self, run: str) -> list[TensorSeries]:
        return self.other_runs[run]

    @property
    def settled_steps(self) -> list[RankStepTimes]:
        """The exchange of no step is known."""
        return self.steps

    def from_start(self) -> FakeRuleInputs:
        return self

    # --- cutting --------------------------------------------------------------------------------

    def cut(self, start_ns: int, end_ns: int) -> FakeRuleInputs:
        """Return the inputs of a range of a growing run."""

        def is_inside(t_ns: np.ndarray) -> np.ndarray:
            return (t_ns >= start_ns) & (t_ns < end_ns)

        def cut_series(series: Series) -> Series:
            selected = is_inside(series.t_ns)
            return Series(series.t_ns[selected], series.value[selected])

        def cut_all(by_name: dict[str, Series]) -> dict[str, Series]:
            return {name: cut_series(series) for name, series in by_name.items()}

        return dataclasses.replace(
            self,
            start_ns=start_ns,
            end_ns=end_ns,
            every_series={
                metric: {d: cut for d, s in series.items() if len((cut := cut_series(s)).t_ns)}
                for metric, series in self.every_series.items()
            },
            steps=[cut for s in self.steps if len(cut := _take(s, is_inside(s.end_ns)))],
            batches=[
                Batches(
                    node=b.node,
                    start_ns=b.start_ns[selected],
                    duration_ns=b.duration_ns[selected],
                    process=b.process[selected],
                    by_threads=b.by_threads,
                )
                for b in self.batches
                if (selected := is_inside(b.start_ns + b.duration_ns)).any()
            ],
            traces=[t for t in self.traces if start_ns < t.end_ns <= end_ns],
            compiler_time=cut_all(self.compiler_time),
            compilations={rank: cut_all(names) for rank, names in self.compilations.items()},
            tensors=[
                replace(
                    t,
                    step=t.step[selected],
                    t_ns=t.t_ns[selected],
                    stored={name: values[selected] for name, values in t.stored.items()},
                )
                for t in self.tensors
                if (selected := is_inside(t.t_ns)).any()
            ],
            values=[v for v in self.values if start_ns <= v.t_ns < end_ns],
            scalars=[
                replace(s, t_ns=s.t_ns[selected], value=s.value[selected])
                for s in self.scalars
                if (selected := is_inside(s.t_ns)).any()
            ],
        )

    def ranges(self, scans: Sequence[int]) -> Iterator[FakeRuleInputs]:
        """Cut the run at the ends of some scans."""
        edges = [self.start_ns]
        edges += [e for n in sorted(set(scans)) if edges[0] < (e := self._edge(n)) < self.end_ns]
        for start, end in zip(edges, [*edges[1:], self.end_ns], strict=True):
            yield self.cut(start, end)

    def _edge(self, scan: int) -> int:
        return self.origin_ns + scan * self.scan_ns


def check_rule(rule: Rule[object], inputs: FakeRuleInputs) -> Finding:
    """Evaluate a rule that applies to the inputs."""
    finding = rule.check(inputs)
    assert finding is not None
    return finding


def _take(steps: RankStepTimes, rows: np.ndarray) -> RankStepTimes:
    indices = np.flatnonzero(rows)
    first, stop = (int(indices[0]), int(indices[-1]) + 1) if len(indices) else (0, 0)
    return steps.between(first, stop)
