"""Mean step of a run's traces as a tree of calls with their exposed time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    TIME_COLUMNS,
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
    make_intervals,
    match_rows,
    partition_steps,
)
from stepscope.comparison.mean_tree import MeanTree, StepCalls, build_mean_tree
from stepscope.intervals import EMPTY, Int, Intervals, contains
from stepscope.run import RecordedWork, Trace

Phases = Sequence[tuple[str, Intervals]]
EVALUATION = "evaluation"
"""Evaluation within a step; it is excluded from the step."""
REMAINDER = "other"
"""Part of a step without a category or phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanStep:
    """Means over the recorded steps, in nanoseconds by part."""

    tree: MeanTree
    outside: dict[str, float]
    """Time outside of all calls of the tree."""
    idle: dict[str, float]
    """Time without any recorded activity on host or device."""


def build_mean_step(
    works: Sequence[RecordedWork],
    find_phases: Callable[[RecordedWork], Phases] | None,
) -> MeanStep:
    """Build the mean step of some traces of one run.

    Args:
        works: work and steps of each trace.
        find_phases: phases of the process of a trace, `EVALUATION` among them; of overlapping
            phases the first has precedence. None to divide steps by category instead.
    """
    step_count = sum(len(work.steps.names) for work in works)
    step_calls, outside, idle = [], dict[str, float](), dict[str, float]()
    for work in works:
        calls = _TraceCalls.load(work)
        phases = find_phases(work) if find_phases else []
        partition = partition_steps(work.steps.extent, phases, REMAINDER)
        times = attribute_exposed_time(
            calls.claims, partition, len(calls.start), by_category=find_phases is None
        )
        evaluation = dict(phases).get(EVALUATION, EMPTY)
        in_step = (calls.step >= 0) & ~contains(evaluation, calls.start)
        step_calls.append(calls.select(in_step, times))
        outside_calls = {part: ns[~in_step].sum() for part, ns in times.exposed.items()}
        _add_means(outside, times.unowned, step_count)
        _add_means(outside, outside_calls, step_count)
        _add_means(idle, times.idle, step_count)
    return MeanStep(tree=build_mean_tree(step_calls, step_count), outside=outside, idle=idle)


def _add_means(means: dict[str, float], ns: Mapping[str, float], step_count: int) -> None:
    for part, time in ns.items():
        means[part] = means.get(part, 0.0) + float(time) / step_count


@dataclass(frozen=True, slots=True, kw_only=True)
class _TraceCalls:
    """Calls of one trace: operators, then kernels, copies, and named ranges of the host."""

    name: Int
    names: list[str]
    parent: Int
    start: Int
    """Start; of device work its launch, where known."""
    step: Int
    step_start: Int
    on_device: NDArray[np.bool_]
    claims: list[CategoryRanges]

    @classmethod
    def load(cls, work: RecordedWork) -> _TraceCalls:
        """Load the calls of a trace."""
        trace = work.trace
        operators = _load_operators(trace)
        runtime = trace.columns("runtime_calls", ("id", *TIME_COLUMNS, "operator"))
        kernels = trace.columns("kernels", ("name", *TIME_COLUMNS, "launch"))
        copies = trace.columns("copies", ("kind", *TIME_COLUMNS, "launch"))
        marks = trace.columns("annotations", ("name", *TIME_COLUMNS), condition="on_device = 0")
        ranges = _select_rows(marks, match_rows(marks["name"], _is_named_range))
        caller = find_rows(operators["id"], runtime["operator"])
        launches = [_find_launches(table, runtime, caller) for table in (kernels, copies)]
        no_parent = np.full(len(ranges["start_ns"]), -1, dtype=np.int64)
        parent = find_rows(operators["id"], operators["parent"])
        start = np.concatenate(
            [operators["start_ns"], *(launch for _, launch in launches), ranges["start_ns"]]
        )
        columns = (operators["name"], kernels["name"], copies["kind"], ranges["name"])
        on_device = np.zeros(len(start), dtype=np.bool_)
        on_device[len(operators["start_ns"]) : len(start) - len(no_parent)] = True
        tables = _Tables(
            operators=operators, kernels=kernels, copies=copies, ranges=ranges, parent=parent
        )
        return cls(
            **_join_names(columns),
            parent=np.concatenate([parent, *(operator for operator, _ in launches), no_parent]),
            start=start,
            step=_find_steps(start, work.steps.host),
            step_start=work.steps.host.start,
            on_device=on_device,
            claims=[
                *tables.list_work_claims(),
                CategoryRanges(category="runtime", extent=make_intervals(runtime), owner=caller),
                *tables.list_host_claims(),
                _find_host_activity(trace),
            ],
        )

    def select(self, in_step: NDArray[np.bool_], times: ExposedTime) -> StepCalls:
        """Select the calls of steps, with their times."""
        row = np.cumsum(in_step) - 1
        caller = self.parent[in_step]
        has_caller = (caller >= 0) & in_step[np.maximum(caller, 0)]
        step = self.step[in_step]
        return StepCalls(
            name=self.name[in_step],
            names=self.names,
            parent=np.where(has_caller, row[np.maximum(caller, 0)], -1),
            step=step,
            after_ns=self.start[in_step] - self.step_start[step],
            on_device=self.on_device[in_step],
            exposed={part: ns[in_step] for part, ns in times.exposed.items()},
            busy={part: ns[in_step] for part, ns in times.busy.items()},
        )


def _load_operators(trace: Trace) -> dict[str, Any]:
    """Load operators without the ranges that older profilers record for steps."""
    operators = trace.columns("operators", ("id", "name", "parent", *TIME_COLUMNS))
    return _select_rows(operators, ~match_rows(operators["name"], is_step))


def _select_rows(columns: Columns, rows: NDArray[np.bool_]) -> dict[str, Any]:
    return {
        name: _Strings(values.codes[rows], values.values)
        if hasattr(values, "codes")
        else values[rows]
        for name, values in columns.items()
    }


@dataclass(frozen=True, slots=True)
class _Strings:
    """Selected rows of a column of strings."""

    codes: NDArray[np.int32]
    values: Sequence[str | None]


def _is_named_range(name: str) -> bool:
    return is_data_loader(name) or is_host_communication(name)


def _find_launches(work: Columns, runtime: Columns, caller: Int) -> tuple[Int, Int]:
    """Find the operator that launched each piece of device work, -1 for none, and the time of the
    launch."""
    calls = RuntimeCalls.from_columns(runtime)
    index = calls.find_rows(work["launch"])
    if not len(calls.id):
        return index, work["start_ns"]
    row = np.maximum(index, 0)
    return (
        np.where(index >= 0, caller[calls.row][row], -1),
        np.where(index >= 0, calls.start[row], work["start_ns"]),
    )


def _join_names(columns: Sequence[Any]) -> dict[str, Any]:
    """Join the strings of several columns into one."""
    names: list[str] = []
    codes = []
    for column in columns:
        code = column.codes.astype(np.int64)
        codes.append(np.where(code >= 0, code + len(names), len(names) + len(column.values)))
        names += [value or "" for value in column.values]
        names.append("")  # for rows without a name
    return {"name": np.concatenate(codes), "names": names}


def _find_steps(times: Int, steps: Intervals) -> Int:
    """Find the step of each time, -1 for none."""
    index = np.searchsorted(steps.start, times, side="right") - 1
    is_inside = (index >= 0) & (times < steps.end[np.maximum(index, 0)])
    return np.where(is_inside, index, -1).astype(np.int64)


_Selection = tuple[int, NDArray[np.bool_]]
"""Index of a table, and a mask of its rows."""
_OPERATORS, _KERNELS, _COPIES, _RANGES = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tables:
    """Tables with calls, in the order of the rows of `_TraceCalls`."""

    operators: Columns
    kernels: Columns
    copies: Columns
    ranges: Columns
    parent: Int
    """Row of the caller of each operator."""

    def list_work_claims(self) -> list[CategoryRanges]:
        """List the categories of device work and communication, by descending priority as in
        `analysis.CATEGORIES`."""
        is_collective = match_rows(self.kernels["name"], is_communication)
        is_set = match_rows(self.copies["kind"], lambda kind: kind == "memset")
        return [
            self._claim("kernel", (_KERNELS, ~is_collective)),
            self._claim("memcpy", (_COPIES, ~is_set)),
            self._claim("memset", (_COPIES, is_set)),
            self._claim(
                "communication",
                (_KERNELS, is_collective),
                *self._select_names(is_host_communication),
            ),
        ]

    def list_host_claims(self) -> list[CategoryRanges]:
        """List the categories of host work, by descending priority."""
        extent, owner = find_self_intervals(make_intervals(self.operators), self.parent)
        return [
            self._claim("data_loader", *self._select_names(is_data_loader)),
            CategoryRanges(category="cpu_exec", extent=extent, owner=owner),
        ]

    def _select_names(self, test: Callable[[str], bool]) -> list[_Selection]:
        return [
            (_OPERATORS, match_rows(self.operators["name"], test)),
            (_RANGES, match_rows(self.ranges["name"], test)),
        ]

    def _claim(self, category: str, *selections: _Selection) -> CategoryRanges:
        """Claim the time of the selected rows for a category and for their calls."""
        tables = (self.operators, self.kernels, self.copies, self.ranges)
        offsets = np.cumsum([0, *(len(table["start_ns"]) for table in tables)]).tolist()
        rows = [np.flatnonzero(mask) for _, mask in selections]
        extents = [make_intervals(tables[table]) for table, _ in selections]
        return CategoryRanges(
            category=category,
            extent=Intervals(
                np.concatenate([e.start[r] for e, r in zip(extents, rows, strict=True)]),
                np.concatenate([e.end[r] for e, r in zip(extents, rows, strict=True)]),
            ),
            owner=np.concatenate(
                [r + offsets[table] for (table, _), r in zip(selections, rows, strict=True)]
            ),
        )


def _find_host_activity(trace: Trace) -> CategoryRanges:
    """Find Python functions and annotations: work of the host outside of operators."""
    marks = trace.columns("annotations", ("name", *TIME_COLUMNS), condition="on_device = 0")
    is_plain = ~match_rows(marks["name"], lambda name: is_step(name) or _is_named_range(name))
    functions = make_intervals(trace.columns("python_functions", TIME_COLUMNS))
    annotations = make_intervals(marks, is_plain)
    extent = Intervals(
        np.concatenate([functions.start, annotations.start]),
        np.concatenate([functions.end, annotations.end]),
    )
    return CategoryRanges(
        category="cpu_exec", extent=extent, owner=np.full(len(extent.start), -1, dtype=np.int64)
    )
