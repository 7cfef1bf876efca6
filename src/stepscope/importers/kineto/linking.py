"""Who called whom: launch to kernel, operator to launch, parent to operator, gradient to forward.

A file is linked slice by slice of time, so that memory stays bounded:

- A launch and its kernel may lie far apart. They are joined by correlation over the whole file
  first, and device work then belongs to the slice of its launch.
- Ranges that are still open at the end of a slice are carried into the next. An operator among
  them is stored when it ends, with what it called in all slices.

All times here are positions: time since the first event, plus a stretch per track that is longer
than the file, so that one sort and one search serve all tracks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto.decode import Columns
from stepscope.importers.kineto.gather import Gathered, absent, impossible
from stepscope.importers.kineto.joins import (
    CALL_KINDS,
    DEVICE_KINDS,
    Counts,
    Forwards,
    Positions,
    taken,
)
from stepscope.importers.kineto.kinds import Kind
from stepscope.intervals import (
    OVERHANG_NS,
    depths,
    innermost_at,
    nest,
    nesting_order,
    subtree_sums,
)

Int = NDArray[np.int64]


@dataclass(slots=True)
class Linked:
    """One slice, linked. Rows are sorted by track, then start, outer before inner."""

    operators: Columns = field(default_factory=dict)
    annotations: Columns = field(default_factory=dict)
    calls: Columns = field(default_factory=dict)
    python: Columns = field(default_factory=dict)
    memory: Columns = field(default_factory=dict)
    device: dict[Kind, Columns] = field(default_factory=dict)
    device_annotations: Columns = field(default_factory=dict)
    others: list[tuple[Kind, Columns]] = field(default_factory=list)
    """Events of no other table, and those with impossible times."""
    around: Columns = field(default_factory=dict)
    """Extents of ranges of other slices that were open in this one."""

    def last_end(self) -> int:
        """Latest end of any range, relative to the base of the file."""
        parts = [
            self.operators,
            self.annotations,
            self.calls,
            self.python,
            self.device_annotations,
            *self.device.values(),
        ]
        ends = [int((p["start"] + p["duration"]).max()) for p in parts if len(p["id"])]
        return max(ends, default=np.iinfo(np.int64).min)


class Linker:
    """Links slices in the order of time."""

    def __init__(self, gathered: Gathered, counts: Counts) -> None:
        self._gathered = gathered
        self._counts = counts
        self._positions = Positions(gathered.bounds)
        self._forwards = Forwards(gathered)
        self._open_operators: Columns = {}
        self._open_python: Columns = {}
        self._open_annotations: Columns = {}
        self._aside: list[tuple[Kind, Columns]] = []
        launches = [gathered.select(kind, ("captured",), "captured") for kind in DEVICE_KINDS]
        self._captured = np.unique(np.concatenate([each["captured"] for each in launches]))
        self._captured_operator = np.full(len(self._captured), -1, dtype=np.int64)

    def link(self, start: int, end: int, *, final: bool) -> Linked:
        """The rows of [start, end), and of ranges that were open before and end in it."""
        slice_ = Linked()
        python = self._python(start, end)
        operators = self._operators(start, end)
        calls = self._calls(start, end)
        slice_.calls = self._link_calls(calls, operators, python)
        slice_.device = {
            kind: self._device(kind, start, end, slice_.calls) for kind in DEVICE_KINDS
        }
        self._sum_up(operators, slice_)
        inside = _inner_id(python, operators["at"])
        operators["python"] = np.where(operators["fresh"], inside, operators.get("python", inside))
        operators["forward"] = self._forwards.of(
            operators["sequence"], operators["forward_thread"], operators["start"]
        )
        around = [self._open_python, self._open_annotations]
        slice_.annotations = self._read(Kind.ANNOTATION, start, end)
        slice_.annotations["python"] = _inner_id(python, slice_.annotations["at"])
        slice_.device_annotations = self._read(Kind.DEVICE_ANNOTATION, start, end)
        slice_.memory = self._read(Kind.MEMORY, start, end)
        slice_.memory["operator"] = _inner_id(operators, slice_.memory["at"])
        slice_.operators, self._open_operators = self._part(operators, end, final=final)
        closed, self._open_python = self._part(python, end, final=final, keep_open=True)
        slice_.python = closed
        slice_.around = _joined([*around, self._open_operators])
        annotations = _joined([self._open_annotations, slice_.annotations])
        waiting = annotations["start"] + annotations["duration"] >= end
        self._open_annotations = {name: each[waiting] for name, each in annotations.items()}
        others = self._gathered.between(Kind.OTHER, start, end)
        slice_.others = [*self._aside, *([(Kind.OTHER, others)] if others else [])]
        self._aside = []
        return slice_

    # --- kinds ---------------------------------------------------------------------------------

    def _read(self, kind: Kind, start: int, end: int) -> Columns:
        """Possible rows of a kind, sorted, with their positions."""
        return _sorted(self._placed(kind, start, end))

    def _placed(self, kind: Kind, start: int, end: int) -> Columns:
        """Possible rows of a kind with their positions."""
        columns = self._gathered.between(kind, start, end)
        if not columns:
            columns = {name: absent(name, 0) for name in _COLUMNS[kind]}
        for name in _COLUMNS[kind]:
            if name not in columns:
                columns[name] = absent(name, len(columns["id"]))
        wrong = impossible(columns, self._gathered.bounds)
        if wrong.any():
            self._set_aside(kind, columns, wrong)
            columns = {name: values[~wrong] for name, values in columns.items()}
        columns["at"] = self._positions.of(columns["start"], columns["track"])
        columns["end"] = columns["at"] + columns.get("duration", np.int64(0))
        return columns

    def _nested(self, kind: Kind, start: int, end: int, still_open: Columns) -> Columns:
        columns = self._placed(kind, start, end)
        columns["fresh"] = np.ones(len(columns["id"]), dtype=np.bool_)
        if still_open:
            known = {name: columns.get(name) for name in still_open}
            columns = {
                name: np.concatenate(
                    [
                        values,
                        known[name]
                        if known[name] is not None
                        else np.zeros(len(columns["id"]), dtype=values.dtype),
                    ]
                )
                for name, values in still_open.items()
            }
        columns = _sorted(columns)
        columns["row_parent"], excess = nest(columns["at"], columns["end"], OVERHANG_NS)
        columns["depth"] = depths(columns["row_parent"])
        fresh = excess[columns["fresh"]]
        self._counts.ranges += len(fresh)
        self._counts.overhangs += int((fresh > 0).sum())
        worst = int(fresh.max(initial=0))
        self._counts.worst_overhang_ns = max(self._counts.worst_overhang_ns, worst)
        return columns

    def _operators(self, start: int, end: int) -> Columns:
        columns = self._nested(Kind.OPERATOR, start, end, self._open_operators)
        for name in ("runtime_ns", "launched_ns", "below_ns"):
            columns.setdefault(name, np.zeros(len(columns["id"]), dtype=np.int64))
        return columns

    def _python(self, begin: int, end: int) -> Columns:
        columns = self._nested(Kind.PYTHON, begin, end, self._open_python)
        rows = len(columns["id"])
        fresh, parent = columns["fresh"], columns["row_parent"].copy()
        by_id = _rows_of(columns["python_parent"], columns["python_id"])
        named = np.flatnonzero((by_id >= 0) & (columns["python_parent"] >= 0))
        caller, start = by_id[named], columns["start"]
        # It may be on another thread, and over: recorders have it so. One that began later is
        # none: never a circle.
        same = columns["track"][caller] == columns["track"][named]
        calls = (start[caller] < start[named]) | (same & (caller < named))
        parent[named[calls]] = caller[calls]
        for name in ("parent", "module"):
            columns.setdefault(name, absent("id", rows))
        columns["parent"] = np.where(fresh, _ids(columns, parent), columns["parent"])
        is_module = columns["module_id"] >= 0
        module = np.where(is_module, np.arange(rows, dtype=np.int64), parent)
        while True:  # up to a module, or to a function whose module is known
            asking = np.flatnonzero(module >= 0)
            asking = asking[fresh[module[asking]] & ~is_module[module[asking]]]
            if not len(asking):
                break
            module[asking] = parent[module[asking]]
        known = np.where(is_module, columns["id"], columns["module"])
        columns["module"] = np.where(fresh, taken(known, module), columns["module"])
        return columns

    def _calls(self, start: int, end: int) -> Columns:
        found = []
        for kind in CALL_KINDS:
            columns = self._read(kind, start, end)
            columns["driver"] = np.full(
                len(columns["id"]), int(kind is Kind.DRIVER), dtype=np.int64
            )
            found.append(columns)
        joined = {name: np.concatenate([c[name] for c in found]) for name in found[0]}
        return _sorted(joined) if len(found[1]["id"]) else joined

    def _link_calls(self, calls: Columns, operators: Columns, python: Columns) -> Columns:
        """Operator of each call: by the number that both carry, else by time."""
        by_number = _rows_of(calls["external"], operators["external"])
        by_number[calls["external"] <= 0] = -1
        # Some recorders write another number there: only an operator that is open can have called.
        named = np.flatnonzero(by_number >= 0)
        begin = operators["start"][by_number[named]]
        after = calls["start"][named] - begin
        closed = (after < 0) | (after > operators["duration"][by_number[named]])
        by_number[named[closed]] = -1
        by_time = innermost_at(
            calls["at"], operators["at"], operators["end"], operators["row_parent"]
        )
        row = np.where(by_number >= 0, by_number, by_time)
        self._counts.calls += len(row)
        self._counts.matched_by_time += int(((by_number < 0) & (by_time >= 0)).sum())
        calls["operator_row"] = row
        calls["operator"] = _ids(operators, row)
        calls["python"] = np.where(row >= 0, -1, _inner_id(python, calls["at"]))
        captured = _rows_of(self._captured, calls["id"])
        here = captured >= 0
        self._captured_operator[here] = calls["operator"][captured[here]]
        return calls

    def _device(self, kind: Kind, start: int, end: int, calls: Columns) -> Columns:
        work = self._read(kind, start, end)
        row = _rows_of(work["launch"], calls["id"])
        row[work["launch"] < 0] = -1
        work["operator_row"] = taken(calls["operator_row"], row)
        work["operator"] = taken(calls["operator"], row)
        work["captured_operator"] = taken(
            self._captured_operator, _rows_of(work["captured"], self._captured)
        )
        return work

    def _sum_up(self, operators: Columns, slice_: Linked) -> None:
        """Adds what the slice's calls and work mean to the operators that made them."""
        _add(operators["runtime_ns"], slice_.calls["operator_row"], slice_.calls["duration"])
        for work in slice_.device.values():
            _add(operators["launched_ns"], work["operator_row"], work["duration"])

    def _part(
        self, columns: Columns, end: int, *, final: bool, keep_open: bool = False
    ) -> tuple[Columns, Columns]:
        """Rows to store now, and rows to carry on. Python functions are stored at once and
        carried on as well, since nothing is added to them later."""
        if final:
            waiting = np.zeros(len(columns["id"]), dtype=np.bool_)
        else:
            waiting = columns["start"] + columns["duration"] >= end
            _wait_for_inner(waiting, columns["row_parent"])
        if keep_open:
            closed = {name: values[columns["fresh"]] for name, values in columns.items()}
        else:
            closed = self._close_operators(columns, waiting)
        columns["fresh"] = np.zeros(len(waiting), dtype=np.bool_)
        return closed, {name: values[waiting] for name, values in columns.items()}

    @staticmethod
    def _close_operators(columns: Columns, waiting: NDArray[np.bool_]) -> Columns:
        """Sums over the operators below, of those that have ended."""
        parent = columns["row_parent"]
        own = columns["launched_ns"] + columns["below_ns"]
        own = np.where(waiting, 0, own)
        total = subtree_sums(own, np.where(waiting, -1, parent), columns["depth"])
        columns["below_ns"] = np.where(waiting, columns["below_ns"] + total, columns["below_ns"])
        columns["device_total"] = total
        columns["parent"] = _ids(columns, parent)
        return {name: values[~waiting] for name, values in columns.items()}

    def _set_aside(self, kind: Kind, columns: Columns, wrong: NDArray[np.bool_]) -> None:
        """Impossible rows are kept, but in no table whose numbers are added up."""
        self._aside.append((kind, {name: values[wrong] for name, values in columns.items()}))
        bounds = self._gathered.bounds
        start = columns["start"][wrong]
        late = (start < bounds.first) | (start > bounds.last)
        self._counts.impossible_time += int(late.sum())
        self._counts.impossible_duration += int((~late).sum())


_RANGE = ("id", "track", "name", "start", "duration", "args")
_DEVICE = (
    *_RANGE,
    "correlation",
    "device",
    "launch",
    "carry_over",
    "captured",
    "graph",
    "graph_node",
    "collective",
)
_COLUMNS: dict[Kind, tuple[str, ...]] = {
    Kind.OPERATOR: (
        *_RANGE,
        "external",
        "sequence",
        "forward_thread",
        "record_function",
        "collective",
        "input_dims",
        "input_types",
        "input_strides",
        "concrete_inputs",
        "call_stack",
    ),
    Kind.ANNOTATION: _RANGE,
    Kind.DEVICE_ANNOTATION: _RANGE,
    Kind.RUNTIME: (*_RANGE, "external", "correlation"),
    Kind.DRIVER: (*_RANGE, "external", "correlation"),
    Kind.KERNEL: (
        *_DEVICE,
        "grid",
        "block",
        "registers",
        "shared_memory",
        "blocks",
        "warps",
        "occupancy",
    ),
    Kind.MEMCPY: (*_DEVICE, "size"),
    Kind.MEMSET: (*_DEVICE, "size"),
    Kind.PYTHON: (*_RANGE, "python_id", "python_parent", "module_id"),
    Kind.MEMORY: (
        "id",
        "track",
        "name",
        "start",
        "args",
        "device_type",
        "device",
        "address",
        "size",
        "allocated",
        "reserved",
    ),
}
"""The columns that every kind has once it is read, absent ones included."""


def _sorted(columns: Columns) -> Columns:
    """Rows with positions, in nesting order."""
    order = nesting_order(columns["at"], columns["end"])
    return {name: values[order] for name, values in columns.items()}


def _wait_for_inner(waiting: NDArray[np.bool_], parent: Int) -> None:
    """What is around a range that waits waits too, even if it ends a little earlier."""
    asking = np.flatnonzero(waiting)
    while len(asking):
        asking = parent[asking]
        asking = np.unique(asking[asking >= 0])
        asking = asking[~waiting[asking]]
        waiting[asking] = True


def _rows_of(wanted: Int, ids: Int) -> Int:
    """Row of each wanted id, -1 for none. Of several rows with one id the last is taken."""
    found = np.full(len(wanted), -1, dtype=np.int64)
    if not len(ids) or not len(wanted):
        return found
    low, high = int(ids.min()), int(ids.max())
    if high - low <= 4 * (len(ids) + len(wanted)) + 1024:
        table = np.full(high - low + 1, -1, dtype=np.int64)
        table[ids - low] = np.arange(len(ids), dtype=np.int64)
        inside = (wanted >= low) & (wanted <= high)
        found[inside] = table[wanted[inside] - low]
        return found
    order = np.argsort(ids, kind="stable")
    place = np.searchsorted(ids, wanted, side="right", sorter=order) - 1
    candidate = order[np.maximum(place, 0)]
    fits = (place >= 0) & (ids[candidate] == wanted)
    found[fits] = candidate[fits]
    return found


def _ids(columns: Columns, rows: Int) -> Int:
    return taken(columns["id"], rows)


def _joined(parts: list[Columns]) -> Columns:
    """Extents of ranges, one part after the other."""
    none = np.empty(0, dtype=np.int64)
    names = ("track", "at", "end", "start", "duration")
    return {name: np.concatenate([part.get(name, none) for part in parts]) for name in names}


def _inner_id(columns: Columns, at: Int) -> Int:
    """Id of the innermost range around each position, -1 for none."""
    return _ids(columns, innermost_at(at, columns["at"], columns["end"], columns["row_parent"]))


def _add(sums: Int, rows: Int, amounts: Int) -> None:
    chosen = rows >= 0
    np.add.at(sums, rows[chosen], amounts[chosen])
