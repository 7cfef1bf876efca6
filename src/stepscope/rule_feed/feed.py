"""Inputs of rules from a run, finished or growing, in ranges of time.

    feed = RuleFeed(reader)
    for inputs in feed.ranges(final=False):    # complete and new since the last call
        evaluation.feed(inputs)

A range is read when a rule uses it. Only rows of incomplete steps are read twice, so the cost of a
scan of a growing run is that of its new data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property

import numpy as np

from stepscope import analysis, rules, schema, store
from stepscope.rule_feed.steps import NewRows, StepFinder, StepRows, read_modes
from stepscope.rule_feed.traces import StoredRuleTrace
from stepscope.run import (
    EndedSpans,
    Period,
    Run,
    find_next_record,
    find_stack_samples,
    has_records,
    load_traces,
    read_ended_spans,
    read_series,
    read_tensors,
    reading_ahead,
    sampling_period_ns,
)

DEFAULT_SCAN_NS = 60_000_000_000
SCANS_AT_ONCE = 60
"""Scans of a long run that are read together."""
LAG_NS = 2_000_000_000
"""Samples this close before the latest one may not have been written yet."""
ALIVE_NS = 60_000_000_000
"""A node without a heartbeat for longer is not waited for."""
MAX_DURATION_NS = 600_000_000_000
"""Batches and compilations that take longer are not found."""
_COMPUTED_NAMES = ("steps", "batches", "compiler_time", "compilations")
_USUAL_NAMES = frozenset({*_COMPUTED_NAMES, rules.RULE_METRICS[0]})
COMPILER_FRAMES = ("%torch/_dynamo/convert_frame%", "%torch/_inductor/compile_fx%")


class RuleFeed:
    """A run as consecutive ranges of time, each returned once.

    Args:
        reader: the run; it may be growing.
        scan_ns: length of a scan; ranges end at scan borders, except the last one.
        inputs_reader: another reader of the run for the inputs alone, which shows what rules read.
    """

    def __init__(
        self,
        reader: store.RunReader,
        *,
        scan_ns: int = DEFAULT_SCAN_NS,
        inputs_reader: store.RunReader | None = None,
    ) -> None:
        self.reader = reader
        self.inputs_reader = inputs_reader or reader
        self.scan_ns = scan_ns
        self._origin_ns: int | None = None
        self._cursor_ns: int | None = None
        self._steps = StepFinder(self.inputs_reader)
        self._rows = NewRows()
        self._used: frozenset[str] = frozenset()
        self._returned_traces: set[int] = set()

    def ranges(self, *, final: bool) -> Iterator[RangeInputs]:
        """Yield the new ranges since the last call, oldest first; none while no scan is complete.

        Args:
            final: the run will not grow, or is evaluated as it is: the last scan may be shorter.
        """
        start = self._start_ns()
        if start is None:
            return
        end = self._last_ns(start) + 1 if final else self._complete_until(start)
        if start >= end:
            return
        usual_names = frozenset() if final else _USUAL_NAMES
        with ThreadPoolExecutor(1) as executor:
            names = self._used or usual_names
            inputs = self._read(start, end, data_ns=start, final=final, names=names)
            while True:
                is_last = inputs.end_ns >= end
                # The next range is read while rules evaluate this one, except in a growing run: its
                # next range may cover more than is written now.
                reads_ahead = final and not is_last
                if reads_ahead:
                    names = self._used - {"steps"}
                    start = inputs.end_ns
                    next_inputs = executor.submit(
                        self._following, start, end, final=final, names=names
                    )
                    if "steps" in self._used:
                        _ = inputs.steps  # the next steps start where these end
                        next_inputs = executor.submit(_with_steps, next_inputs)
                yield inputs
                self._cursor_ns, self._used = inputs.end_ns, inputs.used
                if is_last:
                    return
                if reads_ahead:
                    inputs = next_inputs.result()
                else:
                    names = self._used or usual_names
                    inputs = self._following(inputs.end_ns, end, final=final, names=names)

    def _following(
        self, start: int, end: int, *, final: bool, names: frozenset[str]
    ) -> RangeInputs:
        data_ns = self._grid(self._next_data(start, end))
        return self._read(start, end, data_ns=data_ns, final=final, names=names)

    def _read(
        self, start: int, end: int, *, data_ns: int, final: bool, names: frozenset[str]
    ) -> RangeInputs:
        """Read a range, with the inputs that rules used of the previous one.

        If it cannot be read, no rule has seen a part of it.

        Args:
            start: end of the previous range: an event that started before a pause may end in it.
            end: end of the last range.
            data_ns: start of the first scan with samples.
            final: see `ranges`.
            names: see `RangeInputs.read`.
        """
        range_end_ns = min(end, data_ns + SCANS_AT_ONCE * self.scan_ns)
        inputs = RangeInputs(
            self, start, range_end_ns, self._steps, self._rows, final=final and range_end_ns == end
        )
        inputs.read(names)
        return inputs

    def from_start(self, until_ns: int) -> RangeInputs:
        """Return the run from its start, read again."""
        origin = self.origin_ns
        finder = StepFinder(self.inputs_reader)
        return RangeInputs(self, origin, until_ns, finder, NewRows(), final=True)

    @property
    def origin_ns(self) -> int:
        """Start of the job in epoch nanoseconds, or the creation of its run, if that is earlier; 0
        while unknown.

        The creation is known before any record. The job may have records from before its monitor
        was ready, which are written after the first scan.
        """
        if self._origin_ns is None:
            started = [status.started_ns for status in self.reader.statuses().values()]
            if started:
                started.append(self.reader.info.created_ns)
            sampled = [times["t_ns"][0] for times in self.reader.times("metrics").values()]
            spans = [times["start_ns"][0] for times in self.reader.times("spans").values()]
            logged = [first for first, _ in self._logged_times()]
            traces = [trace.start_ns for trace in load_traces(self.reader)]
            candidates = [t for t in (*started, *sampled, *spans, *logged, *traces) if t > 0]
            if not candidates:
                return 0
            self._origin_ns = min(candidates)
        return self._origin_ns

    def unseen_traces(self) -> list[rules.RuleTrace]:
        """Traces that were not returned before."""
        traces = load_traces(self.inputs_reader)
        new_traces = [trace for trace in traces if trace.trace not in self._returned_traces]
        self._returned_traces.update(trace.trace for trace in new_traces)
        new_traces.sort(
            key=lambda trace: (trace.end_ns, trace.name)
        )  # the order in which rules evaluate them
        return [StoredRuleTrace(trace) for trace in reading_ahead(new_traces)]

    def _start_ns(self) -> int | None:
        if self._cursor_ns is None:
            self._cursor_ns = self.origin_ns or None
        return self._cursor_ns

    def _grid(self, t_ns: int) -> int:
        """Return the start of the scan that contains a time."""
        return t_ns - (t_ns - self.origin_ns) % self.scan_ns

    def _next_data(self, start: int, end: int) -> int:
        """Find the next sample or span: a clock that jumps leaves years without any."""
        if has_records(self.reader, Period(start, start + self.scan_ns)):  # usually it is here
            return start
        next_ns = find_next_record(self.reader, Period(start, end))
        return end - 1 if next_ns is None else next_ns

    def _last_ns(self, start: int) -> int:
        """Find the latest time in the run."""
        times_by_file = [
            *self.reader.times("metrics").values(),
            *self.reader.times("spans").values(),
        ]
        written = [last for times in times_by_file for _, last in times.values()]
        written += [last for _, last in self._logged_times()]
        ends = [trace.end_ns for trace in load_traces(self.reader)]
        return max([start - 1, *written, *ends])

    def _logged_times(self) -> list[tuple[int, int]]:
        """List the times of the first and last tensors and scalars."""
        tables = ("tensor_statistics", "tensor_values", "scalars")
        by_file = [times for table in tables for times in self.reader.times(table).values()]
        return [times["t_ns"] for times in by_file]

    def _complete_until(self, start: int) -> int:
        """Find the end of the last scan that every live node has written completely."""
        statuses = self.reader.statuses()
        lag_ns = min(LAG_NS, self.scan_ns // 2)
        ends = [status.end_ns for status in statuses.values() if status.end_ns is not None]
        if ends and len(ends) == len(statuses) and self._grid(max(ends) - lag_ns) <= start:
            return start  # no sample is later than the status of its node
        sampled = self.reader.times("metrics")
        last = {node: times["t_ns"][1] for node, times in sampled.items()}
        latest = {node: t_ns for node, t_ns in last.items() if t_ns >= start}
        latest_heartbeat_ns = max((status.heartbeat_ns for status in statuses.values()), default=0)
        alive = [
            node
            for node, status in statuses.items()
            if not status.state.is_final and status.heartbeat_ns >= latest_heartbeat_ns - ALIVE_NS
        ]
        newest = max(latest.values(), default=start)
        # A node whose monitor is alive but whose samples do not arrive is not waited for either.
        reached_ns = [max(latest.get(node, start), newest - ALIVE_NS) for node in alive]
        reached_ns = reached_ns or list(latest.values())
        until_ns = min(reached_ns, default=start) - lag_ns
        return max(start, self._grid(until_ns))


class RangeInputs:
    """Implementation of `stepscope.rules.RuleInputs` for one range of a run."""

    def __init__(
        self,
        feed: RuleFeed,
        start_ns: int,
        end_ns: int,
        finder: StepFinder,
        rows: NewRows,
        *,
        final: bool,
    ) -> None:
        self._feed = feed
        self.run = Run(feed.inputs_reader).between(start_ns, end_ns)
        self.origin_ns = feed.origin_ns
        self.scan_ns = feed.scan_ns
        self.start_ns, self.end_ns = self.run.period
        self._finder = finder
        self._rows = rows
        self._final = final
        self._step_rows: StepRows | None = None
        self._series: dict[str, dict[analysis.Device, analysis.Series]] = {}
        self._values: dict[str, list[analysis.TensorValues]] = {}

    @property
    def is_imported(self) -> bool:
        """True if the run is of files of other tools."""
        return self.run.is_imported

    @property
    def nodes(self) -> dict[str, schema.NodeInfo]:
        """Nodes by name."""
        return self.run.nodes

    @property
    def processes(self) -> list[schema.ProcessInfo]:
        """Training processes."""
        return self._training_processes

    @cached_property
    def steps(self) -> list[rules.RankStepTimes]:
        """Steps that ended before the end of the range and were not returned before."""
        rows, self._step_rows = self._step_rows or self._read_steps(), None
        return self._finder.find(rows)

    @cached_property
    def modes(self) -> list[rules.ModeTimes]:
        """Steps that imported files record as ranges, and that started in the range, by mode."""
        return read_modes(self.run.reader, self._training_processes, self.run.period)

    @cached_property
    def settled_steps(self) -> list[rules.RankStepTimes]:
        """Steps of this or an earlier range whose exposed exchange became known, or will not."""
        _ = self.steps
        return self._finder.unsettled.settle(self.end_ns, final=self._final)

    def _read_steps(self) -> StepRows:
        return self._finder.read(self._training_processes, self.end_ns, final=self._final)

    @cached_property
    def traces(self) -> list[rules.RuleTrace]:
        """Traces that were not returned before."""
        return self._feed.unseen_traces()

    @cached_property
    def tensors(self) -> list[analysis.TensorSeries]:
        """Statistics of tensors that were not returned before."""
        return self._rows.tensors(self.run, final=self._final)

    @cached_property
    def scalars(self) -> list[analysis.LoggedScalars]:
        """Losses and other logged values that were not returned before."""
        return self._rows.scalars(self.run, final=self._final)

    def values_of(self, collection: str) -> list[analysis.TensorValues]:
        """Return the small matrices of a collection that were not returned before."""
        if collection not in self._values:
            self._values[collection] = self._rows.values(self.run, collection, final=self._final)
        return self._values[collection]

    def tensors_of(self, run: str) -> list[analysis.TensorSeries]:
        """Return the statistics of the tensors of another run.

        Raises:
            StepscopeError: there is no such run, or it cannot be read.
        """
        return read_tensors(Run(store.open_run(run)))

    @cached_property
    def batches(self) -> list[rules.Batches]:
        """Batches whose creation ended in the range."""
        pids = {process.process: process.pid for process in self.run.processes}
        threaded = {p.process for p in self.run.processes if _creates_in_threads(p)}
        by_node: dict[str, list[EndedSpans]] = {}
        for spans in read_ended_spans(
            self.run.reader, "fetch", self.run.period, max_ns=MAX_DURATION_NS
        ):
            by_node.setdefault(spans.node, []).append(spans)
        return [
            rules.Batches(
                node=node,
                start_ns=np.concatenate([part.start_ns for part in parts]),
                duration_ns=np.concatenate([part.duration_ns for part in parts]),
                process=np.repeat(
                    [pids.get(part.process, -1) for part in parts],
                    [len(part.start_ns) for part in parts],
                ),
                by_threads=all(part.process in threaded for part in parts),
            )
            for node, parts in by_node.items()
        ]

    @cached_property
    def compiler_time(self) -> dict[str, analysis.Series]:
        """Stack samples in torch's compiler by rank, each with the time it represents."""
        times = find_stack_samples(self.run.reader, COMPILER_FRAMES, self.run.period)
        names = schema.name_processes(self._training_processes)
        series: dict[str, list[analysis.Series]] = {}
        for process in self._training_processes:
            if process.process in times:  # a restarted rank has two processes
                t_ns = times[process.process]
                weight = np.full(len(t_ns), float(sampling_period_ns(process) or 1))
                series.setdefault(names[process.process], []).append(analysis.Series(t_ns, weight))
        return {rank: analysis.merge_series(parts) for rank, parts in series.items()}

    @cached_property
    def compilations(self) -> dict[str, dict[str, analysis.Series]]:
        """Compilations that ended in the range, by rank and name."""
        names = schema.name_processes(self._training_processes)
        parts: dict[str, dict[str, list[analysis.Series]]] = {}
        for spans in read_ended_spans(
            self.run.reader, "compile", self.run.period, max_ns=MAX_DURATION_NS
        ):
            if spans.process in names:  # a restarted rank has two processes
                by_name = parts.setdefault(names[spans.process], {})
                series = analysis.Series(spans.start_ns, spans.duration_ns.astype(np.float64))
                by_name.setdefault(spans.name, []).append(series)
        return {
            rank: {name: analysis.merge_series(series) for name, series in by_name.items()}
            for rank, by_name in parts.items()
        }

    def series(self, metric: str) -> Mapping[analysis.Device, analysis.Series]:
        """Return the samples of a metric by device."""
        if metric not in self._series:
            metrics = rules.RULE_METRICS if metric in rules.RULE_METRICS else (metric,)
            self._series |= read_series(self.run.reader, metrics, self.run.period)
        return self._series[metric]

    @property
    def used(self) -> frozenset[str]:
        """Names of the inputs that rules used: those that are computed once, and metrics."""
        computed = {name for name in _COMPUTED_NAMES if name in self.__dict__}
        return frozenset({*computed, *self._series})

    def read(self, names: frozenset[str]) -> None:
        """Read inputs ahead, by the names of `used`."""
        for name in sorted(names):
            if name == "steps":
                self._step_rows = self._read_steps()
            elif name in _COMPUTED_NAMES:
                getattr(self, name)
            else:
                self.series(name)

    def from_start(self) -> RangeInputs:
        """Return the inputs from the start of the run to the end of this range."""
        return self._feed.from_start(self.end_ns)

    @property
    def _training_processes(self) -> list[schema.ProcessInfo]:
        return [process for process in self.run.processes if process.role == "main"]


def _creates_in_threads(process: schema.ProcessInfo) -> bool:
    """Return True for a training process of imported files whose batches no DataLoader creates, as
    with TensorFlow."""
    is_training = process.role == "main" and bool(process.facts_of(schema.ImportedFact))
    return is_training and not process.facts_of(schema.DataLoaderSettingsFact)


def _with_steps(reading: Future[RangeInputs]) -> RangeInputs:
    """Add the rows of steps to a range, once the rest of it has been read."""
    inputs = reading.result()
    inputs.read(frozenset({"steps"}))
    return inputs
