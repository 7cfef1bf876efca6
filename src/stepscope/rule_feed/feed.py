"""Signals of rules over a run directory, finished or growing.

    feed = RunFeed(reader)
    for signals in feed.ranges(final=False):    # what is complete and new since the last call
        evaluation.feed(signals)

A range is read when a rule asks for it, and reads no row of another range but of steps that were
not complete: a scan of a growing run costs what its new data cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Int
from stepscope.rule_feed.steps import StepFinder, StepRows
from stepscope.rule_feed.traces import TraceRecording
from stepscope.rules import RULE_METRICS, Batches, Device, RankStepTimes, RuleTrace, Series
from stepscope.run import load_traces, reading_ahead
from stepscope.schema import NodeInfo, ProcessInfo, StackSamplerFact
from stepscope.store import RunReader

DEFAULT_SCAN_NS = 60_000_000_000
SCANS_AT_ONCE = 60
"""Of a long run so many scans are read at a time."""
LAG_NS = 2_000_000_000
"""What a node sampled so shortly before its latest sample may not have been written yet."""
ALIVE_NS = 60_000_000_000
"""A node whose monitor has been silent for longer is not waited for."""
LONGEST_BATCH_NS = 600_000_000_000
_USUALLY_ASKED = frozenset({"steps", "batches", "compiler_time", RULE_METRICS[0]})
COMPILER_FRAMES = ("%torch/_dynamo/convert_frame%", "%torch/_inductor/compile_fx%")


class RunFeed:
    """Hands out a run in ranges of time, each once.

    Args:
        reader: the run; it may be growing.
        scan_ns: length of a scan; ranges end where scans do, but for the last one.
    """

    def __init__(self, reader: RunReader, *, scan_ns: int = DEFAULT_SCAN_NS) -> None:
        self.reader = reader
        self.scan_ns = scan_ns
        self._origin_ns: int | None = None
        self._cursor_ns: int | None = None
        self._steps = StepFinder(reader)
        self._asked: frozenset[str] = frozenset()
        self._traces_seen: set[int] = set()

    def ranges(self, *, final: bool) -> Iterator[RangeSignals]:
        """What is new since the last call, oldest first; nothing when no scan is complete.

        Args:
            final: the run will not grow any more, or is taken as it is: the last scan may be cut
                short.
        """
        begin = self._begin_ns()
        if begin is None:
            return
        end = self._last_ns(begin) + 1 if final else self._complete_until(begin)
        if begin >= end:
            return
        usual = frozenset() if final else _USUALLY_ASKED
        with ThreadPoolExecutor(1) as beside:
            wanted = self._asked or usual
            signals = self._read(begin, end, data_ns=begin, final=final, wanted=wanted)
            while True:
                done = signals.end_ns >= end
                # The next range is read while steps are found in this one and rules look at it. Not
                # of a run that grows: what is handed out next may then be more than there is now.
                ahead = final and not done
                if ahead:
                    wanted = self._asked - {"steps"}
                    begin = signals.end_ns
                    following = beside.submit(
                        self._following, begin, end, final=final, wanted=wanted
                    )
                    if "steps" in self._asked:
                        _ = signals.steps  # the next ones are read from where these end
                        following = beside.submit(_with_steps, following)
                yield signals
                self._cursor_ns, self._asked = signals.end_ns, signals.asked
                if done:
                    return
                if ahead:
                    signals = following.result()
                else:
                    wanted = self._asked or usual
                    signals = self._following(signals.end_ns, end, final=final, wanted=wanted)

    def _following(
        self, begin: int, end: int, *, final: bool, wanted: frozenset[str]
    ) -> RangeSignals:
        data_ns = self._grid(self._next_data(begin, end))
        return self._read(begin, end, data_ns=data_ns, final=final, wanted=wanted)

    def _read(
        self, begin: int, end: int, *, data_ns: int, final: bool, wanted: frozenset[str]
    ) -> RangeSignals:
        """A range, with what was asked for of the one before: should it not be readable, no rule
        has seen a part of it yet.

        Args:
            begin: where the one before ended: what began before a pause may end in it.
            end: where the last range ends.
            data_ns: beginning of the first scan with samples.
            final: as `ranges` has it.
            wanted: as `RangeSignals.read` has it.
        """
        until = min(end, data_ns + SCANS_AT_ONCE * self.scan_ns)
        signals = RangeSignals(self, begin, until, self._steps, final=final and until == end)
        signals.read(wanted)
        return signals

    def whole(self, until_ns: int) -> RangeSignals:
        """The run from its beginning, read anew."""
        origin = self.origin_ns
        return RangeSignals(self, origin, until_ns, StepFinder(self.reader), final=True)

    @property
    def origin_ns(self) -> int:
        """When the job began; 0 before anything is known of it."""
        if self._origin_ns is None:
            started = [status.started_ns for status in self.reader.statuses().values()]
            sampled = [times["t_ns"][0] for times in self.reader.times("metrics").values()]
            spans = [times["start_ns"][0] for times in self.reader.times("spans").values()]
            traces = [trace.start_ns for trace in load_traces(self.reader)]
            candidates = [t for t in (*started, *sampled, *spans, *traces) if t > 0]
            if not candidates:
                return 0
            self._origin_ns = min(candidates)
        return self._origin_ns

    def unseen_traces(self) -> list[RuleTrace]:
        """Recordings that were not handed out before."""
        every = load_traces(self.reader)
        new = [trace for trace in every if trace.trace not in self._traces_seen]
        self._traces_seen.update(trace.trace for trace in new)
        new.sort(key=lambda trace: (trace.end_ns, trace.name))  # as rules look at them
        return [TraceRecording(trace) for trace in reading_ahead(new)]

    def _begin_ns(self) -> int | None:
        if self._cursor_ns is None:
            self._cursor_ns = self.origin_ns or None
        return self._cursor_ns

    def _grid(self, t_ns: int) -> int:
        """The beginning of the scan in which a time lies."""
        return t_ns - (t_ns - self.origin_ns) % self.scan_ns

    def _next_data(self, begin: int, end: int) -> int:
        """When the next sample or span is: a jump of a clock leaves years without any."""
        near = (begin, begin + self.scan_ns)  # where it mostly is
        for table, column in (("metrics", "t_ns"), ("spans", "start_ns")):
            query = f"SELECT 1 AS one FROM {table} WHERE {column} >= ? AND {column} < ? LIMIT 1"  # noqa: S608 - names from the line above
            if len(self.reader.sql(query, near, within=near)["one"]):
                return begin
        found = self.reader.sql(
            "SELECT least((SELECT min(t_ns) FROM metrics WHERE t_ns >= ? AND t_ns < ?), "
            "(SELECT min(start_ns) FROM spans WHERE start_ns >= ? AND start_ns < ?)) AS t",
            (begin, end, begin, end),
            within=(begin, end),
        )["t"]
        return end - 1 if np.ma.getmaskarray(found)[0] else int(found[0])

    def _last_ns(self, begin: int) -> int:
        """The latest time that anything in the run bears."""
        every = [*self.reader.times("metrics").values(), *self.reader.times("spans").values()]
        written = [last for times in every for _, last in times.values()]
        ends = [trace.end_ns for trace in load_traces(self.reader)]
        return max([begin - 1, *written, *ends])

    def _complete_until(self, begin: int) -> int:
        """The end of the last scan of which every node that lives has written everything."""
        sampled = self.reader.times("metrics")
        last = {node: times["t_ns"][1] for node, times in sampled.items()}
        latest = {node: t_ns for node, t_ns in last.items() if t_ns >= begin}
        statuses = self.reader.statuses()
        heard = max((status.heartbeat_ns for status in statuses.values()), default=0)
        alive = [
            node
            for node, status in statuses.items()
            if not status.state.is_final and status.heartbeat_ns >= heard - ALIVE_NS
        ]
        newest = max(latest.values(), default=begin)
        # Nor is one whose monitor lives but whose samples do not arrive.
        reached = [max(latest.get(node, begin), newest - ALIVE_NS) for node in alive]
        reached = reached or list(latest.values())
        until = min(reached, default=begin) - min(LAG_NS, self.scan_ns // 2)
        return max(begin, self._grid(until))


class RangeSignals:
    """Implements `stepscope.rules.RuleInputs` for one range of a run."""

    def __init__(
        self, feed: RunFeed, start_ns: int, end_ns: int, finder: StepFinder, *, final: bool
    ) -> None:
        self._feed = feed
        self._reader = feed.reader
        self.origin_ns = feed.origin_ns
        self.scan_ns = feed.scan_ns
        self.start_ns = start_ns
        self.end_ns = end_ns
        self._finder = finder
        self._final = final
        self._step_rows: StepRows | None = None
        self._series: dict[str, dict[Device, Series]] = {}

    @cached_property
    def nodes(self) -> dict[str, NodeInfo]:
        """The machines by name."""
        return self._reader.nodes()

    @cached_property
    def steps(self) -> list[RankStepTimes]:
        """Steps that ended before the end of the range and were not handed out before."""
        rows, self._step_rows = self._step_rows or self._read_steps(), None
        return self._finder.find(rows)

    def _read_steps(self) -> StepRows:
        return self._finder.read(self._trainees, self.end_ns, final=self._final)

    @cached_property
    def traces(self) -> list[RuleTrace]:
        """Recordings that were not handed out before."""
        return self._feed.unseen_traces()

    @cached_property
    def batches(self) -> list[Batches]:
        """Batches whose making ended in the range."""
        found = self._reader.sql(
            "SELECT node, process, list(start_ns) AS start_ns, "
            "list(end_ns - start_ns) AS duration_ns FROM spans "
            "WHERE kind = 'fetch' AND start_ns >= ? AND start_ns < ? AND end_ns >= ? AND end_ns < ?"
            " GROUP BY node, process ORDER BY node, process",
            (self.start_ns - LONGEST_BATCH_NS, self.end_ns, self.start_ns, self.end_ns),
            within=(self.start_ns - LONGEST_BATCH_NS, self.end_ns),
        )
        numbers = {name: n for n, name in enumerate(sorted(p.process for p in self._processes))}
        by_node: dict[str, list[tuple[Int, Int, Int]]] = {}
        for row, node in enumerate(found["node"].tolist()):
            start = np.asarray(found["start_ns"][row], dtype=np.int64)
            number = numbers.get(found["process"][row], -1)
            duration = np.asarray(found["duration_ns"][row], dtype=np.int64)
            parts = (start, duration, np.full(len(start), number, dtype=np.int64))
            by_node.setdefault(node, []).append(parts)
        return [
            Batches(
                node=node,
                start_ns=np.concatenate([part[0] for part in parts]),
                duration_ns=np.concatenate([part[1] for part in parts]),
                process=np.concatenate([part[2] for part in parts]),
            )
            for node, parts in by_node.items()
        ]

    @cached_property
    def compiler_time(self) -> dict[str, Series]:
        """By rank, samples of stacks in torch's compiler, each with the time it stands for."""
        found = self._reader.sql(
            "SELECT process, list(t_ns) FILTER (stack LIKE ? OR stack LIKE ?) AS t_ns "
            "FROM stacks WHERE t_ns >= ? AND t_ns < ? GROUP BY process",
            (*COMPILER_FRAMES, self.start_ns, self.end_ns),
            within=(self.start_ns, self.end_ns),
        )
        trainees = {process.process: process for process in self._trainees}
        series: dict[str, Series] = {}
        for row, process in enumerate(found["process"].tolist()):
            if process in trainees:
                t_ns = _array(found["t_ns"], row, np.int64)
                period = _sampling_period_ns(trainees[process])
                weight = np.full(len(t_ns), float(period))
                # One rank may have been two processes, when it was started again.
                before = series.get(trainees[process].title, Series(t_ns[:0], weight[:0]))
                series[trainees[process].title] = Series(
                    np.concatenate([before.t_ns, t_ns]), np.concatenate([before.value, weight])
                )
        return series

    def series(self, metric: str) -> Mapping[Device, Series]:
        """Samples of a metric by device."""
        if metric not in self._series:
            wanted = RULE_METRICS if metric in RULE_METRICS else (metric,)
            self._series |= self._read_series(wanted)
        return self._series[metric]

    @property
    def asked(self) -> frozenset[str]:
        """What was asked for: `steps`, `batches`, `compiler_time` and metrics."""
        made = {name for name in ("steps", "batches", "compiler_time") if name in self.__dict__}
        return frozenset({*made, *self._series})

    def read(self, wanted: frozenset[str]) -> None:
        """Read what somebody will ask for, of what `asked` names."""
        for name in sorted(wanted):
            if name == "steps":
                self._step_rows = self._read_steps()
            elif name in {"batches", "compiler_time"}:
                getattr(self, name)
            else:
                self.series(name)

    def from_start(self) -> RangeSignals:
        """Signals of the run up to the end of this range."""
        return self._feed.whole(self.end_ns)

    def _read_series(self, metrics: tuple[str, ...]) -> dict[str, dict[Device, Series]]:
        marks = ", ".join("?" for _ in metrics)
        found = self._reader.sql(
            "SELECT metric, node, device, list(t_ns) AS t_ns, list(value) AS value FROM metrics "  # noqa: S608 - only question marks are put in
            f"WHERE metric IN ({marks}) AND t_ns >= ? AND t_ns < ? GROUP BY metric, node, device",
            (*metrics, self.start_ns, self.end_ns),
            within=(self.start_ns, self.end_ns),
        )
        series: dict[str, dict[Device, Series]] = {metric: {} for metric in metrics}
        names = [found[column] for column in ("metric", "node", "device")]
        # Sorted: sums over devices, and what rules list of them, shall not depend on threads.
        for row in np.lexsort(names[::-1]).tolist():
            metric, node, device = (each[row] for each in names)
            series[metric][Device(node, device)] = Series(
                _array(found["t_ns"], row, np.int64), _array(found["value"], row, float)
            )
        return series

    @cached_property
    def _processes(self) -> list[ProcessInfo]:
        return self._reader.processes()

    @property
    def _trainees(self) -> list[ProcessInfo]:
        return [process for process in self._processes if process.role == "main"]


def _with_steps(reading: Future[RangeSignals]) -> RangeSignals:
    """A range with the rows of its steps, once the rest of it has been read."""
    signals = reading.result()
    signals.read(frozenset({"steps"}))
    return signals


def _array(column: NDArray[Any], row: int, kind: type) -> NDArray[Any]:
    """A list of DuckDB's as an array; none for a null."""
    value = column[row]
    return np.asarray([] if value is None or value is np.ma.masked else value, dtype=kind)


def _sampling_period_ns(process: ProcessInfo) -> int:
    periods = [sampler.period_ns for sampler in process.facts_of(StackSamplerFact)]
    return periods[0] if periods else 1
