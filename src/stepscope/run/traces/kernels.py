"""Kernels of traces: counters, graphs, annotations, sums by name, stages of tf.data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema, store
from stepscope.run.model.run import Run
from stepscope.run.model.traces import Trace, columns_of, rows_in
from stepscope.run.traces.step_activity import is_range
from stepscope.run.traces.steps import calls_of, read_marks

_NO_OPERATOR = "no operator"


class KernelCounters(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges of hardware counters of one trace."""

    counters: Mapping[str, NDArray[np.float64]]
    """Value of each range by counter; NaN without a value."""
    kernels: analysis.NamedGroups
    operators: analysis.NamedGroups | None
    """None if ranges and kernels do not match."""
    range_count: int
    kernel_count: int
    """Kernels in the trace."""
    launch_count: int
    """Runtime calls in the trace that launch a kernel."""


def kernel_counters_of(trace: Trace, *, outermost: bool = False) -> KernelCounters:
    """Read the hardware counters of a trace.

    Args:
        trace: the trace.
        outermost: group by the outermost operator around the launch, not by the innermost.
    """
    ranges = trace.columns(
        "other_events",
        analysis.COUNTER_RANGE_COLUMNS,
        condition=f"category = '{analysis.COUNTER_CATEGORY}'",
    )
    kernels = trace.columns("kernels", ("name", "device", "start_ns", "operator"))
    calls = trace.columns("runtime_calls", ("name", "start_ns", "operator"))
    is_launch = analysis.match_rows(calls["name"], analysis.is_kernel_launch)
    launches = {name: calls[name][is_launch] for name in ("start_ns", "operator")}
    device = _find_devices(trace, ranges)
    operator = analysis.find_launching_operators(ranges, device, kernels, launches)
    operators = None
    if operator is not None:
        operators = _group_by_operator(trace, operator, outermost=outermost)
    return KernelCounters(
        counters=analysis.read_counters(ranges["args"]),
        kernels=_group_by_name(ranges["name"].codes, ranges["name"].values),
        operators=operators,
        range_count=len(ranges["id"]),
        kernel_count=len(kernels["start_ns"]),
        launch_count=len(launches["start_ns"]),
    )


def _group_by_operator(
    trace: Trace, ids: intervals.Int, *, outermost: bool
) -> analysis.NamedGroups:
    operators = trace.columns("operators", ("id", "name", "parent"))
    if outermost:
        rows = analysis.find_outermost(
            operators, analysis.match_rows(operators["name"], is_range), ids
        )
    else:
        rows = analysis.find_rows(operators["id"], ids)
    codes = np.append(operators["name"].codes, -1)[rows]  # row -1 is the appended one
    return _group_by_name(codes, operators["name"].values)


def _group_by_name(codes: NDArray[Any], names: Sequence[str | None]) -> analysis.NamedGroups:
    """Group ranges by the code of a name; -1 is no operator."""
    groups = analysis.group_rows(codes)
    first = codes[groups.first].tolist()
    return analysis.NamedGroups(groups, [names[c] or "" if c >= 0 else _NO_OPERATOR for c in first])


def _find_devices(trace: Trace, ranges: analysis.Columns) -> intervals.Int:
    """Find the device of each range: Kineto writes it as process; -1 where that is no number."""
    tracks = trace.columns("tracks", ("track", "pid"))
    texts = [tracks["pid"].values[code] or "" for code in tracks["pid"].codes.tolist()]
    devices = np.array([int(text) if text.isdecimal() else -1 for text in texts], dtype=np.int64)
    rows: intervals.Int = analysis.find_rows(tracks["track"], ranges["track"])
    return devices[rows]


class Replays(msgspec.Struct, frozen=True, kw_only=True):
    """Work that graphs launched in one trace."""

    work: analysis.GraphWork
    operators: list[str | None]
    """Captured operator of each piece of work; None where no capture fits."""


class _LaunchArgs(msgspec.Struct):
    """Arguments of a runtime call that name the kernel it launches."""

    kernel: str | None = None


def graph_calls_of(trace: Trace) -> intervals.Int:
    """Read the ids of the calls that launch graphs, also of those before the range of time."""
    calls: intervals.Int = trace.whole.columns(
        "runtime_calls", ("id",), condition=_contains(schema.GRAPH_LAUNCH)
    )["id"]
    return calls


def replays_of(
    run: Run, trace: Trace, graph_calls: intervals.Int, *, condition: str = ""
) -> Replays:
    """Read the work of graphs in a trace, with the operators captured in any trace of the run.

    Args:
        run: the run; graphs are also captured outside its range of time.
        trace: a trace of it.
        graph_calls: `graph_calls_of` the trace.
        condition: additional SQL condition for the work.
    """
    work = analysis.collect_graph_work(
        trace.columns("kernels", analysis.GRAPH_WORK_COLUMNS, condition=condition),
        trace.columns("copies", (*analysis.GRAPH_WORK_COLUMNS, "kind"), condition=condition),
        graph_calls,
    )
    if not len(work):
        return Replays(work=work, operators=[])
    operators = analysis.name_captured_operators(work, run.whole_run.derive(read_captures))
    if (work.captured_operator >= 0).any():
        # Captures of the same trace were matched on import.
        columns = trace.whole.columns("operators", ("id", "name"))
        names = columns["name"]
        matched = np.flatnonzero(work.captured_operator >= 0)
        operator_rows = analysis.find_rows(columns["id"], work.captured_operator[matched])
        for row, operator in zip(matched.tolist(), operator_rows.tolist(), strict=True):
            operators[row] = names.values[names.codes[operator]] if operator >= 0 else None
    return Replays(work=work, operators=operators)


def read_captures(run: Run) -> list[analysis.Capture]:
    """Find the captures of graphs in all traces of a run."""
    condition = f"{_contains(schema.CAPTURE_BEGIN)} OR {_contains(schema.CAPTURE_END)}"
    marks = columns_of(
        run.traces, "runtime_calls", ("name", "track", "start_ns"), condition=condition
    )
    return [
        capture
        for trace, columns in zip(run.traces, marks, strict=True)
        if len(columns["start_ns"])
        for capture in _find_captures(trace, columns)
    ]


def _find_captures(trace: Trace, marks: dict[str, Any]) -> list[analysis.Capture]:
    """Find the captures of one trace by the calls that begin and end them."""
    launches = trace.columns(
        "runtime_calls",
        ("name", "track", "start_ns", "operator", "args"),
        condition=" OR ".join(map(_contains, schema.WORK_LAUNCHES)),
    )
    is_begin = analysis.match_rows(marks["name"], lambda name: schema.CAPTURE_BEGIN in name)
    captures = []
    for begin in np.flatnonzero(is_begin).tolist():
        track, start = marks["track"][begin], marks["start_ns"][begin]
        ends = marks["start_ns"][~is_begin & (marks["track"] == track)]
        end = min(ends[ends > start].tolist(), default=start)
        inside = (launches["track"] == track) & (launches["start_ns"] > start)
        rows = np.flatnonzero(inside & (launches["start_ns"] < end))
        rows = rows[np.argsort(launches["start_ns"][rows], kind="stable")]
        captures.append(_describe_capture(trace, launches, rows))
    return captures


def _describe_capture(
    trace: Trace, launches: dict[str, Any], rows: intervals.Int
) -> analysis.Capture:
    operators = trace.columns("operators", ("id", "name"))
    operator = np.append(operators["name"].codes, -1)[
        analysis.find_rows(
            operators["id"], launches["operator"][rows]
        )  # row -1 is the appended one
    ]
    calls, args = launches["name"], launches["args"]
    call_names = [calls.values[code] or "" for code in calls.codes[rows].tolist()]
    texts = [args.values[code] if code >= 0 else None for code in args.codes[rows].tolist()]
    return analysis.Capture(
        kinds=tuple(
            analysis.MEMCPY
            if schema.COPY_LAUNCH in name
            else analysis.MEMSET
            if schema.SET_LAUNCH in name
            else analysis.KERNEL
            for name in call_names
        ),
        kernels=tuple(
            msgspec.json.decode(text, type=_LaunchArgs).kernel if text else None for text in texts
        ),
        operators=tuple(
            operators["name"].values[code] if code >= 0 else None for code in operator.tolist()
        ),
    )


def _contains(part: str) -> str:
    """Build the SQL condition for names that contain a text."""
    return f"name LIKE '%{part}%'"


_MARKS = " OR ".join(
    [f"starts_with(name, {store.literal(prefix)})" for prefix in analysis.EXCLUDED_PREFIXES]
    + [f"name = {store.literal(name)}" for name in sorted(analysis.EXCLUDED_NAMES)]
)


def read_annotations(trace: Trace) -> analysis.Columns:
    """Read `ANNOTATION_COLUMNS` of one trace."""
    columns = trace.columns("annotations", analysis.ANNOTATION_COLUMNS)
    if not len(columns["duration_ns"]):
        # Profilers before 2022 wrote steps, loaders and optimizers as operators.
        host_columns = [name for name in analysis.ANNOTATION_COLUMNS if name != "on_device"]
        columns = trace.columns("operators", host_columns, condition=_MARKS)
        columns["on_device"] = np.zeros(len(columns["duration_ns"]), dtype=np.int64)
    return columns


def read_annotated_kernels(trace: Trace, name: str) -> analysis.Columns:
    """Read `NAME_COLUMNS` of the kernels that were launched while a range of the host was open.

    Args:
        trace: a trace.
        name: as of `analysis.match_annotations`.
    """
    ranges = read_marks(trace)
    is_open = intervals.union(
        analysis.make_intervals(ranges, analysis.match_annotations(ranges["name"], name))
    )
    kernels, calls = trace.columns("kernels", (*analysis.NAME_COLUMNS, "launch")), calls_of(trace)
    call = calls.find_rows(kernels["launch"])
    inside = call >= 0
    inside[inside] = intervals.contains(is_open, calls.start[call[inside]])
    names = kernels["name"]
    return {
        "name": replace(names, codes=names.codes[inside]),
        **{column: kernels[column][inside] for column in analysis.NAME_COLUMNS[1:]},
    }


def read_script_annotations(run: Run) -> list[tuple[schema.ProcessInfo, analysis.Columns]]:
    """Read `ANNOTATION_COLUMNS` of the ranges that the script marked, per process that has any."""
    started = run.period.condition("start_ns")
    rows = run.reader.table(
        "spans",
        columns=["name", "process", "log", "start_ns", "end_ns"],
        condition=f"kind = 'annotation' AND end_ns IS NOT NULL AND {started}",
        encoded=("name", "process", "log"),
    )
    duration = np.ma.getdata(rows["end_ns"]) - rows["start_ns"]
    names, process = rows["name"], rows["process"]
    codes = {value: code for code, value in enumerate(process.values)}
    annotations: list[tuple[schema.ProcessInfo, analysis.Columns]] = []
    for info in run.processes:
        if info.process in codes:
            selected = process.codes == codes[info.process]
            columns = {
                "name": replace(names, codes=names.codes[selected]),
                "on_device": np.zeros(int(selected.sum()), dtype=np.int64),
                "track": rows["log"].codes[selected],
                "start_ns": rows["start_ns"][selected],
                "duration_ns": duration[selected],
            }
            annotations.append((info, columns))
    return annotations


class NameTotal(NamedTuple):
    """Events of one name."""

    name: str
    event_count: int
    total_ns: int


def sum_by_name(traces: Sequence[Trace], table: str, condition: str = "true") -> list[NameTotal]:
    """Sum up the events of one table by name, in no order.

    Args:
        traces: traces of one run.
        table: a trace table with the columns `name` and `duration_ns`.
        condition: additional SQL condition.
    """
    if not traces:
        return []
    rows = traces[0].reader.sql(
        "SELECT name, count(*) AS count, CAST(sum(duration_ns) AS BIGINT) AS total_ns "  # noqa: S608 - fixed names
        f"FROM {table} WHERE ({rows_in(traces, table)}) AND {condition} GROUP BY name"
    )
    columns = (rows[column].tolist() for column in ("name", "count", "total_ns"))
    return [NameTotal(name or "", *figures) for name, *figures in zip(*columns, strict=True)]


TF_DATA_PREFIX = "Iterator::"
"""Start of the names of ranges in which a stage makes an element."""


class TfDataStage(NamedTuple):
    """Stage of a pipeline."""

    name: str
    call_count: int
    total_ns: int
    """Time in calls, without that of other stages that they call in the same thread. It includes
    waits for other threads."""


def measure_tf_data(trace: Trace) -> list[TfDataStage]:
    """Measure the stages of tf.data, the one that takes longest first; empty without any."""
    call_counts, totals = Counter[str](), Counter[str]()
    for table in ("annotations", "other_events"):  # of Python's threads, and of others
        columns = trace.columns(
            table,
            ("name", "track", *analysis.TIME_COLUMNS),
            condition=f"name LIKE '{TF_DATA_PREFIX}%'",
        )
        for track in np.unique(columns["track"]):
            rows = columns["track"] == track
            extent = analysis.make_intervals(columns, rows)
            order = intervals.nesting_order(extent.start, extent.end)
            start, end, codes = extent.start[order], extent.end[order], columns["name"].codes[rows]
            own_ns, parent = end - start, intervals.parents(start, end)
            is_inner = parent >= 0
            np.subtract.at(own_ns, parent[is_inner], (end - start)[is_inner])
            for code, ns in zip(codes[order].tolist(), own_ns.tolist(), strict=True):
                name = columns["name"].values[code].removeprefix(TF_DATA_PREFIX)
                call_counts[name] += 1
                totals[name] += ns
    return [TfDataStage(name, call_counts[name], ns) for name, ns in totals.most_common()]
