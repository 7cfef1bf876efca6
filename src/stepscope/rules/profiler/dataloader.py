"""Dataloader and DataloaderBottleneck: processes that load batches, and waits for batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from stepscope import intervals, quantities, schema
from stepscope.quantities import percent
from stepscope.rules.base import HistogramCounts, IncrementalRule, NotApplicable, Trigger
from stepscope.rules.inputs import Batches, RankStepTimes, RuleInputs, RuleTrace
from stepscope.rules.parameters import MAX_HANDOVER_NS, Percentage, Positive, share_beside
from stepscope.rules.profiler import step_share
from stepscope.rules.quantile_sketch import DURATION_GRID, LinearGrid, QuantileSketch
from stepscope.rules.samples import NO_FETCHES_IN_TRACES, sort_traces
from stepscope.rules.templates import Ranks, RankStates, TraceResults

SECOND_NS = 1_000_000_000
MIN_SECONDS = 10
"""A node is evaluated once it has more seconds with batches than this."""
MAX_BATCH_SECONDS = 600
"""A batch counts in at most this many seconds before its end."""
BINS = 100
MIN_WAIT_SHARE = 0.05
"""Share of step time that ranks have to wait for batches before more loader processes help."""
KEEP_WORKERS = "Keep the number of DataLoader workers."


@dataclass(frozen=True, slots=True, kw_only=True)
class DataloaderParameters:
    """Limits of the number of loader processes for the cores of a node."""

    min_threshold: Positive = 70.0
    """Fewer loader processes than this percentage of the cores are too few."""
    max_threshold: Positive = 200.0
    """More than this percentage of the cores are too many."""


class LoaderUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Creation of batches on one node."""

    cores_available: float | None = None
    """Cores that the job may use; None if unknown."""
    loader_process_count: int | None = 0
    """Median count of processes that create batches, over the seconds with any; None if threads of
    the training process create them."""
    has_workers: bool = True
    """False if the training processes create the batches themselves (num_workers=0)."""
    loading_p25_s: float = 0.0
    loading_p50_s: float = 0.0
    loading_p95_s: float = 0.0
    """Quantiles of the time to create a batch."""
    loading_histogram: HistogramCounts = HistogramCounts()
    """Time to create a batch."""


class TraceFetches(msgspec.Struct, frozen=True, kw_only=True):
    """Fetches of batches by the training thread in one imported trace."""

    rank: str = ""
    fetch_count: int = 0
    has_workers: bool = True
    """False if the training process creates the batches itself (num_workers=0)."""
    fetching_p50_s: float = 0.0
    """Median time of a fetch."""


class DataloaderDetails(msgspec.Struct, frozen=True, kw_only=True):
    """DataLoaders by rank, creation of batches by node, fetches by trace."""

    loaders: dict[str, schema.LoaderSettings] = {}
    """DataLoader settings that each rank recorded; imported files state two of them."""
    nodes: dict[str, LoaderUsage] = {}
    recordings: dict[str, TraceFetches] = {}


class _NodeState(msgspec.Struct):
    cores: float | None
    parallel: QuantileSketch = msgspec.field(
        default_factory=lambda: QuantileSketch(LinearGrid(1.0))
    )
    """Processes that created batches, by second; seconds that may still change are in `pairs`."""
    pairs: intervals.Int = msgspec.field(default_factory=lambda: np.empty((0, 2), dtype=np.int64))
    """Rows of (second, process)."""
    loading: QuantileSketch = msgspec.field(default_factory=lambda: QuantileSketch(DURATION_GRID))
    ranks: set[str] = msgspec.field(default_factory=set)
    """Ranks with steps on the node."""
    by_threads: bool = True
    """True while no process of a DataLoader created a batch."""
    extent: Trigger = msgspec.field(default_factory=Trigger)
    """Extent of the batches; its scans are not used."""
    wait_ns: int = 0
    wall_ns: int = 0
    """Waits for batches, and wall time, of the steps of the ranks."""

    @property
    def wait_share(self) -> float | None:
        """Share of step time in which ranks wait for batches; None without steps."""
        return self.wait_ns / self.wall_ns if self.wall_ns else None

    @property
    def suggested_workers(self) -> int:
        """Loader processes per rank that use each core once."""
        return max(1, int((self.cores or 1) / max(1, len(self.ranks))))

    def processes_by_second(self) -> QuantileSketch:
        """Return the processes by second, including the seconds that may still change."""
        sketch = QuantileSketch(self.parallel.grid)
        sketch.merge(self.parallel)
        sketch.add(_count_per_second(self.pairs))
        return sketch


class _State(msgspec.Struct):
    nodes: dict[str, _NodeState] = msgspec.field(default_factory=dict)
    loaders: dict[str, schema.LoaderSettings] = msgspec.field(default_factory=dict)
    """DataLoader settings by rank."""
    traces: TraceResults[TraceFetches] = msgspec.field(default_factory=TraceResults)
    trigger: Trigger = msgspec.field(default_factory=Trigger)
    """Scans in which traces end on which the rule fires."""


class Dataloader(IncrementalRule[DataloaderParameters, _State]):
    """Checks whether the number of processes that load batches suits the cores.

    ## What it checks
    For each node and second, the number of processes that were creating batches: DataLoader
    workers, or the training process if there are none. The median over the seconds in which there
    was any is compared with the cores that the job may use: below `min_threshold` percent of them
    is too few, above `max_threshold` too many. A node is evaluated after 10 seconds with batches.
    Datapoints are batches, violations the nodes with a wrong number; RuleTriggered is 1 while there
    is one. An imported trace shows neither cores nor workers, but who creates the batches: the
    training process alone is too few for any machine, and a violation. Where threads of the
    training process create the batches, as with TensorFlow, there are no processes to count.

    ## Why it matters
    Too few loader processes leave GPUs waiting for data; too many take cores from everything else.

    ## What to do
    Change num_workers. DataloaderBottleneck shows whether that helps: as long as no rank waits for
    batches, too few loader processes do no harm, and the finding refuses more while ranks wait for
    batches for less than 5% of step time, or the training process creates a batch in at most 3 ms:
    a worker may need as long to hand one over. The view `insights` and `stepscope rules check RUN`
    add the reasons for which the verdict refuses more. With GPUs, pin_memory=True lets copies
    overlap.

    ## Where the numbers differ from SageMaker Debugger's
    A process counts in each second in which it works on a batch, not only in the one in which it
    started, so slow batches do not look like few workers. Cores are those that the job may use on
    each node.
    """

    topic = "data loading"
    parameters_type = DataloaderParameters
    recommendation = "Change the number of DataLoader workers."
    evidence = ("input-pipeline", "system")
    plots = ("step", "data_wait", "cpu_busy_ratio")
    missing_in_traces = NO_FETCHES_IN_TRACES
    run_state = _State

    def update(self, state: _State, inputs: RuleInputs) -> _State:
        for batches in inputs.batches:
            info = inputs.nodes.get(batches.node)
            node = state.nodes.setdefault(
                batches.node, _NodeState(cores=info.cores_available if info else None)
            )
            node.by_threads &= batches.by_threads
            node.loading.add(batches.duration_ns)
            node.extent.cover(batches.start_ns, batches.start_ns + batches.duration_ns)
            node.pairs = _unique_pairs(np.concatenate([node.pairs, _pairs(batches)]))
        first_open = inputs.end_ns // SECOND_NS - MAX_BATCH_SECONDS
        for node in state.nodes.values():
            is_closed = node.pairs[:, 0] < first_open
            node.parallel.add(_count_per_second(node.pairs[is_closed]))
            node.pairs = node.pairs[~is_closed]
        for steps in inputs.steps:
            settings: list[schema.LoaderSettings] = [
                *steps.process.facts_of(schema.DataLoaderSettingsFact),
                *steps.process.facts_of(schema.DataLoaderFact),
            ]
            if settings:
                state.loaders[steps.rank] = settings[-1]
            if steps.node in state.nodes:
                node = state.nodes[steps.node]
                node.ranks.add(steps.rank)
                node.wait_ns += int(steps.phase_ns["data_wait"].sum())
                node.wall_ns += int(steps.wall_ns.sum())
        for trace in sort_traces(inputs):
            is_other = trace.is_watched or not trace.recorder.is_torch
            fetches = None if is_other else trace.batches
            if fetches is not None:
                state.traces.add(
                    trace,
                    TraceFetches(
                        rank=trace.rank,
                        fetch_count=len(fetches.duration_ns),
                        has_workers=fetches.has_workers,
                        fetching_p50_s=float(np.median(fetches.duration_ns)) / SECOND_NS,
                    ),
                    fires=not fetches.has_workers,
                    inputs=inputs,
                    trigger=state.trigger,
                )
        return state

    def _judge(self, node: _NodeState) -> Literal["few", "many"] | None:
        """Return if a node has too few or too many loader processes."""
        p, seconds = self.parameters, node.processes_by_second()
        if node.by_threads or node.cores is None or len(seconds) <= MIN_SECONDS:
            return None
        count = _median(seconds)
        minimum, maximum = (node.cores * t / 100 for t in (p.min_threshold, p.max_threshold))
        return "few" if count < minimum else "many" if count > maximum else None

    def _find_refusal(self, node: _NodeState, *, has_workers: bool) -> str | None:
        """Find the reason for which more workers on a node are refused; None without one."""
        share, (median_ns,) = node.wait_share, node.loading.quantiles([0.5])
        if self._judge(node) != "few":
            return None
        if not has_workers and median_ns <= MAX_HANDOVER_NS:
            return (
                f"a batch is created in {quantities.duration(median_ns)}, and handing it over from "
                f"a worker takes up to {quantities.duration(MAX_HANDOVER_NS)}"
            )
        if share is not None and share < MIN_WAIT_SHARE:
            return f"ranks wait for batches {percent(share)} of step time: they save at most that"
        return None

    def decide(self, state: _State) -> schema.Finding | None:
        if not state.nodes:
            return self._decide_on_traces(state.traces, state.trigger)
        wrong = {name: node for name, node in state.nodes.items() if self._judge(node)}
        usage = {name: _usage(node, state) for name, node in sorted(state.nodes.items())}
        refusals = {
            name: self._find_refusal(node, has_workers=usage[name].has_workers)
            for name, node in wrong.items()
        }
        extent = Trigger()
        for node in wrong.values():
            extent.include(node.extent)
        details = DataloaderDetails(loaders=state.loaders, nodes=usage)
        finding = self.finding(
            triggered=1 if wrong else 0,
            extent=extent,
            violations=len(wrong),
            datapoints=sum(len(node.loading) for node in state.nodes.values()),
            details=details,
            sentences=_sentences(details, refusals),
            nodes=wrong,
        )
        if not wrong:
            return finding
        tried = [
            f"num_workers={node.suggested_workers}" + (f" on node {name}" if len(usage) > 1 else "")
            for name, node in wrong.items()
            if refusals[name] is None
        ]
        advice = f"Try {', '.join(tried)}." if tried else KEEP_WORKERS
        return msgspec.structs.replace(finding, recommendation=advice)

    def _decide_on_traces(
        self, traces: TraceResults[TraceFetches], trigger: Trigger
    ) -> schema.Finding:
        if not traces.details:
            raise NotApplicable("no creation of a batch by a DataLoader was recorded")
        return self.finding(
            triggered=trigger,
            violations=len(traces.triggered),
            datapoints=sum(fetches.fetch_count for fetches in traces.details.values()),
            details=DataloaderDetails(recordings=traces.details),
            sentences=_describe_fetches(traces.details),
            ranks=traces.triggered.values(),
        )


def _sentences(details: DataloaderDetails, refusals: Mapping[str, str | None]) -> Iterable[str]:
    for name, usage in details.nodes.items():
        p25, p50, p95 = (
            quantities.duration(seconds * SECOND_NS)
            for seconds in (usage.loading_p25_s, usage.loading_p50_s, usage.loading_p95_s)
        )
        cores = usage.cores_available
        if usage.loader_process_count is None:
            processes = "threads of the training process create the batches"
        else:
            processes = quantities.count_of(
                usage.loader_process_count, "loader process", "loader processes"
            )
        if not usage.has_workers:
            processes = "no DataLoader worker (the training thread creates the batches)"
        available = "" if cores is None else f" for {quantities.number(cores)} available cores"
        sentence = (
            f"Node {name}: {processes}{available}. Batch creation takes {p50} at the median (p25 "
            f"{p25}, p95 {p95})."
        )
        refusal = refusals.get(name)
        if refusal is not None:
            sentence += f" More workers: refused, because {refusal}."
        yield sentence
    if any(_is_pinned(loader) is False for loader in details.loaders.values()):
        yield "Batches are not in pinned memory. With GPUs, pin_memory=True speeds up copies."


def _worker_count(loader: schema.LoaderSettings) -> int | None:
    return loader.num_workers if isinstance(loader, schema.DataLoaderFact) else loader.worker_count


def _is_pinned(loader: schema.LoaderSettings) -> bool | None:
    return loader.pin_memory if isinstance(loader, schema.DataLoaderFact) else loader.is_pinned


def _describe_fetches(traces: Mapping[str, TraceFetches]) -> Iterable[str]:
    for name, fetches in traces.items():
        creators = (
            "workers create the batches, whose number a trace does not show"
            if fetches.has_workers
            else "no DataLoader worker (the training thread creates the batches)"
        )
        yield (
            f"Trace {name}: {creators}. A fetch takes "
            f"{quantities.duration(fetches.fetching_p50_s * SECOND_NS)} at the median."
        )


def _pairs(batches: Batches) -> intervals.Int:
    """Return rows of (second, process) for each second in which each batch was being created."""
    last = np.maximum(batches.start_ns + batches.duration_ns - 1, batches.start_ns) // SECOND_NS
    first = np.maximum(batches.start_ns // SECOND_NS, last - MAX_BATCH_SECONDS + 1)
    length = last - first + 1
    offsets = np.cumsum(length) - length
    second = np.repeat(first - offsets, length) + np.arange(int(length.sum()))
    return np.stack([second, np.repeat(batches.process, length)], axis=1)


def _unique_pairs(pairs: intervals.Int) -> intervals.Int:
    """Return the distinct rows, in order."""
    if not len(pairs):
        return pairs
    second, process = pairs.T
    lowest = process.min()
    width = process.max() - lowest + 1
    keys = np.sort(second * width + process - lowest)
    keys = keys[np.append(True, keys[1:] != keys[:-1])]
    return np.stack([keys // width, keys % width + lowest], axis=1)


def _count_per_second(pairs: intervals.Int) -> intervals.Int:
    """Count the processes of each second; rows are distinct."""
    return np.unique(pairs[:, 0], return_counts=True)[1]


def _median(seconds: QuantileSketch) -> int:
    return int(seconds.quantiles([0.5])[0])


def _usage(node: _NodeState, state: _State) -> LoaderUsage:
    loaders = [state.loaders[rank] for rank in node.ranks if rank in state.loaders]
    p25, p50, p95 = node.loading.quantiles([0.25, 0.5, 0.95])
    counts, edges = np.histogram(node.loading.values / 1e9, bins=BINS, weights=node.loading.counts)
    return LoaderUsage(
        cores_available=node.cores,
        loader_process_count=None if node.by_threads else _median(node.processes_by_second()),
        has_workers=not loaders or any(_worker_count(loader) != 0 for loader in loaders),
        loading_p25_s=p25 / 1e9,
        loading_p50_s=p50 / 1e9,
        loading_p95_s=p95 / 1e9,
        loading_histogram=HistogramCounts(
            edges_s=edges.tolist(), counts=counts.astype(np.int64).tolist()
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataloaderBottleneckParameters(step_share.StepShareParameters):
    """Threshold of the time spent waiting for batches."""

    threshold: Percentage = 20.0
    """The rule fires if waits for batches take more of the step's wall time (%) than this."""


class DataWaitShare(step_share.RankShare, frozen=True, kw_only=True):
    """Share of waits for batches in the steps of one rank."""

    part_share_ratio: float = msgspec.field(default=0.0, name="data_wait_share_ratio")


class TraceDataWait(step_share.TraceShare, frozen=True, kw_only=True):
    """Waits for batches in one imported trace, as shares of step time."""

    data_wait_share_ratio: float = 0.0
    compute_share_ratio: float = 0.0
    has_workers: bool = True
    """False if the training process creates its batches itself (num_workers=0)."""


class DataloaderBottleneck(step_share.TracedShare[DataloaderBottleneckParameters, TraceDataWait]):
    """Checks whether training waits for its batches.

    ## What it checks
    For each rank, at the end of each scan, the share of waits for the input pipeline in the wall
    time of its last `window` steps. Only exposed waits count: loading that overlaps computation
    costs no time, and where phases were timed on the device, neither does a wait while the device
    is busy. The verdict also counts copies to the device and data preparation by the training
    thread, and leaves out waits that other processes on the cores cause. And in each imported
    trace, the share of step time in which a batch is fetched while the device has no work; windows
    of a watched job are part of its steps. Datapoints are steps and imported traces; violations are
    those whose share is above `threshold`.

    ## Why it matters
    While a step waits for its batch, the GPUs of the job idle. A share of loading below a fifth of
    the step is considered healthy.

    ## What to do
    `stepscope diagnose RUN` names the stage that takes the time. Cache decoded data, move
    augmentation to the GPU, use more workers with a larger prefetch_factor, and pin memory so that
    copies overlap.

    ## Where the numbers differ from SageMaker Debugger's
    Debugger has no rule of this name, although its users ask for it; its Dataloader rule only
    counts processes.
    """

    topic = "data loading"
    parameters_type = DataloaderBottleneckParameters
    recommendation = (
        "Cache decoded data or use more DataLoader workers; with GPUs, augment there and pin "
        "memory. `stepscope diagnose RUN` names the slow stage."
    )
    evidence = ("input-pipeline", "steps")
    plots = ("step", "data_wait")
    rank_type = DataWaitShare
    part = "waiting for batches"
    rests_on_devices = True
    missing_in_traces = NO_FETCHES_IN_TRACES

    def part_ns(self, steps: RankStepTimes) -> intervals.Int:
        return steps.phase_ns["data_wait"]

    def evaluate_trace(self, trace: RuleTrace) -> tuple[TraceDataWait, bool] | None:
        if trace.is_watched or trace.steps is None or trace.batches is None:
            return None
        details = TraceDataWait(
            rank=trace.rank,
            data_wait_share_ratio=trace.steps.share(["data_loader"]),
            compute_share_ratio=trace.steps.share(["compute"]),
            has_workers=trace.batches.has_workers,
        )
        return details, 100 * details.data_wait_share_ratio > self.parameters.threshold

    def trace_sentence(self, name: str, trace: TraceDataWait) -> str:
        creates = "" if trace.has_workers else " The training process creates its batches itself."
        share = share_beside(trace.data_wait_share_ratio, "step time", self.parameters.threshold)
        compute = percent(trace.compute_share_ratio, 1)
        return f"Trace {name}: {self.part} takes {share}, computation {compute}.{creates}"

    def require_inputs(self, state: RankStates[step_share.RankShareState, TraceDataWait]) -> None:
        if not state.traces.details:
            super().require_inputs(state)

    def sentences(
        self,
        state: RankStates[step_share.RankShareState, TraceDataWait],
        ranks: Ranks[step_share.RankShareState],
        triggered: Ranks[step_share.RankShareState],
    ) -> Iterable[str]:
        yield from super().sentences(state, ranks, triggered)
        for name, rank in self.rank_details(triggered).items():
            yield f"{name}: compute takes {percent(rank.compute_share_ratio, 1)} of step time."
