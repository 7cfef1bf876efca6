"""Read model of one run: its tables as typed arrays, loaded once, on first use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from stepscope import analysis, errors, intervals, quantities, schema, store
from stepscope.analysis import STEP_SOURCES
from stepscope.run.model.clock import ALWAYS, Period, RunClock, WatchedSteps, clock_of, windows_of
from stepscope.run.model.engine import Engine, StepTable, find_step_tables, split_by_node
from stepscope.run.model.metrics import NodeMetrics
from stepscope.run.model.operator_threads import waits_for_threads
from stepscope.run.model.process_tables import (
    MAX_CACHED_SAMPLES,
    MAX_CACHED_SPANS,
    ProcessTables,
    SizedCache,
)
from stepscope.run.model.tables import find_processes, profile_window
from stepscope.run.model.traces import Trace, load_traces

IDLE_GPU_RATIO = 0.05
"""A GPU that is busy for a smaller share of the time is not used by the job."""
MAX_CACHED_STEPS = 1_000_000
"""Limit of unpacked steps in memory; one takes about 130 bytes."""
FETCH_KINDS = ("fetch", "samples", "collate", "transform", "data_wait")
Derived = TypeVar("Derived")


@dataclass(frozen=True)
class Rank:
    """One training process and the figures derived from it."""

    run: Run
    process: schema.ProcessInfo
    table: StepTable
    name: str
    """`rank 3`, or `trainer` outside a distributed job."""

    @property
    def steps(self) -> analysis.Steps:
        """Steps of the process."""
        return self.run.unpack_steps(self)

    @property
    def extent(self) -> Period:
        """Time from the start of the first step to the end of the last one."""
        return Period(int(self.steps.start[0]), int(self.steps.end[-1]))

    @property
    def spans(self) -> analysis.Spans:
        """Phases, steps and other spans of the training thread."""
        return self.run.step_spans(self.process)

    @cached_property
    def waiting(self) -> analysis.DataWait:
        """Waiting time of the measured steps by reason."""
        if self.table.waiting is not None:
            return self.table.waiting
        return analysis.split_data_wait(self.spans, self.steps, self.steps.measured())

    @cached_property
    def late_batches(self) -> analysis.DataWait:
        """Waiting time by the reason for late batches."""
        wall_ns = int(self.steps.wall_ns[self.steps.measured()].sum())
        return analysis.charge_busy_workers(self.waiting, self.making, wall_ns)

    @cached_property
    def making(self) -> analysis.BatchCreation | None:
        """Creation of the training batches; None where it was not recorded."""
        return analysis.measure_batch_creation(self.run.fetchers_of(self.process), self.steps)

    @cached_property
    def core_delays(self) -> analysis.CoreDelays | None:
        """Time without a core in the measured steps; None where not recorded."""
        delays = self.run.core_delays(self.process)
        if delays is None:
            return None
        threads = self.waiting_threads if waits_for_threads(self.process) else 0.0
        return analysis.measure_core_delays(self.spans, delays, self.steps, threads)

    @cached_property
    def waiting_threads(self) -> float:
        """Mean number of other threads that compute but have no core; 0 where not sampled."""
        metrics = self.run.metrics.get(self.process.node)
        if metrics is None or not len(self.steps):
            return 0.0
        during = metrics.between(*self.extent)
        return during.mean("process_waiting_threads", str(self.process.pid)) or 0.0

    @cached_property
    def host_work(self) -> analysis.HostWork | None:
        """Work of the training thread between phases; None without stack samples."""
        samples = self.run.stack_samples(self.process)
        if not len(samples.t_ns):
            return None
        return analysis.attribute_host_work(self.spans, samples, self.steps)

    @cached_property
    def profiler_lines(self) -> dict[tuple[str, int], float]:
        """Lines that use PyTorch's profiler; see `analysis.measure_profiler_lines`."""
        samples = self.run.stack_samples(self.process)
        return analysis.measure_profiler_lines(samples, self.spans, self.steps)

    @cached_property
    def compute_profile(self) -> analysis.ComputeProfile | None:
        """Compute phases as seen in a profiler window; None without one."""
        trace = self.run.window_of(self.process)
        windows = self.window_extent(trace) if trace is not None else intervals.EMPTY
        if trace is None or not len(windows.start):
            return None
        return profile_window(trace, self.spans, self.steps, windows)

    def window_extent(self, trace: Trace) -> intervals.Intervals:
        """Return when a window of this process was open, or of imported files, the steps that the
        trace is in; empty where not recorded."""
        if self.facts(schema.ImportedFact):
            inside = (self.steps.start < trace.end_ns) & (self.steps.end > trace.start_ns)
            return intervals.union(
                intervals.Intervals(self.steps.start[inside][:1], self.steps.end[inside][-1:])
            )
        spans = self.spans.of("window")
        return intervals.union(spans.take(spans.value == trace.window).intervals)

    def steps_in(self, trace: Trace) -> WatchedSteps:
        """Return the steps of a window of this process; see `analysis.steps_of_window`."""
        numbers, extent = analysis.select_window_steps(
            self.spans, self.steps, self.window_extent(trace)
        )
        window = trace.window_facts
        # Where several optimizers take turns, the process counts more steps than there are.
        if window is not None and window.step_count == len(numbers):
            numbers = window.first_step + np.arange(len(numbers))
        return WatchedSteps(numbers.tolist(), extent)

    def facts(self, kind: type[schema.FactT]) -> list[schema.FactT]:
        """Return the facts of one kind, in the order of their recording."""
        return self.process.facts_of(kind)

    @cached_property
    def loader(self) -> schema.DataLoaderFact | None:
        """The DataLoader that feeds training: the one that the measured steps waited on most."""
        loaders = {loader.name: loader for loader in self.facts(schema.DataLoaderFact)}
        waits = self.spans.of("data_wait")
        outside = ~intervals.contains(self.steps.evaluation, waits.start)
        counts = np.bincount(waits.name[outside], minlength=len(waits.names))
        for code in np.argsort(-counts, kind="stable"):
            if counts[code] and waits.names[code] in loaders:
                return loaders[waits.names[code]]
        return None


class Run:
    """Read model of one run, whole or restricted to a range of time; see `within`.

    Of a range count the events, steps, batches, stack samples and node samples that start in it,
    with their full duration. So the parts of a step still sum to it, and adjacent ranges share
    nothing. For figures of covered time, such as device busy time, work is clipped to the range.

    Args:
        reader: the run; it may still be growing; values are those of the first read.
        whole_run: the run without the range; None for this one.
        period: the range.
        engine: where parts of the run are read.
    """

    def __init__(
        self,
        reader: store.RunReader,
        *,
        whole_run: Run | None = None,
        period: Period = ALWAYS,
        engine: Engine | None = None,
    ) -> None:
        self.reader = reader
        self.opened_ns = time.time_ns()  # files that change later are not those of this model
        self.whole_run = whole_run or self
        self.period = period
        self.engine: Engine = engine or Engine()
        self._tables: ProcessTables = whole_run._tables if whole_run else ProcessTables(reader)
        self._step_cache = SizedCache[analysis.Steps](MAX_CACHED_STEPS)
        self._step_spans = SizedCache[analysis.Spans](MAX_CACHED_SPANS)
        self._samples = SizedCache[analysis.StackSamples](MAX_CACHED_SAMPLES)
        self._delays: dict[str, analysis.Spans | None] = {}
        self._derived: dict[Callable[[Run], Any], Any] = {}

    @property
    def is_whole(self) -> bool:
        """True without a range."""
        return self.whole_run is self

    def within(self, from_ns: int | None, to_ns: int | None) -> Run:
        """Return the run restricted to a range of time.

        Args:
            from_ns, to_ns: nanoseconds after the run's origin; None for the extent of the run.

        Raises:
            UsageError: the range ends before it starts.
        """
        if from_ns is not None and to_ns is not None and to_ns <= from_ns:
            raise errors.UsageError(
                f"The range ends before it starts, at {quantities.duration(to_ns)}."
            )
        origin_ns = self.clock.origin_ns
        end_ns = self.clock.end_ns + 1 if to_ns is None else origin_ns + to_ns
        return self.between(origin_ns + (from_ns or 0), end_ns)

    def between(self, start_ns: int, end_ns: int) -> Run:
        """Return the run restricted to a range of epoch nanoseconds, the end exclusive."""
        period = Period(start_ns, end_ns)
        return Run(self.reader, whole_run=self.whole_run, period=period, engine=self.engine)

    def reread(self, reader: store.RunReader) -> Run:
        """Return the same run or range, which reads everything again."""
        run = Run(reader, engine=self.engine)
        return run if self.is_whole else run.between(*self.period)

    @cached_property
    def processes(self) -> list[schema.ProcessInfo]:
        """Processes of the job that recorded something of it, by rank."""
        if not self.is_whole:
            return self.whole_run.processes
        job = [p for p in self.reader.processes() if p.role not in {"monitor", "program"}]
        return sorted(job, key=lambda p: (p.rank if p.rank is not None else -1, p.pid))

    @cached_property
    def is_imported(self) -> bool:
        """True if the run is of files of other tools, so that nothing more can be recorded."""
        return any(p.facts_of(schema.ImportedFact) for p in self.reader.processes()) or any(
            trace.process is None for trace in self.whole_run.traces
        )

    @cached_property
    def nodes(self) -> dict[str, schema.NodeInfo]:
        """Nodes by name."""
        return self.reader.nodes()

    @cached_property
    def ranks(self) -> list[Rank]:
        """Those of `all_ranks` in the latest incarnation: starts of a job do not mix."""
        latest = max((rank.process.incarnation for rank in self.all_ranks), default=1)
        return [rank for rank in self.all_ranks if rank.process.incarnation == latest]

    @property
    def has_ranks(self) -> bool:
        """True once `all_ranks` are known."""
        return "all_ranks" in self.__dict__

    @cached_property
    def all_ranks(self) -> list[Rank]:
        """Training processes with at least one complete step that starts in the range."""
        if not self.is_whole:
            return [
                replace(rank, run=self, table=StepTable(analysis.pack_steps(steps)))
                for rank in self.whole_run.all_ranks
                if len(steps := rank.steps.starting_within(*self.period))
            ]
        # In a job with optimizers, other processes may only compute gradients for them.
        ranks = (self._find_ranks(kinds) for kinds in STEP_SOURCES)
        return next(filter(None, ranks), [])

    def _find_ranks(self, end_kinds: tuple[str, ...]) -> list[Rank]:
        """Find the training processes by the kinds of spans that end their steps."""
        processes = [process for process in self.processes if process.role == "main"]
        tables = self.engine.map(
            self,
            partial(find_step_tables, end_kinds=end_kinds),
            split_by_node(processes),
            tables=("spans",),
        )
        ranks = {process: table for part in tables for process, table in part.items()}
        names = schema.name_processes(processes)
        stepping = [p for p in processes if p.process in ranks]
        return [Rank(self, p, ranks[p.process], names[p.process]) for p in stepping]

    def unpack_steps(self, rank: Rank) -> analysis.Steps:
        """Return the steps of a rank of this run."""
        return self._step_cache.get(rank.process.process, rank.table.steps.unpack)

    @cached_property
    def measured_step_ns(self) -> intervals.Int:
        """Durations of the measured steps of all ranks, rank by rank."""
        durations = [rank.steps.duration_ns[rank.steps.measured()] for rank in self.ranks]
        return np.concatenate([*durations, np.empty(0, dtype=np.int64)])

    @cached_property
    def mean_step_ns(self) -> float:
        """Mean wall time of the measured steps of all ranks; NaN without any."""
        walls = [rank.steps.wall_ns[rank.steps.measured()] for rank in self.ranks]
        return float(np.concatenate([*walls, np.empty(0, dtype=np.int64)]).mean())

    @cached_property
    def compute_profile(self) -> analysis.ComputeProfile | None:
        """Profile of the first rank with a window, used for all ranks; None without one."""
        return next((p for rank in self.ranks if (p := rank.compute_profile) is not None), None)

    @cached_property
    def clock(self) -> RunClock:
        """Clock of the run: extent and origin of times."""
        return clock_of(self.reader) if self.is_whole else self.whole_run.clock

    @cached_property
    def traces(self) -> list[Trace]:
        """Traces that reach into the range: windows of the job, or imported files."""
        if self.is_whole:
            return load_traces(self.reader, windows_of(self.processes))
        near = []
        for trace in self.whole_run.traces:
            shift_ns = self.clock.shift_ns(trace.trace)
            within = (self.period.start_ns - shift_ns, self.period.end_ns - shift_ns)
            if trace.start_ns < within[1] and trace.end_ns >= within[0]:
                near.append(replace(trace, within=within))
        return near

    @property
    def left_out(self) -> list[Trace]:
        """Traces that do not reach into the range."""
        here = {trace.trace for trace in self.traces}
        return [trace for trace in self.whole_run.traces if trace.trace not in here]

    def derive(self, make: Callable[[Run], Derived]) -> Derived:
        """Return `make(self)`, computed once: state of a run that a package above keeps."""
        if make not in self._derived:
            self._derived[make] = make(self)
        derived: Derived = self._derived[make]
        return derived

    def steps_in(self, trace: Trace) -> WatchedSteps:
        """Return the steps of a window that start in the range; none for an imported trace."""
        rank = self.whole_run.rank_of(trace)
        if rank is None:
            return WatchedSteps([], intervals.EMPTY)
        return rank.steps_in(trace).starting_in(self.period)

    def rank_of(self, trace: Trace) -> Rank | None:
        """Return the rank of a window; None for an imported trace or a process without steps."""
        return next((r for r in self.all_ranks if r.process.process == trace.process), None)

    @cached_property
    def metrics(self) -> dict[str, NodeMetrics]:
        """Samples by node."""
        return {
            node: NodeMetrics(self.reader, info, self.period) for node, info in self.nodes.items()
        }

    def mean_over_nodes(self, metric: str) -> float | None:
        """Compute the mean over nodes of the mean over devices; None where never sampled."""
        return analysis.average_present(
            metrics.mean_over_devices(metric) for metrics in self.metrics.values()
        )

    @cached_property
    def _training_metrics(self) -> NodeMetrics | None:
        """Samples of the first rank's node during its training; None without ranks or samples."""
        if not self.ranks:
            return None
        first = self.ranks[0]
        metrics = self.metrics.get(first.process.node)
        if metrics is None:
            return None
        return metrics.between(*first.extent)

    @cached_property
    def contention(self) -> analysis.Contention | None:
        """CPU contention on the first rank's node during training; None without samples."""
        during = self._training_metrics
        if during is None:
            return None
        node = self.ranks[0].process.node
        pids = [rank.process.pid for rank in self.ranks if rank.process.node == node]
        return analysis.measure_contention(during, pids)

    def process_cores(self, process: schema.ProcessInfo) -> float | None:
        """Compute the mean cores that a process used during training; None without samples."""
        during = self._training_metrics
        if during is None or process.node != self.ranks[0].process.node:
            return None
        return during.mean("process_cpu_cores", str(process.pid))

    def workers_of(self, process: schema.ProcessInfo) -> list[schema.ProcessInfo]:
        """Return the DataLoader workers of a training process."""
        parent = (process.node, process.pid)
        workers = [p for p in self.processes if p.role == "dataloader_worker"]
        return [worker for worker in workers if (worker.node, worker.parent_pid) == parent]

    def workers_without_core(self, rank: Rank) -> float:
        """Compute the share of time in which the rank's workers had work but no core."""
        if rank.making is not None and rank.making.without_core_ratio is not None:
            return rank.making.without_core_ratio
        metrics = self.metrics.get(rank.process.node)
        if metrics is None:
            return 0.0
        pids = [str(worker.pid) for worker in self.workers_of(rank.process)]
        ratios = (metrics.mean("process_runqueue_ratio", pid) for pid in pids)
        return analysis.average_present(ratios) or 0.0

    @cached_property
    def busy_devices(self) -> float | None:
        """Mean busy share of the GPUs in use; without GPUs, cores used by a training process."""
        during = self._training_metrics
        if during is None:
            return None
        gpus = [during.mean("gpu_busy_ratio", gpu) for gpu in during.devices_of("gpu_busy_ratio")]
        if used := [ratio for ratio in gpus if ratio is not None and ratio >= IDLE_GPU_RATIO]:
            return float(np.mean(used))
        return during.mean("process_cpu_cores", str(self.ranks[0].process.pid))

    @cached_property
    def cores_available(self) -> float | None:
        """Cores available to the job on the first rank's node."""
        node = self.nodes.get(self.ranks[0].process.node) if self.ranks else None
        return node.cores_available if node else None

    def step_spans(self, process: schema.ProcessInfo) -> analysis.Spans:
        """Return the spans by which steps are found; of a range those that reach into its steps."""
        if self.is_whole:
            return self._tables.step_spans(process)
        return self._step_spans.get(process.process, partial(self._select_step_spans, process))

    def _select_step_spans(self, process: schema.ProcessInfo) -> analysis.Spans:
        rank = next((r for r in self.all_ranks if r.process.process == process.process), None)
        if rank is not None:
            return self._tables.step_spans_near(process, rank.extent)
        # Those without a duration reach into the nanosecond before them.
        near = Period(self.period.start_ns - 1, self.period.end_ns)
        spans = self._tables.step_spans_near(process, near)
        return spans.take(self.period.contains(spans.start))

    def cache_step_spans(self, processes: Sequence[schema.ProcessInfo]) -> None:
        """Read the spans by which steps are found, of processes of one node, together."""
        self._tables.cache_step_spans(processes)

    def fetchers_of(self, process: schema.ProcessInfo) -> Iterator[analysis.Fetcher]:
        """Yield the processes that create batches for one training process, itself included.

        Of a range the batches that were started in it, with all their spans and samples.
        """
        near = ALWAYS
        if not self.is_whole:
            extent = next(r.extent for r in self.all_ranks if r.process.process == process.process)
            near = Period(extent.start_ns - analysis.MAX_LEAD_NS, extent.end_ns)
        candidates = [process, *self.workers_of(process)]
        for candidate in [p for p in candidates if p.process in self._fetching]:
            spans = self._tables.spans(candidate, FETCH_KINDS, near)
            ending = near
            if not self.is_whole:
                ending = near.between(None, max(near.end_ns, int(spans.end.max(initial=0)) + 1))
            thinned = candidate.facts_of(schema.ThinnedFact)
            yield analysis.Fetcher(
                process=candidate.process,
                worker=candidate is not process,
                spans=spans.take(~spans.is_kind("fetch") | self.period.contains(spans.start)),
                samples=self._tables.samples(candidate, ending),
                detailed_every=max((fact.detailed_every for fact in thinned), default=1),
                delays=self._tables.delays(candidate, ending),
            )

    @cached_property
    def _fetching(self) -> set[str]:
        """Names of the processes that created batches in the range."""
        return find_processes(self.reader, ("fetch",), self.period)

    def core_delays(self, process: schema.ProcessInfo) -> analysis.Spans | None:
        """Return the times without a core of the sampled thread; None where not recorded."""
        if self.is_whole:
            return self._tables.delays(process, ALWAYS)
        if process.process not in self._delays:
            delays = self._tables.delays(process, self.period)
            if delays is not None:
                delays = delays.take(self.period.contains(delays.start))
            self._delays[process.process] = delays
        return self._delays[process.process]

    def stack_samples(self, process: schema.ProcessInfo) -> analysis.StackSamples:
        """Read the stack samples of one process in the range, weighted by the time in which the
        thread did not wait for a core. Those of its start are not among them."""
        if self.is_whole:
            return self._tables.samples(process, ALWAYS)
        read = partial(self._tables.samples, process, self.period)
        return self._samples.get(process.process, read)

    def window_of(self, process: schema.ProcessInfo) -> Trace | None:
        """Return the first profiler window of a process, in the range or not; None without one."""
        windows = [trace for trace in self.whole_run.traces if trace.process == process.process]
        return min(windows, key=lambda trace: trace.start_ns, default=None)
