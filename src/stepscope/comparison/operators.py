"""The mean step of a run's recordings as a tree of calls, with whose each moment is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    CategoryRanges,
    Columns,
    ExposedTime,
    RuntimeCalls,
    attribute_exposed_time,
    find_rows,
    find_self_intervals,
    is_communication,
    is_data_loader,
    is_host_communication,
    is_step,
    match_rows,
    partition_steps,
)
from stepscope.comparison.mean_tree import MeanTree, StepCalls, mean_tree
from stepscope.intervals import EMPTY, Int, Intervals, contains
from stepscope.run import RecordedWork, Trace

Phases = Sequence[tuple[str, Intervals]]
EVALUATION = "evaluation"
"""No part of a step, though it lies within one."""
WHOLE = "other"
"""What is left of a step that no category or phase has."""
_TIMES = ("start_ns", "duration_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanStep:
    """Means over the recorded steps, in nanoseconds by part."""

    tree: MeanTree
    outside: dict[str, float]
    """What happened outside of all calls that are in the tree."""
    idle: dict[str, float]
    """Neither host nor device did anything that was recorded."""


def mean_step(
    recorded: Sequence[RecordedWork],
    phases_of: Callable[[RecordedWork], Phases] | None,
) -> MeanStep:
    """The mean step of some recordings of one run.

    Args:
        recorded: recordings with steps.
        phases_of: the phases of a recording's process, the first that holds a moment having it, and
            `EVALUATION` where that is left out; None to divide steps by category instead.
    """
    step_count = sum(len(one.steps.names) for one in recorded)
    every, outside, idle = [], dict[str, float](), dict[str, float]()
    for one in recorded:
        calls = _Recorded.of(one)
        phases = phases_of(one) if phases_of else []
        division = partition_steps(one.steps.extent, phases, WHOLE)
        whose = attribute_exposed_time(
            calls.claims, division, len(calls.start), by_category=phases_of is None
        )
        evaluating = dict(phases).get(EVALUATION, EMPTY)
        kept = (calls.step >= 0) & ~contains(evaluating, calls.start)
        every.append(calls.in_steps(kept, whose))
        _add(outside, whose.unowned, step_count)
        _add(outside, {part: ns[~kept].sum() for part, ns in whose.exposed.items()}, step_count)
        _add(idle, whose.idle, step_count)
    return MeanStep(tree=mean_tree(every, step_count), outside=outside, idle=idle)


def _add(sums: dict[str, float], ns: Mapping[str, float], step_count: int) -> None:
    for part, time in ns.items():
        sums[part] = sums.get(part, 0.0) + float(time) / step_count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """Calls of one recording: operators, then kernels, copies, and named ranges of the host."""

    name: Int
    names: list[str]
    parent: Int
    start: Int
    """Of what a device did, when it was launched, where that is known."""
    step: Int
    step_start: Int
    on_device: NDArray[np.bool_]
    claims: list[CategoryRanges]

    @classmethod
    def of(cls, one: RecordedWork) -> _Recorded:
        trace = one.trace
        operators = _operators(trace)
        runtime = trace.columns("runtime_calls", ("id", *_TIMES, "operator"))
        kernels = trace.columns("kernels", ("name", *_TIMES, "launch"))
        copies = trace.columns("copies", ("kind", *_TIMES, "launch"))
        marks = trace.columns("annotations", ("name", *_TIMES), condition="on_device = 0")
        named = _rows(marks, match_rows(marks["name"], _is_named))
        caller = find_rows(operators["id"], runtime["operator"])
        launched = [_launched(each, runtime, caller) for each in (kernels, copies)]
        count = len(operators["start_ns"])
        none = np.full(len(named["start_ns"]), -1, dtype=np.int64)
        parent = find_rows(operators["id"], operators["parent"])
        start = np.concatenate(
            [operators["start_ns"], *(begin for _, begin in launched), named["start_ns"]]
        )
        columns = (operators["name"], kernels["name"], copies["kind"], named["name"])
        on_device = np.zeros(len(start), dtype=np.bool_)
        on_device[count : len(start) - len(none)] = True
        first = np.cumsum([0, *(len(each.codes) for each in columns)]).tolist()
        return cls(
            **_names(columns),
            parent=np.concatenate([parent, *(above for above, _ in launched), none]),
            start=start,
            step=_step_at(start, one.steps.host),
            step_start=one.steps.host.start,
            on_device=on_device,
            claims=_claims(
                trace, operators, parent, runtime, caller, kernels, copies, named, first
            ),
        )

    def in_steps(self, kept: NDArray[np.bool_], whose: ExposedTime) -> StepCalls:
        """The calls that belong to a step, with their times."""
        row = np.cumsum(kept) - 1
        above = self.parent[kept]
        called = (above >= 0) & kept[np.maximum(above, 0)]
        step = self.step[kept]
        return StepCalls(
            name=self.name[kept],
            names=self.names,
            parent=np.where(called, row[np.maximum(above, 0)], -1),
            step=step,
            after_ns=self.start[kept] - self.step_start[step],
            on_device=self.on_device[kept],
            exposed={part: ns[kept] for part, ns in whose.exposed.items()},
            busy={part: ns[kept] for part, ns in whose.busy.items()},
        )


def _operators(trace: Trace) -> dict[str, Any]:
    """Operators without the ranges that older recorders wrote for steps."""
    found = trace.columns("operators", ("id", "name", "parent", *_TIMES))
    return _rows(found, ~match_rows(found["name"], is_step))


def _rows(columns: Columns, rows: NDArray[np.bool_]) -> dict[str, Any]:
    return {
        name: _Strings(values.codes[rows], values.values)
        if hasattr(values, "codes")
        else values[rows]
        for name, values in columns.items()
    }


@dataclass(frozen=True, slots=True)
class _Strings:
    """Some rows of a column of strings."""

    codes: NDArray[np.int32]
    values: Sequence[str | None]


def _is_named(name: str) -> bool:
    return is_data_loader(name) or is_host_communication(name)


def _launched(work: Columns, runtime: Columns, caller: Int) -> tuple[Int, Int]:
    """The operator that launched each piece of device work, -1 for none, and when it did."""
    calls = RuntimeCalls.from_columns(runtime)
    place = calls.find_rows(work["launch"])
    if not len(calls.id):
        return place, work["start_ns"]
    at = np.maximum(place, 0)
    return (
        np.where(place >= 0, caller[calls.row][at], -1),
        np.where(place >= 0, calls.start[at], work["start_ns"]),
    )


def _names(columns: Sequence[Any]) -> dict[str, Any]:
    """Strings of several columns as one."""
    names: list[str] = []
    codes = []
    for column in columns:
        code = column.codes.astype(np.int64)
        codes.append(np.where(code >= 0, code + len(names), len(names) + len(column.values)))
        names += [value or "" for value in column.values]
        names.append("")  # of what has no name
    return {"name": np.concatenate(codes), "names": names}


def _step_at(times: Int, steps: Intervals) -> Int:
    """The step in which each time lies, -1 for none."""
    place = np.searchsorted(steps.start, times, side="right") - 1
    inside = (place >= 0) & (times < steps.end[np.maximum(place, 0)])
    return np.where(inside, place, -1).astype(np.int64)


def _extent(columns: Columns) -> Intervals:
    return Intervals(columns["start_ns"], columns["start_ns"] + columns["duration_ns"])


def _claims(  # noqa: PLR0917 - what was recorded, table by table
    trace: Trace,
    operators: Columns,
    parent: Int,
    runtime: Columns,
    caller: Int,
    kernels: Columns,
    copies: Columns,
    named: Columns,
    first: Sequence[int],
) -> list[CategoryRanges]:
    """What lays claim to the time of steps, in the order of `trace_steps.CATEGORIES`.

    Args:
        first: the first row of operators, kernels, copies and named ranges among all calls.
    """
    every = [_extent(each) for each in (operators, kernels, copies, named)]
    collectives = match_rows(kernels["name"], is_communication)
    sets = match_rows(copies["kind"], lambda kind: kind == "memset")

    def claim(category: str, *chosen: tuple[int, NDArray[np.bool_]]) -> CategoryRanges:
        rows = [np.flatnonzero(mask) for _, mask in chosen]
        extents = [every[table] for table, _ in chosen]
        return CategoryRanges(
            category=category,
            extent=Intervals(
                np.concatenate([e.start[r] for e, r in zip(extents, rows, strict=True)]),
                np.concatenate([e.end[r] for e, r in zip(extents, rows, strict=True)]),
            ),
            owner=np.concatenate(
                [r + first[table] for (table, _), r in zip(chosen, rows, strict=True)]
            ),
        )

    def named_so(test: Callable[[str], bool]) -> list[tuple[int, NDArray[np.bool_]]]:
        return [
            (0, match_rows(operators["name"], test)),
            (3, match_rows(named["name"], test)),
        ]

    plain, owner = find_self_intervals(every[0], parent)
    return [
        claim("kernel", (1, ~collectives)),
        claim("memcpy", (2, ~sets)),
        claim("memset", (2, sets)),
        claim("communication", (1, collectives), *named_so(is_host_communication)),
        CategoryRanges(category="runtime", extent=_extent(runtime), owner=caller),
        claim("data_loader", *named_so(is_data_loader)),
        CategoryRanges(category="cpu_exec", extent=plain, owner=owner),
        _around_operators(trace),
    ]


def _around_operators(trace: Trace) -> CategoryRanges:
    """Python functions and annotations: what the host does outside of operators."""
    marks = trace.columns("annotations", ("name", *_TIMES), condition="on_device = 0")
    plain = ~match_rows(marks["name"], lambda name: is_step(name) or _is_named(name))
    functions = _extent(trace.columns("python_functions", _TIMES))
    other = _extent(_rows(marks, plain)) if plain.any() else EMPTY
    extent = Intervals(
        np.concatenate([functions.start, other.start]), np.concatenate([functions.end, other.end])
    )
    return CategoryRanges(
        category="cpu_exec", extent=extent, owner=np.full(len(extent.start), -1, dtype=np.int64)
    )
