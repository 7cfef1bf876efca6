"""Mean step of a run's traces as a tree of calls with their exposed time.

Calls of the mean step: one tree for all steps of a run. A call is identified by its path: the path
of its caller, its name, and the number of earlier calls of this name by the same caller. Calls of
several steps with one path are one node, whose times are means over all steps. So the times of all
nodes sum to those of the mean step, even where steps make different calls. Nodes of one caller are
ordered by their mean distance from the start of the step: in the order of the calls, where every
step makes the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, run

Float = NDArray[np.float64]


class StepCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls in the steps of one trace (operators, kernels and others); one entry each."""

    name: intervals.Int
    """Index in `names`."""
    names: Sequence[str]
    parent: intervals.Int
    """Row of the caller, -1 for none."""
    step: intervals.Int
    """Index of the step; every call is in one."""
    after_ns: intervals.Int
    """Time since the start of the step."""
    on_device: NDArray[np.bool_]
    exposed: Mapping[str, Float]
    """Exposed nanoseconds by part of the step."""
    busy: Mapping[str, Float]
    """Duration in nanoseconds by part of the step, whatever runs at the same time."""


class MeanTree(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes of the mean step; one entry each, a caller before its calls."""

    name: list[str]
    parent: list[int]
    """Node of the caller, -1 for none."""
    children: list[list[int]]
    """Calls of each node in their order, and last the calls without a caller."""
    on_device: NDArray[np.bool_]
    calls: Float
    """Number of calls in the mean step."""
    exposed: dict[str, Float]
    """Nanoseconds of the mean step, by part."""
    busy: dict[str, Float]

    def __len__(self) -> int:
        return len(self.name)


def build_mean_tree(traces: Sequence[StepCalls], step_count: int) -> MeanTree:
    """Build the tree of the mean step.

    Args:
        traces: calls of each trace of a run.
        step_count: steps of all traces.
    """
    calls = _concatenate(traces)
    node = _assign_nodes(calls)
    count = int(node.max(initial=-1)) + 1
    first = np.zeros(count, dtype=np.int64)
    first[node[::-1]] = np.arange(len(node))[::-1]
    call_counts = np.bincount(node, minlength=count).astype(np.float64)
    caller_row = calls.parent[first]
    parent = np.where(caller_row >= 0, node[caller_row], -1) if count else caller_row
    after = np.bincount(node, weights=calls.after_ns, minlength=count) / np.maximum(call_counts, 1)

    def average(values: Mapping[str, Float]) -> dict[str, Float]:
        return {
            part: np.bincount(node, weights=ns, minlength=count) / max(1, step_count)
            for part, ns in values.items()
        }

    return MeanTree(
        name=[calls.names[code] for code in calls.name[first].tolist()],
        parent=parent.tolist(),
        children=_list_children(parent, after),
        on_device=calls.on_device[first],
        calls=call_counts / max(1, step_count),
        exposed=average(calls.exposed),
        busy=average(calls.busy),
    )


def _concatenate(traces: Sequence[StepCalls]) -> StepCalls:
    """Concatenate the calls of all traces; names, rows and steps are renumbered."""
    names = list(dict.fromkeys(name for trace in traces for name in trace.names))
    code_of = {name: code for code, name in enumerate(names)}
    rows = np.cumsum([0, *(len(trace.name) for trace in traces)])
    steps = np.cumsum([0, *(int(trace.step.max(initial=-1)) + 1 for trace in traces)])
    parts = list(dict.fromkeys(part for trace in traces for part in trace.exposed))
    empty = np.empty(0, dtype=np.int64)

    def join(values: Sequence[intervals.Int]) -> intervals.Int:
        return np.concatenate([empty, *values])

    def join_parts(values: Sequence[Mapping[str, Float]]) -> dict[str, Float]:
        sized = list(zip(values, (len(trace.name) for trace in traces), strict=True))
        return {
            part: np.concatenate([empty, *(times.get(part, np.zeros(n)) for times, n in sized)])
            for part in parts
        }

    codes = [np.array([code_of[n] for n in trace.names], dtype=np.int64) for trace in traces]
    return StepCalls(
        name=join([code[trace.name] for code, trace in zip(codes, traces, strict=True)]),
        names=names,
        parent=join(
            [
                np.where(trace.parent >= 0, trace.parent + row, -1)
                for trace, row in zip(traces, rows.tolist(), strict=False)
            ]
        ),
        step=join([trace.step + step for trace, step in zip(traces, steps.tolist(), strict=False)]),
        after_ns=join([trace.after_ns for trace in traces]),
        on_device=join([trace.on_device.astype(np.int64) for trace in traces]).astype(np.bool_),
        exposed=join_parts([trace.exposed for trace in traces]),
        busy=join_parts([trace.busy for trace in traces]),
    )


def _assign_nodes(calls: StepCalls) -> intervals.Int:
    """Assign a node to each call, level by level from the roots."""
    depth = intervals.depths(calls.parent)
    node = np.full(len(depth), -1, dtype=np.int64)
    count, name_count = 0, max(1, len(calls.names))
    by_depth = np.argsort(depth, kind="stable")
    cuts = np.searchsorted(depth[by_depth], np.arange(int(depth.max(initial=-1)) + 2))
    for start, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        rows = by_depth[start:end]
        parent, name = calls.parent[rows], calls.name[rows]
        # Calls without a caller are numbered within their step.
        caller = np.where(parent >= 0, parent, -1 - calls.step[rows])
        ordinal = _number_calls(caller, name, calls.after_ns[rows])
        path = np.where(parent >= 0, node[parent], -1) + 1
        key = (path * name_count + name) * (int(ordinal.max(initial=0)) + 1) + ordinal
        unique, index = np.unique(key, return_inverse=True)
        node[rows] = count + index.ravel()
        count += len(unique)
    return node


def _number_calls(
    caller: intervals.Int, name: intervals.Int, after_ns: intervals.Int
) -> intervals.Int:
    """Number the calls of each name by each caller, from 0 in the order of time."""
    order = np.lexsort((after_ns, name, caller))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = (np.diff(caller[order]) != 0) | (np.diff(name[order]) != 0)
    indices = np.arange(len(order))
    ordinals = np.empty(len(order), dtype=np.int64)
    ordinals[order] = indices - np.maximum.accumulate(np.where(is_first, indices, 0))
    return ordinals


def _list_children(parent: intervals.Int, after: Float) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in range(len(parent) + 1)]
    order = np.argsort(after, kind="stable")
    for node, caller in zip(order.tolist(), parent[order].tolist(), strict=True):
        children[caller].append(node)
    return children


Phases = Sequence[tuple[str, intervals.Intervals]]
EVALUATION = "evaluation"
"""Evaluation within a step; it is excluded from the step."""
REMAINDER = "other"
"""Part of a step without a category or phase."""


class MeanStep(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the recorded steps, in nanoseconds by part."""

    tree: MeanTree
    outside: dict[str, float]
    """Time outside of all calls of the tree."""
    idle: dict[str, float]
    """Time without any recorded activity on host or device."""


def build_mean_step(
    works: Sequence[run.RecordedWork], find_phases: Callable[[run.RecordedWork], Phases] | None
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
        partition = analysis.partition_steps(work.steps.extent, phases, REMAINDER)
        times = analysis.attribute_exposed_time(
            calls.claims, partition, len(calls.start), by_category=find_phases is None
        )
        evaluation = dict(phases).get(EVALUATION, intervals.EMPTY)
        in_step = (calls.step >= 0) & ~intervals.contains(evaluation, calls.start)
        step_calls.append(calls.select(in_step, times))
        outside_calls = {part: ns[~in_step].sum() for part, ns in times.exposed.items()}
        _add_means(outside, times.unowned, step_count)
        _add_means(outside, outside_calls, step_count)
        _add_means(idle, times.idle, step_count)
    return MeanStep(tree=build_mean_tree(step_calls, step_count), outside=outside, idle=idle)


def _add_means(means: dict[str, float], ns: Mapping[str, float], step_count: int) -> None:
    for part, time in ns.items():
        means[part] = means.get(part, 0.0) + float(time) / step_count


class _TraceCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one trace: operators, then kernels, copies, and named ranges of the host."""

    name: intervals.Int
    names: list[str]
    parent: intervals.Int
    start: intervals.Int
    """Start; of device work its launch, where known."""
    step: intervals.Int
    step_start: intervals.Int
    on_device: NDArray[np.bool_]
    claims: list[analysis.CategoryRanges]

    @classmethod
    def load(cls, work: run.RecordedWork) -> _TraceCalls:
        """Load the calls of a trace."""
        trace = work.trace
        operators = _load_operators(trace)
        runtime = trace.columns("runtime_calls", ("id", *analysis.TIME_COLUMNS, "operator"))
        kernels = trace.columns("kernels", ("name", *analysis.TIME_COLUMNS, "launch"))
        copies = trace.columns("copies", ("kind", *analysis.TIME_COLUMNS, "launch"))
        marks = trace.columns(
            "annotations", ("name", *analysis.TIME_COLUMNS), condition="on_device = 0"
        )
        ranges = _select_rows(marks, analysis.match_rows(marks["name"], _is_named_range))
        caller = analysis.find_rows(operators["id"], runtime["operator"])
        launches = [_find_launches(table, runtime, caller) for table in (kernels, copies)]
        no_parent = np.full(len(ranges["start_ns"]), -1, dtype=np.int64)
        parent = analysis.find_rows(operators["id"], operators["parent"])
        start = np.concatenate(
            [operators["start_ns"], *(launch for _, launch in launches), ranges["start_ns"]]
        )
        columns = (operators["name"], kernels["name"], copies["kind"], ranges["name"])
        on_device = np.zeros(len(start), dtype=np.bool_)
        on_device[len(operators["start_ns"]) : len(start) - len(no_parent)] = True
        tables = _Tables(
            operators=operators,
            kernels=kernels,
            copies=copies,
            ranges=ranges,
            parent=parent,
            is_collective=trace.collectives.predicate(),
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
                analysis.CategoryRanges(
                    category="runtime", extent=analysis.make_intervals(runtime), owner=caller
                ),
                *tables.list_host_claims(),
                _find_host_activity(trace),
            ],
        )

    def select(self, in_step: NDArray[np.bool_], times: analysis.ExposedTime) -> StepCalls:
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


def _load_operators(trace: run.Trace) -> dict[str, Any]:
    """Load operators without the ranges that older profilers record for steps."""
    operators = trace.columns("operators", ("id", "name", "parent", *analysis.TIME_COLUMNS))
    return _select_rows(operators, ~analysis.match_rows(operators["name"], analysis.is_step))


def _select_rows(columns: analysis.Columns, rows: NDArray[np.bool_]) -> dict[str, Any]:
    return {
        name: _Strings(values.codes[rows], values.values)
        if hasattr(values, "codes")
        else values[rows]
        for name, values in columns.items()
    }


class _Strings(msgspec.Struct, frozen=True):
    """Selected rows of a column of strings."""

    codes: NDArray[np.int32]
    values: Sequence[str | None]


def _is_named_range(name: str) -> bool:
    return analysis.is_data_loader(name) or analysis.is_host_communication(name)


def _find_launches(
    work: analysis.Columns, runtime: analysis.Columns, caller: intervals.Int
) -> tuple[intervals.Int, intervals.Int]:
    """Find the operator that launched each piece of device work, -1 for none, and the time of the
    launch."""
    calls = analysis.RuntimeCalls.from_columns(runtime)
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


def _find_steps(times: intervals.Int, steps: intervals.Intervals) -> intervals.Int:
    """Find the step of each time, -1 for none."""
    index = np.searchsorted(steps.start, times, side="right") - 1
    is_inside = (index >= 0) & (times < steps.end[np.maximum(index, 0)])
    return np.where(is_inside, index, -1).astype(np.int64)


_Selection = tuple[int, NDArray[np.bool_]]
"""Index of a table, and a mask of its rows."""
_OPERATORS, _KERNELS, _COPIES, _RANGES = range(4)


class _Tables(msgspec.Struct, frozen=True, kw_only=True):
    """Tables with calls, in the order of the rows of `_TraceCalls`."""

    operators: analysis.Columns
    kernels: analysis.Columns
    copies: analysis.Columns
    ranges: analysis.Columns
    parent: intervals.Int
    """Row of the caller of each operator."""
    is_collective: Callable[[str], bool]
    """True for the name of a kernel of a collective."""

    def list_work_claims(self) -> list[analysis.CategoryRanges]:
        """List the categories of device work and communication, by descending priority as in
        `analysis.CATEGORIES`."""
        is_collective = analysis.match_rows(self.kernels["name"], self.is_collective)
        is_set = analysis.match_rows(self.copies["kind"], lambda kind: kind == "memset")
        return [
            self._claim("kernel", (_KERNELS, ~is_collective)),
            self._claim("memcpy", (_COPIES, ~is_set)),
            self._claim("memset", (_COPIES, is_set)),
            self._claim(
                "communication",
                (_KERNELS, is_collective),
                *self._select_names(analysis.is_host_communication),
            ),
        ]

    def list_host_claims(self) -> list[analysis.CategoryRanges]:
        """List the categories of host work, by descending priority."""
        extent, owner = analysis.find_self_intervals(
            analysis.make_intervals(self.operators), self.parent
        )
        return [
            self._claim("data_loader", *self._select_names(analysis.is_data_loader)),
            analysis.CategoryRanges(category="cpu_exec", extent=extent, owner=owner),
        ]

    def _select_names(self, test: Callable[[str], bool]) -> list[_Selection]:
        return [
            (_OPERATORS, analysis.match_rows(self.operators["name"], test)),
            (_RANGES, analysis.match_rows(self.ranges["name"], test)),
        ]

    def _claim(self, category: str, *selections: _Selection) -> analysis.CategoryRanges:
        """Claim the time of the selected rows for a category and for their calls."""
        tables = (self.operators, self.kernels, self.copies, self.ranges)
        offsets = np.cumsum([0, *(len(table["start_ns"]) for table in tables)]).tolist()
        rows = [np.flatnonzero(mask) for _, mask in selections]
        extents = [analysis.make_intervals(tables[table]) for table, _ in selections]
        return analysis.CategoryRanges(
            category=category,
            extent=intervals.Intervals(
                np.concatenate([e.start[r] for e, r in zip(extents, rows, strict=True)]),
                np.concatenate([e.end[r] for e, r in zip(extents, rows, strict=True)]),
            ),
            owner=np.concatenate(
                [r + offsets[table] for (table, _), r in zip(selections, rows, strict=True)]
            ),
        )


def _find_host_activity(trace: run.Trace) -> analysis.CategoryRanges:
    """Find Python functions and annotations: work of the host outside of operators."""
    marks = trace.columns(
        "annotations", ("name", *analysis.TIME_COLUMNS), condition="on_device = 0"
    )
    is_plain = ~analysis.match_rows(
        marks["name"], lambda name: analysis.is_step(name) or _is_named_range(name)
    )
    functions = analysis.make_intervals(trace.columns("python_functions", analysis.TIME_COLUMNS))
    annotations = analysis.make_intervals(marks, is_plain)
    extent = intervals.Intervals(
        np.concatenate([functions.start, annotations.start]),
        np.concatenate([functions.end, annotations.end]),
    )
    return analysis.CategoryRanges(
        category="cpu_exec", extent=extent, owner=np.full(len(extent.start), -1, dtype=np.int64)
    )
