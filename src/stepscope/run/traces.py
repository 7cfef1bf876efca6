"""The recordings of a framework's profiler in a run, loaded when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope.intervals import Intervals
from stepscope.run.windows import Window, WindowKey
from stepscope.schema import TABLES, Table
from stepscope.store import DictColumn, RunReader

READ_AHEAD_EVENTS = 3_000_000
"""What is read of so many, and made of it, takes up to two hundred megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One finding about the quality of a recording; `check` is a key of `QUALITY_CHECKS`."""

    check: str
    count: int
    of_count: int | None
    worst_ns: int | None
    detail: str | None


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One completely stored recording: one process, one window. See the table `traces`."""

    reader: RunReader = field(repr=False)
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
    said: Window | None
    """What its process said of the window; None for an imported file."""
    record: QualityRecord = field(repr=False)
    within: tuple[int, int] | None = None
    """Times on its own clock, the end exclusive: only events that begin in between are looked
    at. None for all of them."""
    ahead: ReadAhead | None = field(default=None, repr=False, compare=False)
    """What reads for recordings that are looked at one after the other; see `reading_ahead`."""

    @property
    def whole(self) -> Trace:
        """The recording without a range."""
        return replace(self, within=None)

    @property
    def extent(self) -> tuple[int, int]:
        """First start and last end of what is looked at."""
        if self.within is None:
            return self.start_ns, self.end_ns
        return max(self.start_ns, self.within[0]), min(self.end_ns, self.within[1])

    def columns(
        self,
        table: str,
        names: Sequence[str],
        *,
        where: str = "",
    ) -> dict[str, Any]:
        """Columns of one trace table, as `analysis.columns.Columns` describes them.

        Rows come track by track, each by start.

        Args:
            table: a trace table.
            names: its columns; of operators also `host_self_ns`, `device_self_ns` and
                `device_total_ns`.
            where: a further condition in SQL.
        """
        if self.ahead is not None:
            return self.ahead.columns(self, Question(table, tuple(names), where))
        (found,) = columns_of([self], table, names, where=where)
        return found

    def device_intervals(self) -> Intervals:
        """Extents of its kernels, copies and sets, in no order."""
        parts = [self.columns(t, ("start_ns", "duration_ns")) for t in ("kernels", "copies")]
        start = np.concatenate([part["start_ns"] for part in parts])
        return Intervals(start, start + np.concatenate([part["duration_ns"] for part in parts]))

    @property
    def doubts(self) -> dict[str, Doubt]:
        """What the quality record holds, by check."""
        return self.record.by_trace.get(self.trace, {})


@dataclass(frozen=True)
class QualityRecord:
    """The quality record of a run: a few rows for each recording."""

    reader: RunReader

    @cached_property
    def by_trace(self) -> dict[int, dict[str, Doubt]]:
        """Findings by recording and check."""
        rows = self.reader.table("quality")
        found: dict[int, dict[str, Doubt]] = {}
        for i, (trace, check) in enumerate(zip(rows["trace"].tolist(), rows["kind"], strict=True)):
            found.setdefault(trace, {})[check] = Doubt(
                check=check,
                count=int(rows["count"][i]),
                of_count=_optional(rows["of_count"], i),
                worst_ns=_optional(rows["worst_ns"], i),
                detail=rows["detail"][i],
            )
        return found


class Question(NamedTuple):
    """What is asked of a recording; see `Trace.columns`."""

    table: str
    names: tuple[str, ...]
    where: str


class ReadAhead:
    """Reads for recordings that are looked at one after the other.

    What is asked of one is read for those behind it in the same query, as far as they hold no
    more than so many events together, and kept until it is asked for. An event lies in one
    table, so that bounds what is kept, whatever is asked.

    Args:
        traces: recordings of one run, in the order in which they are looked at.
        events: how many are read together at most.
    """

    def __init__(self, traces: Sequence[Trace], events: int) -> None:
        self._traces = traces
        self._events = events
        self._place = {trace.trace: place for place, trace in enumerate(traces)}
        self._kept: dict[tuple[Question, bool], dict[int, dict[str, Any]]] = {}

    def columns(self, trace: Trace, question: Question) -> dict[str, Any]:
        """The columns of one recording, in its range or, if it is given without one, whole."""
        whole, place = trace.within is None, self._place[trace.trace]
        kept = self._kept.setdefault((question, whole), {})
        if place not in kept:
            chosen = [trace]
            if not kept or max(kept) < place:  # else it is asked the same once more
                kept.clear()
                chosen += [each.whole if whole else each for each in self._behind(place)]
            table, names, where = question
            found = columns_of(chosen, table, names, where=where)
            kept.update(enumerate(found, place))
        return kept.pop(place)

    def _behind(self, place: int) -> Sequence[Trace]:
        """The recordings behind one that are read with it."""
        counts = np.cumsum([trace.event_count for trace in self._traces[place:]])
        fitting = int(np.searchsorted(counts, self._events, side="right"))
        return self._traces[place + 1 : place + fitting]


def reading_ahead(traces: Sequence[Trace], events: int = READ_AHEAD_EVENTS) -> list[Trace]:
    """Recordings of one run to be looked at one after the other, in this order; see `ReadAhead`."""
    ahead = ReadAhead(traces, events)
    return [replace(trace, ahead=ahead) for trace in traces]


def columns_of(
    traces: Sequence[Trace],
    table: str,
    names: Sequence[str],
    *,
    where: str = "",
) -> list[dict[str, Any]]:
    """The columns of several recordings of a run, read at once; see `Trace.columns`.

    Args:
        traces: of one run.
        table, names, where: as there.
    """
    if where and "host_self_ns" in names:
        raise ValueError("own times need all operators: choose rows afterwards")
    if not traces:
        return []
    declared = TABLES[table]
    stored = dict.fromkeys(each for name in names for each in _DERIVED.get(name, (name,)))
    ranged = any(trace.within for trace in traces) and declared.time_column is not None
    # Own times follow from operators that begin later too: rows are chosen afterwards.
    late = ranged and "host_self_ns" in names
    several = len(traces) > 1
    owner, begun = ("trace",) if several else (), ("start_ns",) if late else ()
    wanted = dict.fromkeys((*owner, *stored, *begun))
    those = [_of_trace(each, declared, whole=late) for each in traces]
    conditions = [f"({_any_of(those)})", *([f"({where})"] if where else [])]
    found = traces[0].reader.table(
        table,
        columns=list(wanted),
        where=" AND ".join(conditions),
        traces=[trace.trace for trace in traces],
        encoded=[n for n in wanted if declared.column(n).type == "VARCHAR"],
    )
    plain = {name: _without_nulls(values) for name, values in found.items()}
    stretches = _stretches(plain["trace"]) if several else {traces[0].trace: [slice(None)]}
    chosen = []
    for trace in traces:
        own = _taken(plain, *stretches.get(trace.trace, [slice(0)]))
        own |= {name: _derived(name, own) for name in names if name in _DERIVED}
        if trace.within is not None and late:
            begin, end = trace.within
            own = _taken(own, (own["start_ns"] >= begin) & (own["start_ns"] < end))
        chosen.append({name: own[name] for name in names})
    return chosen


def rows_in(traces: Sequence[Trace], table: str) -> str:
    """The condition in SQL that rows of these recordings meet, within the range looked at."""
    return _any_of([_of_trace(each, TABLES[table]) for each in traces])


def load_traces(
    reader: RunReader, windows: Mapping[WindowKey, Window] | None = None
) -> list[Trace]:
    """Every recording of a run, by rank, then by time.

    Args:
        windows: by process and number; see `diagnosis.windows`.
    """
    rows, record = reader.table("traces"), QualityRecord(reader)
    found = [
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
            said=(windows or {}).get((rows["process"][i], _optional(rows["window"], i))),
        )
        for i in range(len(rows["trace"]))
    ]
    return sorted(found, key=lambda t: (t.rank if t.rank is not None else -1, t.start_ns, t.name))


def _of_trace(trace: Trace, table: Table, *, whole: bool = False) -> str:
    """The condition in SQL that rows of one recording meet, those of its range or all."""
    own = f"trace = {trace.trace}"
    if trace.within is None or table.time_column is None or whole:
        return own
    begin, end = trace.within
    return f"({own} AND {table.time_column} >= {begin} AND {table.time_column} < {end})"


def _any_of(conditions: Sequence[str]) -> str:
    """Conditions joined; where they are alike but for the recording, DuckDB skips files by it."""
    if all(condition.startswith("trace = ") for condition in conditions) and len(conditions) > 1:
        return f"trace IN ({', '.join(each.removeprefix('trace = ') for each in conditions)})"
    return " OR ".join(conditions)


def _stretches(owner: NDArray[np.int64]) -> dict[int, list[slice]]:
    """Rows of each recording: what was written at once lies together."""
    if not len(owner):
        return {}
    cuts = (np.flatnonzero(np.diff(owner)) + 1).tolist()
    found: dict[int, list[slice]] = {}
    for begin, end in pairwise([0, *cuts, len(owner)]):
        found.setdefault(int(owner[begin]), []).append(slice(begin, end))
    return found


def _taken(columns: Mapping[str, Any], *rows: Any) -> dict[str, Any]:
    """Some rows; those of one slice share the memory of all."""

    def take(values: Any) -> Any:
        return values[rows[0]] if len(rows) == 1 else np.concatenate([values[r] for r in rows])

    return {
        name: DictColumn(take(values.codes), values.values).drop_unused()
        if isinstance(values, DictColumn)
        else take(values)
        for name, values in columns.items()
    }


_DERIVED = {
    "host_self_ns": ("id", "parent", "duration_ns", "runtime_ns"),
    "device_self_ns": ("launched_ns",),
    "device_total_ns": ("launched_ns", "launched_below_ns"),
}
"""Columns of operators that follow from stored ones: a duration less what was called, and device
work launched by an operator itself and by those inside it."""


def _derived(name: str, columns: Mapping[str, Any]) -> Any:
    if name == "host_self_ns":
        return columns["duration_ns"] - np.maximum(columns["runtime_ns"], 0) - _called(columns)
    return sum(np.maximum(columns[each], 0) for each in _DERIVED[name])


def _called(operators: Mapping[str, Any]) -> Any:
    """Durations of the operators that each one calls. Doubles hold such sums exactly."""
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


def _without_nulls(values: Any) -> Any:
    """A missing integer as -1, a missing double as NaN; the values given are changed in place."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    np.copyto(values.data, np.nan if values.dtype.kind == "f" else -1, where=values.mask)
    return values.data
