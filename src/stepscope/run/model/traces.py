"""Traces and detailed windows of a run, loaded on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, budget, intervals, quantities, schema, store
from stepscope.run.model.clock import WindowKey
from stepscope.run.model.trace_records import (
    MAX_LOST_RATIO,
    MIN_DOUBT_SHARE,
    UNRECORDED_DEVICES,
    CollectiveKernels,
    QualityIssue,
    QualityRecord,
    optional_int,
)

READ_AHEAD_EVENTS = 3_000_000
"""Events that are read together, and whose columns are cached; with what is computed of them they
take up to 250 MiB."""


_OF_RUN = ("reader", "record", "collectives", "ahead")
"""Fields of a trace that belong to the run in this process."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One completely stored trace: one process, one window. See the table `traces`."""

    reader: store.RunReader = field(repr=False)
    trace: int
    name: str
    """Name of the imported file; of a window of the job see `_name_windows`."""
    node: str | None
    process: str | None
    window: int | None
    rank: int | None
    world_size: int | None
    backend: str | None
    start_ns: int
    end_ns: int
    base_ns: int
    """0 where the file stated none."""
    event_count: int
    has_shapes: bool
    has_stacks: bool
    has_memory: bool
    metadata: Mapping[str, Any] = field(repr=False)
    window_facts: schema.WindowFact | None
    """Facts that the process reported of the window; None for an imported file."""
    record: QualityRecord = field(repr=False)
    collectives: CollectiveKernels = field(repr=False, compare=False)
    within: tuple[int, int] | None = None
    """Start and end on the trace's clock, the end exclusive: only events that start in between
    count. None for all events."""
    ahead: ReadAhead | None = field(default=None, repr=False, compare=False)
    """Reader of traces that are processed in turn; see `reading_ahead`."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the run, for another process; see `attach`."""
        return {name: value for name, value in vars(self).items() if name not in _OF_RUN}

    def attach(self, reader: store.RunReader, collectives: CollectiveKernels) -> Trace:
        """Return the trace as one of a run in this process."""
        record = QualityRecord(reader)
        return replace(self, reader=reader, record=record, collectives=collectives, ahead=None)

    @property
    def recorder(self) -> schema.Recorder:
        """Framework whose profiler wrote the trace."""
        return schema.recorder_of(self.metadata)

    @property
    def label(self) -> str:
        """The rank, or the trace's name where the rank is unknown."""
        return self.name if self.rank is None else f"rank {self.rank}"

    @property
    def whole(self) -> Trace:
        """The trace without a range."""
        return replace(self, within=None)

    @property
    def extent(self) -> tuple[int, int]:
        """First start and last end of the events that count."""
        if self.within is None:
            return self.start_ns, self.end_ns
        return max(self.start_ns, self.within[0]), min(self.end_ns, self.within[1])

    def columns(self, table: str, names: Sequence[str], *, condition: str = "") -> dict[str, Any]:
        """Read columns of one trace table, as `analysis.Columns` describes them.

        Rows come track by track, each by start.

        Args:
            table: a trace table.
            names: its columns; of operators also `host_self_ns`, `device_self_ns` and
                `device_total_ns`.
            condition: additional SQL condition.
        """
        if self.ahead is not None:
            return self.ahead.columns(self, Query(table, tuple(names), condition))
        (columns,) = columns_of([self], table, names, condition=condition)
        return columns

    def device_intervals(self) -> intervals.Intervals:
        """Read the extents of kernels, copies and sets, in no order."""
        parts = [self.columns(t, analysis.TIME_COLUMNS) for t in ("kernels", "copies")]
        start = np.concatenate([part["start_ns"] for part in parts])
        return intervals.Intervals(
            start, start + np.concatenate([part["duration_ns"] for part in parts])
        )

    @property
    def quality_issues(self) -> dict[str, QualityIssue]:
        """Quality issues by check."""
        return self.record.by_trace.get(self.trace, {})

    @property
    def is_set_back(self) -> bool:
        """True if the clock was set back meanwhile: before and after it cannot be compared."""
        return "clock_setback" in self.quality_issues

    @property
    def unknown_devices(self) -> str | None:
        """Reason why absent device work tells nothing, as a clause; None where it does."""
        issue = self.quality_issues.get("device_not_understood")
        if issue is not None and issue.count >= MIN_DOUBT_SHARE * self.event_count:
            return f"the time of the device is not understood ({issue.detail})"
        lost, total = self.record.lost_work.get(self.trace, (0, 0))
        if lost > MAX_LOST_RATIO * total:
            return (
                f"{quantities.count(lost)} of {quantities.count(total)} kernels, copies and sets "
                "have no possible time"
            )
        sign = self.unrecorded_devices
        return None if sign is None else UNRECORDED_DEVICES.format(sign)

    @property
    def unrecorded_devices(self) -> str | None:
        """Sign of devices in an imported trace that holds no work of them; None without any."""
        is_read = self.process is not None or "device_not_understood" in self.quality_issues
        return None if is_read else self.record.unrecorded_devices.get(self.trace)


class Query(NamedTuple):
    """Arguments of `Trace.columns`."""

    table: str
    names: tuple[str, ...]
    condition: str


class ReadAhead:
    """Reader of traces that are processed in turn.

    A query for one trace also reads the traces after it, up to a number of events, and keeps the
    columns until they are requested; `ColumnCache` keeps them for further queries. An event is in
    one table only, so the number of events bounds the memory, whatever is queried.

    Args:
        traces: traces of one run, in the order of processing.
        events: limit of the events that are read together.
    """

    def __init__(self, traces: Sequence[Trace], events: int) -> None:
        self._traces = traces
        self._events = events
        self._index = {trace.trace: index for index, trace in enumerate(traces)}
        self._cache: dict[tuple[Query, bool], dict[int, dict[str, Any]]] = {}

    def columns(self, trace: Trace, query: Query) -> dict[str, Any]:
        """Return the columns of one trace, within its range if it has one."""
        is_whole, index = trace.within is None, self._index[trace.trace]
        cache = self._cache.setdefault((query, is_whole), {})
        if index not in cache:
            traces = [trace]
            if not cache or max(cache) < index:  # else the same query was repeated
                cache.clear()
                traces += [
                    following.whole if is_whole else following for following in self._behind(index)
                ]
            table, names, condition = query
            column_sets = columns_of(traces, table, names, condition=condition)
            cache.update(enumerate(column_sets, index))
        return cache.pop(index)

    def _behind(self, index: int) -> Sequence[Trace]:
        """Return the traces that are read together with one, those after it."""
        counts = np.cumsum([trace.event_count for trace in self._traces[index:]])
        fitting = int(np.searchsorted(counts, self._events, side="right"))
        return self._traces[index + 1 : index + fitting]


def reading_ahead(traces: Sequence[Trace], events: int = READ_AHEAD_EVENTS) -> list[Trace]:
    """Return traces of one run that read ahead of each other in this order; see `ReadAhead`."""
    ahead = ReadAhead(traces, events)
    return [replace(trace, ahead=ahead) for trace in traces]


class ColumnCache:
    """Columns of the traces that were read last: figures of a trace share most of its columns.

    A complete trace does not change, and all columns of a table have the same rows in one order.
    """

    def __init__(self) -> None:
        self._columns: dict[int, dict[str, dict[str, Any]]] = {}  # by trace, table and name
        self._lock = threading.Lock()

    def get(
        self,
        numbers: Sequence[int],
        table: str,
        names: Sequence[str],
        *,
        read: Callable[[Sequence[str]], dict[int, dict[str, Any]]],
    ) -> dict[int, dict[str, Any]]:
        """Return columns of whole traces, by trace and name.

        Args:
            numbers: the traces; columns of further traces are dropped.
            table, names: the columns.
            read: reads columns of the traces.
        """
        with self._lock:
            if not self._columns.keys() >= set(numbers):
                self._columns = {number: {} for number in numbers}
            cached = {number: self._columns[number].setdefault(table, {}) for number in numbers}
            missing = [n for n in names if any(n not in columns for columns in cached.values())]
            if missing:
                columns_by_trace = read(missing)
                if not all(
                    _count_rows(cached[number]) in {None, _count_rows(columns)}
                    for number, columns in columns_by_trace.items()
                ):  # a file proved to be damaged meanwhile
                    self._columns = {}
                    return read(names)
                for number, columns in columns_by_trace.items():
                    cached[number] |= {n: _protect(values) for n, values in columns.items()}
            return {n: {name: columns[name] for name in names} for n, columns in cached.items()}

    def clear(self) -> None:
        """Drop all columns."""
        with self._lock:
            self._columns = {}


_CACHES: WeakKeyDictionary[store.RunReader, ColumnCache] = WeakKeyDictionary()


def _find_cache(reader: store.RunReader) -> ColumnCache:
    return _CACHES.setdefault(reader, ColumnCache())


def release_columns() -> None:
    """Drop the columns of traces that are cached for further figures."""
    for cache in list(_CACHES.values()):
        cache.clear()


def release_memory() -> None:
    """Drop cached columns, and return free memory to the system."""
    release_columns()
    budget.trim_heap()


def _protect(values: Any) -> Any:
    """Make an array read-only, which several figures share."""
    array = values.codes if isinstance(values, store.DictColumn) else values
    array.flags.writeable = False
    return values


def _count_rows(columns: Mapping[str, Any]) -> int | None:
    return next((len(values) for values in columns.values()), None)


def columns_of(
    traces: Sequence[Trace], table: str, names: Sequence[str], *, condition: str = ""
) -> list[dict[str, Any]]:
    """Read the columns of several traces of a run at once; see `Trace.columns`.

    Args:
        traces: of one run.
        table, names, condition: as there.
    """
    if condition and "host_self_ns" in names:
        raise ValueError("self times need all operators: select rows afterwards")
    if not traces:
        return []
    declared = schema.TABLES[table]
    stored = dict.fromkeys(column for name in names for column in _DERIVED.get(name, (name,)))
    ranged = any(trace.within for trace in traces) and declared.time_column is not None
    # Self times depend on later operators too: rows are selected afterwards.
    late = ranged and "host_self_ns" in names
    several = len(traces) > 1
    start_column = ("start_ns",) if late else ()
    stored_columns = dict.fromkeys((*stored, *start_column))
    conditions_by_trace = [_build_condition(trace, declared, unbounded=late) for trace in traces]
    conditions = [
        f"({_join_conditions(conditions_by_trace)})",
        *([f"({condition})"] if condition else []),
    ]

    def read(columns: Sequence[str]) -> dict[int, dict[str, Any]]:
        selected = dict.fromkeys((*(("trace",) if several else ()), *columns))
        rows = traces[0].reader.table(
            table,
            columns=list(selected),
            condition=" AND ".join(conditions),
            traces=[trace.trace for trace in traces],
            encoded=[n for n in selected if declared.column(n).type == "VARCHAR"],
        )
        plain = {name: _fill_missing(values) for name, values in rows.items()}
        ranges = _find_row_ranges(plain["trace"]) if several else {traces[0].trace: [slice(None)]}
        return {
            trace.trace: _select_rows(plain, *ranges.get(trace.trace, [slice(0)]))
            for trace in traces
        }

    is_whole = not condition and (late or not ranged)
    if is_whole and sum(trace.event_count for trace in traces) <= READ_AHEAD_EVENTS:
        numbers = [trace.trace for trace in traces]
        cache = _find_cache(traces[0].reader)
        columns_by_trace = cache.get(numbers, table, list(stored_columns), read=read)
    else:
        columns_by_trace = read(list(stored_columns))
    column_sets = []
    for trace in traces:
        columns = columns_by_trace[trace.trace]
        columns |= {name: _derived(name, columns) for name in names if name in _DERIVED}
        if trace.within is not None and late:
            start, end = trace.within
            columns = _select_rows(
                columns, (columns["start_ns"] >= start) & (columns["start_ns"] < end)
            )
        column_sets.append({name: columns[name] for name in names})
    return column_sets


def rows_in(traces: Sequence[Trace], table: str) -> str:
    """Build the SQL condition for rows of these traces within their ranges."""
    return _join_conditions([_build_condition(trace, schema.TABLES[table]) for trace in traces])


def load_traces(
    reader: store.RunReader, windows: Mapping[WindowKey, schema.WindowFact] | None = None
) -> list[Trace]:
    """Load every trace of a run, by rank, then by time.

    Args:
        windows: by process and number; see `run.windows`.
    """
    rows, record = reader.table("traces"), QualityRecord(reader)
    names = _name_windows(rows)
    collectives = CollectiveKernels(reader)
    traces = [
        Trace(
            reader=reader,
            trace=int(rows["trace"][i]),
            name=names[i],
            node=rows["node"][i],
            process=rows["process"][i],
            window=optional_int(rows["window"], i),
            rank=optional_int(rows["rank"], i),
            world_size=optional_int(rows["world_size"], i),
            backend=rows["backend"][i],
            start_ns=int(rows["start_ns"][i]),
            end_ns=int(rows["end_ns"][i]),
            base_ns=int(rows["base_ns"][i]),
            event_count=int(rows["event_count"][i]),
            has_shapes=bool(rows["has_shapes"][i]),
            has_stacks=bool(rows["has_stacks"][i]),
            has_memory=bool(rows["has_memory"][i]),
            metadata=msgspec.json.decode(rows["metadata"][i], type=dict[str, Any]),
            record=record,
            collectives=collectives,
            window_facts=(windows or {}).get((rows["process"][i], optional_int(rows["window"], i))),
        )
        for i in range(len(rows["trace"]))
    ]
    return sorted(traces, key=lambda t: (t.rank if t.rank is not None else -1, t.start_ns, t.name))


def _name_windows(rows: Mapping[str, Any]) -> list[str]:
    """Name windows of the job by rank and number, as in "rank 1, window 0"; imported files keep
    their names.

    Of equal names, as after a restart, all but the earliest get the pid.
    """
    names = [str(name) for name in rows["name"].tolist()]
    used: set[str] = set()
    for i in np.argsort(rows["start_ns"], kind="stable").tolist():
        process, window = rows["process"][i], optional_int(rows["window"], i)
        if names[i] != f"{process}, window {window}":
            continue
        rank = optional_int(rows["rank"], i)
        owner = schema.TRAINER if rank is None else f"rank {rank}"
        if f"{owner}, window {window}" in used:
            owner += f" (process {process.partition('-')[0]})"
        names[i] = f"{owner}, window {window}"
        used.add(names[i])
    return names


def _build_condition(trace: Trace, table: schema.Table, *, unbounded: bool = False) -> str:
    """Build the SQL condition for rows of one trace, within its range or all."""
    same_trace = f"trace = {trace.trace}"
    if trace.within is None or table.time_column is None or unbounded:
        return same_trace
    start, end = trace.within
    return f"({same_trace} AND {table.time_column} >= {start} AND {table.time_column} < {end})"


def _join_conditions(conditions: Sequence[str]) -> str:
    """Join conditions by OR; DuckDB skips files by trace if the conditions differ in it only."""
    if all(condition.startswith("trace = ") for condition in conditions) and len(conditions) > 1:
        return f"trace IN ({', '.join(text.removeprefix('trace = ') for text in conditions)})"
    return " OR ".join(conditions)


def _find_row_ranges(owner: NDArray[np.int64]) -> dict[int, list[slice]]:
    """Find the row ranges of each trace: rows written at once are adjacent."""
    if not len(owner):
        return {}
    cuts = (np.flatnonzero(np.diff(owner)) + 1).tolist()
    slices: dict[int, list[slice]] = {}
    for start, end in pairwise([0, *cuts, len(owner)]):
        slices.setdefault(int(owner[start]), []).append(slice(start, end))
    return slices


def _select_rows(columns: Mapping[str, Any], *rows: Any) -> dict[str, Any]:
    """Select rows; a single slice shares the memory of all rows."""

    def take(values: Any) -> Any:
        return values[rows[0]] if len(rows) == 1 else np.concatenate([values[r] for r in rows])

    return {
        name: store.DictColumn(take(values.codes), values.values).drop_unused()
        if isinstance(values, store.DictColumn)
        else take(values)
        for name, values in columns.items()
    }


_DERIVED = {
    "host_self_ns": ("id", "parent", "duration_ns", "runtime_ns"),
    "device_self_ns": ("launched_ns",),
    "device_total_ns": ("launched_ns", "launched_below_ns"),
}
"""Operator columns derived from stored ones: duration without nested calls, and device work
launched by an operator itself or by operators inside it."""


def _derived(name: str, columns: Mapping[str, Any]) -> Any:
    if name == "host_self_ns":
        return (
            columns["duration_ns"]
            - np.maximum(columns["runtime_ns"], 0)
            - _sum_nested_durations(columns)
        )
    return sum(np.maximum(columns[column], 0) for column in _DERIVED[name])


def _sum_nested_durations(operators: Mapping[str, Any]) -> Any:
    """Sum the durations of the operators that each one calls. Doubles hold such sums exactly."""
    ids, parent = operators["id"], operators["parent"]
    nested = parent >= 0
    if not nested.any():
        return np.zeros(len(ids), dtype=np.int64)
    sums = np.bincount(
        parent[nested], weights=operators["duration_ns"][nested], minlength=int(ids.max()) + 1
    )
    return sums[ids].astype(np.int64)


def _fill_missing(values: Any) -> Any:
    """Replace missing integers by -1 and missing doubles by NaN, in place."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    np.copyto(values.data, np.nan if values.dtype.kind == "f" else -1, where=values.mask)
    return values.data
