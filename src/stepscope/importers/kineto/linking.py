"""Links of events: launch to kernel, operator to launch, parent to operator, gradient to forward.

    correlation   device work → runtime call      joined over the whole file before (`joins`)
    launch        runtime call → operator         External id, else the innermost operator around it
    tree          operator → parent operator      containment on one thread
    tree          Python function → caller        number of the caller, else containment
    containment   operator, annotation, memory event → innermost Python function or operator
    sums          an operator's runtime calls and device work, its own and those below it

`Linker.link` handles one slice of time after the other, so that memory stays bounded: device work
belongs to the slice of its launch, and ranges that are open at the end of a slice are carried into
the next one. An open operator is stored when it ends, with what it called in all slices.

Kinds are linked as `schema.EVENT_KINDS` says (`linking`). All times in here are positions: the
time since the first event plus an offset per track that exceeds the length of the file, so that
one sort and one search serve all tracks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.importers.kineto import arguments
from stepscope.importers.kineto.columns import Columns
from stepscope.importers.kineto.gather import Gathered, absent, impossible
from stepscope.importers.kineto.joins import Counts, Forwards, Positions, ShadowHosts, values_at

Int = NDArray[np.int64]

LINKED_COLUMNS: Mapping[str, frozenset[str]] = {
    "operator": frozenset(
        {
            "parent", "depth", "python", "forward", "runtime_ns", "launched_ns",
            "launched_below_ns",
        }
    ),
    "python": frozenset({"parent", "module"}),
    "call": frozenset({"operator", "python"}),
    "work": frozenset({"launch", "operator", "carry_over", "captured_operator"}),
    "shadow": frozenset({"host"}),
    "enclosing": frozenset({"operator", "python"}),
    "none": frozenset(),
}  # fmt: skip
"""Columns of tables that are filled here, by the `linking` of a kind."""


class Linked(msgspec.Struct):
    """One linked slice. Rows are sorted by track, then start, outer ranges before inner ones."""

    rows: dict[schema.EventKind, Columns] = msgspec.field(default_factory=dict)
    """Rows by kind; those of all kinds of calls are together, under the first of them."""
    other_events: list[tuple[arguments.Kind, Columns]] = msgspec.field(default_factory=list)
    """Events of no other table, and events with impossible times."""
    around: Columns = msgspec.field(default_factory=dict)
    """Extents of ranges of other slices that were open in this one."""

    def last_end(self, gathered: Gathered) -> int:
        """Return the latest end of any range but the brackets of the recorder, relative to the base
        of the file."""
        first, bracket = np.iinfo(np.int64).min, gathered.code_of("Trace")
        ends = [
            int((columns["start"] + columns["duration"]).max())
            for kind, columns in self.rows.items()
            if kind.is_range and len(columns["id"])
        ]
        for kind, columns in self.other_events:
            if kind is arguments.OtherKind.OTHER:
                is_range = columns["has_duration"] > 0
                is_range &= ~impossible(columns, gathered.bounds) & (columns["category"] != bracket)
                ends.append(
                    int((columns["start"] + columns["duration"])[is_range].max(initial=first))
                )
        return max(ends, default=first)


class Linker:
    """Links slices in the order of time."""

    def __init__(self, gathered: Gathered, counts: Counts) -> None:
        self._gathered = gathered
        self._counts = counts
        self._positions = Positions(gathered.bounds)
        self._forwards = Forwards(gathered)
        self._hosts = ShadowHosts(gathered)
        self._open_operators: Columns = {}
        self._open_python: Columns = {}
        self._set_aside: list[tuple[arguments.Kind, Columns]] = []
        captured = [
            gathered.select(kind, ("captured",), "captured") for kind in arguments.WORK_KINDS
        ]
        self._captured = np.unique(np.concatenate([work["captured"] for work in captured]))
        self._captured_operator = np.full(len(self._captured), -1, dtype=np.int64)

    def link(self, start: int, end: int, *, final: bool) -> Linked:
        """Link the events of [start, end), and ranges that were open before and end in it."""
        python = self._python(start, end)
        operators = self._operators(start, end)
        calls = self._calls(start, end, operators, python)
        work = {
            kind: self._work(kind, start, end, calls, operators) for kind in arguments.WORK_KINDS
        }
        _add_sums(operators, calls, work)
        inside = _inner_id(python, operators["at"])
        operators["python"] = np.where(operators["fresh"], inside, operators.get("python", inside))
        operators["forward"] = self._forwards.of(
            operators["sequence"], operators["forward_thread"], operators["start"]
        )
        rows: dict[schema.EventKind, Columns] = {arguments.CALL_KINDS[0]: calls, **work}
        for kind in schema.EVENT_KINDS:
            if kind.linking == "enclosing":
                rows[kind] = self._enclosed(kind, start, end, operators, python)
            elif kind.linking == "none":
                rows[kind] = self._read(kind, start, end)
            elif kind.linking == "shadow":
                rows[kind] = self._read(kind, start, end)
                rows[kind]["host"] = self._hosts.of(rows[kind]["external"])
        open_before = self._open_python
        rows[arguments.OPERATOR], self._open_operators = self._close_operators(
            operators, end, final=final
        )
        rows[arguments.PYTHON_FUNCTION], self._open_python = self._split_python(
            python, end, final=final
        )
        other_events, self._set_aside = self._set_aside, []
        columns = self._gathered.between(arguments.OtherKind.OTHER, start, end)
        if columns:
            other_events.append((arguments.OtherKind.OTHER, columns))
        return Linked(
            rows=rows,
            other_events=other_events,
            around=_join_extents([open_before, self._open_operators]),
        )

    # --- kinds ---------------------------------------------------------------------------------

    def _read(self, kind: schema.EventKind, start: int, end: int) -> Columns:
        """Return the possible rows of a kind, sorted, with their positions."""
        return _sort(self._read_unsorted(kind, start, end))

    def _read_unsorted(self, kind: schema.EventKind, start: int, end: int) -> Columns:
        columns = self._gathered.between(kind, start, end)
        rows = len(columns["id"]) if columns else 0
        for name in _COLUMNS[kind]:
            if name not in columns:
                columns[name] = absent(name, rows)
        is_wrong = impossible(columns, self._gathered.bounds)
        if is_wrong.any():
            self._keep_aside(kind, columns, is_wrong)
            columns = _without(columns, is_wrong)
        columns["at"] = self._positions.of(columns["start"], columns["track"])
        columns["end"] = columns["at"] + columns.get("duration", np.int64(0))
        return columns

    def _nested(self, kind: schema.EventKind, start: int, end: int, still_open: Columns) -> Columns:
        """Return the rows of a kind, and those still open, with their parents and depths."""
        columns = self._read_unsorted(kind, start, end)
        rows = len(columns["id"])
        columns["fresh"] = np.ones(rows, dtype=np.bool_)
        columns = {
            name: np.concatenate(
                [values, columns[name] if name in columns else np.zeros(rows, values.dtype)]
            )
            for name, values in still_open.items()
        } or columns
        columns = _sort(columns)
        columns["row_parent"], columns["depth"], excess = intervals.nest(
            columns["at"], columns["end"], intervals.OVERHANG_NS
        )
        fresh = excess[columns["fresh"]]
        self._counts.ranges += len(fresh)
        self._counts.overhangs += int((fresh > 0).sum())
        worst = int(fresh.max(initial=0))
        self._counts.worst_overhang_ns = max(self._counts.worst_overhang_ns, worst)
        return columns

    def _operators(self, start: int, end: int) -> Columns:
        columns = self._nested(arguments.OPERATOR, start, end, self._open_operators)
        for name in ("runtime_ns", "launched_ns", "below_ns"):
            columns.setdefault(name, np.zeros(len(columns["id"]), dtype=np.int64))
        return columns

    def _python(self, start: int, end: int) -> Columns:
        columns = self._nested(arguments.PYTHON_FUNCTION, start, end, self._open_python)
        rows = len(columns["id"])
        fresh, parent = columns["fresh"], columns["row_parent"].copy()
        by_number = _rows_of(columns["python_parent"], columns["python_id"])
        callees = np.flatnonzero((by_number >= 0) & (columns["python_parent"] >= 0))
        caller, begin = by_number[callees], columns["start"]
        # The caller may be on another thread, and have ended. It must have started before, so
        # that there is no cycle.
        same_track = columns["track"][caller] == columns["track"][callees]
        is_caller = (begin[caller] < begin[callees]) | (same_track & (caller < callees))
        parent[callees[is_caller]] = caller[is_caller]
        for name in ("parent", "module"):
            columns.setdefault(name, absent("id", rows))
        columns["parent"] = np.where(fresh, values_at(columns["id"], parent), columns["parent"])
        is_module = columns["module_id"] >= 0
        # The module of a function that was carried on is known.
        module = intervals.first_ancestors(parent, is_module | ~fresh)
        module_id = np.where(is_module, columns["id"], columns["module"])
        columns["module"] = np.where(fresh, values_at(module_id, module), columns["module"])
        return columns

    def _calls(self, start: int, end: int, operators: Columns, python: Columns) -> Columns:
        """Return the calls of all kinds with their operators: by External id, else by time."""
        parts = [self._read(kind, start, end) for kind in arguments.CALL_KINDS]
        for kind, part in zip(arguments.CALL_KINDS, parts, strict=True):
            for name, value in kind.constants.items():
                part[name] = np.full(len(part["id"]), value)
        calls = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        if sum(len(part["id"]) > 0 for part in parts) > 1:
            calls = _sort(calls)
        by_number = _rows_of(calls["external"], operators["external"])
        by_number[calls["external"] <= 0] = -1
        # Some recorders write another number there: only an open operator can be the caller.
        numbered = np.flatnonzero(by_number >= 0)
        after = calls["start"][numbered] - operators["start"][by_number[numbered]]
        is_closed = (after < 0) | (after > operators["duration"][by_number[numbered]])
        by_number[numbered[is_closed]] = -1
        by_time = intervals.innermost_at(
            calls["at"], operators["at"], operators["end"], operators["row_parent"]
        )
        row = np.where(by_number >= 0, by_number, by_time)
        self._counts.calls += len(row)
        self._counts.matched_by_time += int(((by_number < 0) & (by_time >= 0)).sum())
        calls["operator_row"] = row
        calls["operator"] = values_at(operators["id"], row)
        calls["python"] = np.where(row >= 0, -1, _inner_id(python, calls["at"]))
        captured = _rows_of(self._captured, calls["id"])
        is_here = captured >= 0
        self._captured_operator[is_here] = calls["operator"][captured[is_here]]
        return calls

    def _work(
        self, kind: schema.EventKind, start: int, end: int, calls: Columns, operators: Columns
    ) -> Columns:
        work = self._read(kind, start, end)
        row = _rows_of(work["launch"], calls["id"])
        row[work["launch"] < 0] = -1
        work["operator_row"] = values_at(calls["operator_row"], row)
        work["operator"] = values_at(calls["operator"], row)
        self._apply_callers(work, operators)
        work["captured_operator"] = values_at(
            self._captured_operator, _rows_of(work["captured"], self._captured)
        )
        return work

    @staticmethod
    def _apply_callers(work: Columns, operators: Columns) -> None:
        """Set the operator of work whose file states it (`devices`)."""
        stated = work["caller"] >= 0
        if stated.any():
            row = _rows_of(work["caller"], operators["id"])
            work["operator_row"] = np.where(stated, row, work["operator_row"])
            work["operator"] = np.where(stated, work["caller"], work["operator"])

    def _enclosed(
        self, kind: schema.EventKind, start: int, end: int, operators: Columns, python: Columns
    ) -> Columns:
        """Return rows of a kind with the innermost operator and Python function around each."""
        columns = self._read(kind, start, end)
        for name, ranges in (("operator", operators), ("python", python)):
            if name in kind.table.column_names:
                columns[name] = _inner_id(ranges, columns["at"])
        return columns

    # --- slices --------------------------------------------------------------------------------

    def _split_python(self, columns: Columns, end: int, *, final: bool) -> tuple[Columns, Columns]:
        """Return rows to store and rows to carry on.

        Rows are stored at once and may be carried on as well, since nothing is added to them.
        """
        waiting = _is_waiting(columns, end, final=final)
        closed = {name: values[columns["fresh"]] for name, values in columns.items()}
        columns["fresh"] = np.zeros(len(waiting), dtype=np.bool_)
        return closed, {name: values[waiting] for name, values in columns.items()}

    def _close_operators(
        self, columns: Columns, end: int, *, final: bool
    ) -> tuple[Columns, Columns]:
        """Return operators that have ended, with the sums of those below, and those still open."""
        waiting = _is_waiting(columns, end, final=final)
        parent = columns["row_parent"]
        amounts = np.where(waiting, 0, columns["launched_ns"] + columns["below_ns"])
        total = intervals.subtree_sums(amounts, np.where(waiting, -1, parent), columns["depth"])
        columns["below_ns"] = np.where(waiting, columns["below_ns"] + total, columns["below_ns"])
        columns["parent"] = values_at(columns["id"], parent)
        columns["fresh"] = np.zeros(len(waiting), dtype=np.bool_)
        still_open = {name: values[waiting] for name, values in columns.items()}
        columns["launched_below_ns"] = total - columns["launched_ns"]
        closed = _without(columns, waiting)
        for name in ("runtime_ns", "launched_ns", "launched_below_ns"):
            closed[name] = _or_null(closed[name])
        return closed, still_open

    def _keep_aside(
        self, kind: arguments.Kind, columns: Columns, is_wrong: NDArray[np.bool_]
    ) -> None:
        """Keep impossible rows for the table of other events, whose numbers are not added up."""
        self._set_aside.append((kind, {name: values[is_wrong] for name, values in columns.items()}))
        bounds = self._gathered.bounds
        start = columns["start"][is_wrong]
        names = columns["name"][is_wrong]
        is_outside = (start < bounds.first) | (start > bounds.last)
        self._counts.impossible_time.append((kind, names[is_outside]))
        self._counts.impossible_duration.append((kind, names[~is_outside]))


def _memory_columns(kind: schema.EventKind) -> tuple[str, ...]:
    """Return the columns that a kind has when it is read, absent ones included."""
    names = ["id", "track", "name", "start", "args"]
    names += ["duration"] if kind.is_range else []
    names += ["launch", "carry_over", "captured", "caller"] if kind.linking == "work" else []
    names += ["collective"] if kind.has_collectives else []
    return (*names, *(argument.column for argument in kind.stored_arguments))


_COLUMNS = {kind: _memory_columns(kind) for kind in schema.EVENT_KINDS}


def _sort(columns: Columns) -> Columns:
    """Sort rows in nesting order."""
    order = intervals.nesting_order(columns["at"], columns["end"])
    return {name: values[order] for name, values in columns.items()}


def _without(columns: Columns, is_marked: NDArray[np.bool_]) -> Columns:
    """Return the rows that are not marked, and the same columns if none is."""
    if not is_marked.any():
        return columns
    return {name: values[~is_marked] for name, values in columns.items()}


def _is_waiting(columns: Columns, end: int, *, final: bool) -> NDArray[np.bool_]:
    """Mark ranges that are open at the end of a slice, and the ranges around them.

    A range around an open one waits, too, even if it ends a little earlier.
    """
    if final:
        return np.zeros(len(columns["id"]), dtype=np.bool_)
    waiting: NDArray[np.bool_] = columns["start"] + columns["duration"] >= end
    parent = columns["row_parent"]
    rows = np.flatnonzero(waiting)
    while len(rows):
        rows = parent[rows]
        rows = np.unique(rows[rows >= 0])
        rows = rows[~waiting[rows]]
        waiting[rows] = True
    return waiting


def _rows_of(requested: Int, ids: Int) -> Int:
    """Return the row of each requested id, -1 for none; of several rows with one id, the last."""
    rows = np.full(len(requested), -1, dtype=np.int64)
    if not len(ids) or not len(requested):
        return rows
    low, high = int(ids.min()), int(ids.max())
    if high - low <= 4 * (len(ids) + len(requested)) + 1024:
        table = np.full(high - low + 1, -1, dtype=np.int64)
        table[ids - low] = np.arange(len(ids), dtype=np.int64)
        inside = (requested >= low) & (requested <= high)
        rows[inside] = table[requested[inside] - low]
        return rows
    order = np.argsort(ids, kind="stable")
    index = np.searchsorted(ids, requested, side="right", sorter=order) - 1
    candidate = order[np.maximum(index, 0)]
    fits = (index >= 0) & (ids[candidate] == requested)
    rows[fits] = candidate[fits]
    return rows


def _join_extents(parts: list[Columns]) -> Columns:
    """Concatenate the extents of ranges."""
    none = np.empty(0, dtype=np.int64)
    names = ("track", "at", "end", "start", "duration")
    return {name: np.concatenate([part.get(name, none) for part in parts]) for name in names}


def _inner_id(columns: Columns, at: Int) -> Int:
    """Return the id of the innermost range around each position, -1 for none."""
    row = intervals.innermost_at(at, columns["at"], columns["end"], columns["row_parent"])
    return values_at(columns["id"], row)


def _add_sums(operators: Columns, calls: Columns, work: Mapping[Any, Columns]) -> None:
    """Add the durations of calls and device work to the operators that made them."""
    for name, parts in (("runtime_ns", [calls]), ("launched_ns", list(work.values()))):
        for part in parts:
            is_linked = part["operator_row"] >= 0
            rows = part["operator_row"][is_linked]
            np.add.at(operators[name], rows, part["duration"][is_linked])


def _or_null(sums: Int) -> Any:
    """Return sums with null for nothing: nulls take no space."""
    return np.ma.MaskedArray(sums, mask=sums == 0)
