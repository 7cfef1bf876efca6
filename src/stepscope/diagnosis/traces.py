"""The recordings of a framework's profiler in a run, loaded when asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from stepscope.diagnosis.windows import Window, WindowKey
from stepscope.intervals import Intervals
from stepscope.schema import TABLES, Table
from stepscope.store import DictColumn, RunReader


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
    within: tuple[int, int] | None = None
    """Times on its own clock, the end exclusive: only events that begin in between are looked
    at. None for all of them."""

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
        order_by: str | None = None,
    ) -> dict[str, Any]:
        """Columns of one trace table, as `analysis.columns.Columns` describes them.

        Args:
            table: a trace table.
            names: its columns; of operators also `host_self_ns`, `device_self_ns` and
                `device_total_ns`.
            where: a further condition in SQL.
            order_by: SQL; without it rows come track by track, each by start.
        """
        (found,) = columns_of([self], table, names, where=where, order_by=order_by)
        return found

    def device_intervals(self) -> Intervals:
        """Extents of its kernels, copies and sets, in no order."""
        parts = [self.columns(t, ("start_ns", "duration_ns")) for t in ("kernels", "copies")]
        start = np.concatenate([part["start_ns"] for part in parts])
        return Intervals(start, start + np.concatenate([part["duration_ns"] for part in parts]))

    @cached_property
    def doubts(self) -> dict[str, Doubt]:
        """What the quality record holds, by check."""
        rows = self.reader.table("quality", where=f"trace = {self.trace}", traces=[self.trace])
        return {
            check: Doubt(
                check=check,
                count=int(rows["count"][i]),
                of_count=_optional(rows["of_count"], i),
                worst_ns=_optional(rows["worst_ns"], i),
                detail=rows["detail"][i],
            )
            for i, check in enumerate(rows["kind"])
        }


FEW = 4
"""Of more recordings all rows are read: to look for theirs costs more than is left out."""


def columns_of(
    traces: Sequence[Trace],
    table: str,
    names: Sequence[str],
    *,
    where: str = "",
    order_by: str | None = None,
) -> list[dict[str, Any]]:
    """The columns of several recordings of a run, read at once; see `Trace.columns`.

    Args:
        traces: of one run.
        table, names, where, order_by: as there.
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
    wanted = dict.fromkeys(("trace", *stored, *(("start_ns",) if late else ())))
    conditions = [f"({where})"] if where else []
    few = len(traces) <= FEW
    if few or ranged:
        those = [_of_trace(each, declared, whole=late) for each in traces]
        conditions.insert(0, f"({_any_of(those)})")
    found = traces[0].reader.table(
        table,
        columns=list(wanted),
        where=" AND ".join(conditions) or None,
        order_by=order_by,
        traces=[trace.trace for trace in traces] if few else (),
        encoded=[n for n in wanted if declared.column(n).type == "VARCHAR"],
    )
    plain = {name: _without_nulls(values) for name, values in found.items()}
    chosen = []
    for trace, rows in zip(traces, _rows_of(plain["trace"], traces), strict=True):
        own = _taken(plain, rows)
        own |= {name: _derived(name, own) for name in names if name in _DERIVED}
        if trace.within is not None and late:
            begun = own["start_ns"]
            own = _taken(own, (begun >= trace.within[0]) & (begun < trace.within[1]))
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
    rows = reader.table("traces")
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


def _rows_of(owner: Any, traces: Sequence[Trace]) -> list[Any]:
    """Which rows belong to each recording."""
    if len(traces) == 1:
        return [slice(None)]
    order = np.argsort(owner, kind="stable")
    numbers = [trace.trace for trace in traces]
    begin = np.searchsorted(owner, numbers, side="left", sorter=order)
    end = np.searchsorted(owner, numbers, side="right", sorter=order)
    return [order[b:e] for b, e in zip(begin.tolist(), end.tolist(), strict=True)]


def _taken(columns: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    return {
        name: DictColumn(values.codes[rows], values.values).in_use()
        if isinstance(values, DictColumn)
        else values[rows]
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
    """A missing integer as -1, a missing double as NaN."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    return values.filled(np.nan if values.dtype.kind == "f" else -1)
