"""Traces and detailed windows of a run, loaded on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema, store
from stepscope.run.model.clock import WindowKey


@dataclass(frozen=True)
class CollectiveKernels:
    """Names of the kernels of collectives in a run."""

    reader: store.RunReader
    launched_names: frozenset[str] | None = None
    """`launched_by_collectives`, where another process has read them."""

    def predicate(self, definition: analysis.CommunicationDefinition) -> Callable[[str], bool]:
        """Return the function that is true for the name of a kernel of a collective."""
        if definition == "narrow":
            return analysis.is_narrow_communication
        launched = self.launched_by_collectives
        return lambda name: name in launched or analysis.is_communication(name)

    @cached_property
    def launched_by_collectives(self) -> frozenset[str]:
        """Names of kernels that operators of collectives launched themselves."""
        if self.launched_names is not None:
            return self.launched_names
        operators = self.reader.sql("SELECT DISTINCT name FROM operators WHERE name IS NOT NULL")
        names = sorted(filter(analysis.is_collective_operator, operators["name"].tolist()))
        if not names:
            return frozenset()
        kernels = self.reader.sql(
            "SELECT DISTINCT kernels.name FROM kernels JOIN operators ON "
            "kernels.trace = operators.trace AND kernels.operator = operators.id "
            "WHERE operators.name IN (SELECT unnest(?))",
            [names],
        )
        return frozenset(filter(analysis.may_communicate, kernels["name"].tolist()))


READ_AHEAD_EVENTS = 3_000_000
"""Events that are read together; with what is computed of them they take up to 200 MiB."""


_OF_RUN = ("reader", "record", "collectives", "ahead")
"""Fields of a trace that belong to the run in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityIssue:
    """Quality issue of a trace; `check` is a key of `QUALITY_CHECKS`."""

    check: str
    count: int
    of_count: int | None
    worst_ns: int | None
    detail: str | None


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One completely stored trace: one process, one window. See the table `traces`."""

    reader: store.RunReader = field(repr=False)
    trace: int
    name: str
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
        sign = self.unrecorded_devices
        return None if sign is None else UNRECORDED_DEVICES.format(sign)

    @property
    def unrecorded_devices(self) -> str | None:
        """Sign of devices in an imported trace that holds no work of them; None without any."""
        is_read = self.process is not None or "device_not_understood" in self.quality_issues
        return None if is_read else self.record.unrecorded_devices.get(self.trace)


MIN_DOUBT_SHARE = 0.001
"""Smaller shares of events or of text change no answer."""


EXCLUDING = frozenset(["impossible_time", "impossible_duration"])
"""Checks of events that are in no figure."""
NAMING_LOSSES = EXCLUDING | {"unpaired"}
"""Checks of ranges that are in no figure. Their detail names those that change an answer."""
DEVICE_TABLES = ("kernels", "copies")
"""Tables of device work."""
UNRECORDED_DEVICES = "the work of the devices ({}) was not recorded"
_DEVICE_SIGNS = {
    "devices": ("name", "TRUE"),
    "traces": ("'backend ' || backend", f"regexp_full_match(backend, '{schema.DEVICE_BACKENDS}')"),
    "runtime_calls": ("name", "TRUE"),
    "memory_events": ("'memory of a device'", "device_type > 0"),
    "annotations": ("name", f"regexp_matches(name, '{schema.DEVICE_NAMES}')"),
    "operators": ("name", f"regexp_matches(name, '{schema.DEVICE_NAMES}')"),
}
"""Signs of a device by table, with the condition of rows that only a process with one writes."""


@dataclass(frozen=True)
class QualityRecord:
    """Quality record of a run: a few rows per trace."""

    reader: store.RunReader

    @cached_property
    def by_trace(self) -> dict[int, dict[str, QualityIssue]]:
        """Quality issues by trace and check."""
        rows = self.reader.table("quality")
        issues: dict[int, dict[str, QualityIssue]] = {}
        for i, (trace, check) in enumerate(zip(rows["trace"].tolist(), rows["kind"], strict=True)):
            issues.setdefault(trace, {})[check] = QualityIssue(
                check=check,
                count=int(rows["count"][i]),
                of_count=_optional(rows["of_count"], i),
                worst_ns=_optional(rows["worst_ns"], i),
                detail=rows["detail"][i],
            )
        return issues

    @cached_property
    def unrecorded_devices(self) -> dict[int, str]:
        """A sign of devices by trace, of the traces without any work of them."""
        work = " UNION ".join(f"SELECT trace FROM {table}" for table in DEVICE_TABLES)  # noqa: S608
        rest = self.reader.sql(f"SELECT trace FROM traces WHERE trace NOT IN ({work})")["trace"]  # noqa: S608
        numbers, signs = ", ".join(map(str, rest.tolist())), dict[int, str]()
        for table, (sign, condition) in _DEVICE_SIGNS.items() if numbers else ():
            rows = self.reader.sql(
                f"SELECT trace, min({sign}) AS sign FROM {table} "  # noqa: S608
                f"WHERE trace IN ({numbers}) AND {condition} GROUP BY trace"
            )
            for trace, name in zip(rows["trace"].tolist(), rows["sign"].tolist(), strict=True):
                signs.setdefault(trace, name)
        return signs


class Query(NamedTuple):
    """Arguments of `Trace.columns`."""

    table: str
    names: tuple[str, ...]
    condition: str


class ReadAhead:
    """Reader of traces that are processed in turn.

    A query for one trace also reads the traces after it, up to a number of events, and keeps the
    columns until they are requested. An event is in one table only, so the number of events bounds
    the memory, whatever is queried.

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
    owner, start_column = ("trace",) if several else (), ("start_ns",) if late else ()
    stored_columns = dict.fromkeys((*owner, *stored, *start_column))
    conditions_by_trace = [_build_condition(trace, declared, unbounded=late) for trace in traces]
    conditions = [
        f"({_join_conditions(conditions_by_trace)})",
        *([f"({condition})"] if condition else []),
    ]
    rows = traces[0].reader.table(
        table,
        columns=list(stored_columns),
        condition=" AND ".join(conditions),
        traces=[trace.trace for trace in traces],
        encoded=[n for n in stored_columns if declared.column(n).type == "VARCHAR"],
    )
    plain = {name: _fill_missing(values) for name, values in rows.items()}
    row_ranges = _find_row_ranges(plain["trace"]) if several else {traces[0].trace: [slice(None)]}
    column_sets = []
    for trace in traces:
        columns = _select_rows(plain, *row_ranges.get(trace.trace, [slice(0)]))
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
    collectives = CollectiveKernels(reader)
    traces = [
        Trace(
            reader=reader,
            trace=int(rows["trace"][i]),
            name=rows["name"][i],
            node=rows["node"][i],
            process=rows["process"][i],
            window=_optional(rows["window"], i),
            rank=_optional(rows["rank"], i),
            world_size=_optional(rows["world_size"], i),
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
            window_facts=(windows or {}).get((rows["process"][i], _optional(rows["window"], i))),
        )
        for i in range(len(rows["trace"]))
    ]
    return sorted(traces, key=lambda t: (t.rank if t.rank is not None else -1, t.start_ns, t.name))


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


def _optional(values: Any, row: int) -> int | None:
    return None if np.ma.getmaskarray(values)[row] else int(values[row])


def _fill_missing(values: Any) -> Any:
    """Replace missing integers by -1 and missing doubles by NaN, in place."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    np.copyto(values.data, np.nan if values.dtype.kind == "f" else -1, where=values.mask)
    return values.data
