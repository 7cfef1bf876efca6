"""Activity of one trace by which its steps are divided into parts, with waits for requests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, schema, store
from stepscope.run.model.run import Run
from stepscope.run.model.trace_records import NAMING_LOSSES
from stepscope.run.model.traces import Trace, reading_ahead
from stepscope.run.traces.steps import (
    MarkedSteps,
    StepSource,
    calls_of,
    device_work_of,
    find_fetches,
    host_categories,
    marked_steps,
    read_marks,
    select_named,
)

START_FACTOR = 3.0
"""A first step longer than the median of the others by this factor is start-up …"""
MIN_STEPS = 3
"""… where the trace has this many steps."""
_NAMED_TIMES = ("name", *analysis.TIME_COLUMNS)
_BLOCKING_COPY = re.compile(r"(cuda|hip)Memcpy(WithStream|2D|ToSymbol|FromSymbol|Peer)?$")
"""Copies that return when they are done."""
_RANGE = re.compile(r"Optimizer\.(step|zero_grad)#|##|\[pl\]|DistributedDataParallel\.forward")
"""Ranges that older profilers wrote as operators."""
_COMPILED_GRAPH = "## Call CompiledFxGraph "
"""Start of the name of the range of a graph that Inductor compiled. Its own time is that of code
that took the place of operators."""
_COMPILED = (_COMPILED_GRAPH, "Torch-Compiled Region: ")
_GRADIENT_NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
"""Node of a backward pass that stores the gradient of a parameter and calls the hooks on it. With
collectives of the host these prepare the exchange: they fill buckets, compress and send."""


def is_range(name: str) -> bool:
    """Return True if an operator is a range of a framework or of the script, not an operator.

    >>> is_range("Optimizer.step#SGD.step"), is_range("aten::mm")
    (True, False)
    """
    return bool(_RANGE.match(name)) or analysis.is_step(name) or analysis.is_data_loader(name)


def is_compiled(trace: Trace) -> bool:
    """Return True if the trace contains graphs that torch.compile has made."""
    condition = " OR ".join(f"starts_with(name, {store.literal(text)})" for text in _COMPILED)
    return any(
        len(trace.columns(table, ("id",), condition=condition)["id"])
        for table in ("operators", "annotations")
    )


def step_activity_of(
    trace: Trace,
    work: analysis.DeviceWork,
    launches: analysis.RuntimeCalls,
    marks: analysis.Columns,
) -> analysis.StepActivity:
    """Read the activity of one trace.

    Args:
        trace: a trace.
        work: its device work.
        launches: its runtime calls.
        marks: `read_marks` of it.
    """
    calls = trace.columns(
        "runtime_calls", ("id", "name", "track", "operator", *analysis.TIME_COLUMNS)
    )
    copies = trace.columns("copies", ("name", "launch", "bytes", *analysis.TIME_COLUMNS))
    operators = trace.columns("operators", ("name", "track", *analysis.TIME_COLUMNS))
    functions = trace.columns("python_functions", _NAMED_TIMES, condition="name LIKE '%torch/_%'")
    to_device = _find_copies(copies, lambda route: route.reads_host)
    to_host = _find_copies(copies, lambda route: route.writes_host)
    starts_to_device = np.isin(calls["id"], copies["launch"][to_device])
    copy_waits = _read_copy_waits(calls, copies, work, launches)
    waited_out = to_host & copy_waits.is_waited_for
    is_copied_out = to_host & ~waited_out & _needs_no_wait(copies)
    for_input = _mark_rows(len(calls["id"]), copy_waits.call[to_device], copy_waits.wait[to_device])
    waits = analysis.match_rows(calls["name"], _waits) & ~for_input
    waits |= _mark_rows(len(calls["id"]), copy_waits.call[to_host])
    allocates = analysis.match_rows(calls["name"], analysis.allocates_memory)
    is_long = calls["duration_ns"] >= analysis.LONG_CALL_NS
    is_long &= ~(waits | for_input | starts_to_device | allocates)
    launched = _find_launch_ends(work, launches)
    queued = analysis.find_idle_before_queued(work.start, work.end, launched)
    device = analysis.find_device_categories(work)
    within_device = analysis.make_intervals(copies, ~(to_device | to_host))
    ranges = [operators, marks]
    exchanges = [select_named(part, analysis.is_host_communication) for part in ranges]
    has_hooks = not len(work) and any(len(part.start) for part in exchanges)
    data_loader = find_fetches(ranges)
    compilation = intervals.unite(
        intervals.EMPTY,
        *(select_named(part, analysis.is_compilation) for part in (*ranges, functions)),
    )
    host = intervals.unite(
        select_named(operators, lambda name: not is_range(name)), analysis.make_intervals(calls)
    )
    if not trace.recorder.is_torch:  # others name no operators where they run functions
        host = intervals.unite(host, select_named(marks, trace.recorder.is_work))
    return analysis.StepActivity(
        compute=intervals.unite(device["kernel"], device["memset"], within_device),
        communication=intervals.unite(device["communication"], *exchanges),
        hooks=select_named(operators, _GRADIENT_NODE.__eq__) if has_hooks else intervals.EMPTY,
        copy_to_device=analysis.make_intervals(copies, to_device),
        copy_calls=analysis.make_intervals(calls, starts_to_device),
        copy_to_host=analysis.make_intervals(copies, to_host & ~is_copied_out),
        copy_out=analysis.make_intervals(copies, is_copied_out),
        blocked=analysis.find_blocked(
            work.intervals,
            queued,
            waits=analysis.make_intervals(calls, waits | for_input),
            copy_calls=analysis.make_intervals(calls, starts_to_device),
            copy_bytes=_read_copied_bytes(calls, copies, starts_to_device),
        ),
        queued=queued,
        data_loader=data_loader,
        compilation=compilation,
        allocation=analysis.make_intervals(calls, allocates),
        waiting=intervals.EMPTY
        if len(data_loader.start)
        else read_request_waits(
            trace, ranges, calls, intervals.unite(host, compilation, *exchanges)
        ),
        long_calls=analysis.make_intervals(calls, is_long),
        copy_waits=analysis.make_intervals(calls, for_input),
        waits=analysis.make_intervals(calls, waits),
        host=host,
        device=work.intervals,
    )


def _find_launch_ends(work: analysis.DeviceWork, launches: analysis.RuntimeCalls) -> intervals.Int:
    """Find the end of the call that launched each piece of work, the largest integer for none."""
    rows = launches.find_rows(work.launch)
    ends = np.append(launches.end, np.iinfo(np.int64).max)
    return ends[rows]


def _read_copy_waits(
    calls: analysis.Columns,
    copies: analysis.Columns,
    work: analysis.DeviceWork,
    launches: analysis.RuntimeCalls,
) -> analysis.CopyWaits:
    """Read the waits of the host for each copy; indices are rows of `calls`."""
    host_calls = analysis.HostCalls(
        track=calls["track"],
        start=calls["start_ns"],
        end=calls["start_ns"] + calls["duration_ns"],
        operator=calls["operator"],
        is_wait=analysis.match_rows(calls["name"], _waits),
        is_launch=np.isin(calls["id"], work.launch),
    )
    by_id = np.argsort(calls["id"], kind="stable")
    row = launches.find_rows(copies["launch"])
    start_call = np.where(row >= 0, np.append(by_id, -1)[row], -1)
    return analysis.find_copy_waits(
        host_calls, start_call, copies["start_ns"] + copies["duration_ns"]
    )


def _read_copied_bytes(
    calls: analysis.Columns, copies: analysis.Columns, starts: NDArray[np.bool_]
) -> intervals.Int:
    """Read the bytes that some calls copy, in the order of the calls; where the trace does not
    state them, as many as take all of the call."""
    order = np.argsort(copies["launch"], kind="stable")
    row = order[np.searchsorted(copies["launch"][order], calls["id"][starts])]
    unlimited = np.iinfo(np.int64).max // analysis.MAX_COPY_NS_PER_BYTE
    size: intervals.Int = np.ma.filled(copies["bytes"], unlimited)[row]
    return size


def _needs_no_wait(copies: analysis.Columns) -> NDArray[np.bool_]:
    """Mask the copies that a host can start without a wait: those of pinned memory, and those of
    memory that the profiler does not name if their call is known."""
    is_pinned = _find_copies(copies, lambda route: "pinned" in (route.host_memory or ""))
    is_named = _find_copies(copies, lambda route: route.host_memory is not None)
    needs_none: NDArray[np.bool_] = is_pinned | (~is_named & (copies["launch"] >= 0))
    return needs_none


def _mark_rows(count: int, *indices: intervals.Int) -> NDArray[np.bool_]:
    """Mask the entries with these indices; those below 0 are none."""
    mask = np.zeros(count, dtype=np.bool_)
    for index in indices:
        mask[index[index >= 0]] = True
    return mask


def _waits(name: str) -> bool:
    return analysis.is_synchronization(name) or _BLOCKING_COPY.match(name) is not None


def _find_copies(
    copies: analysis.Columns, test: Callable[[analysis.CopyRoute], bool]
) -> NDArray[np.bool_]:
    return analysis.match_rows(copies["name"], lambda name: test(analysis.parse_copy_route(name)))


def begins_with_start_up(wall_ns: intervals.Int) -> bool:
    """Return True if the first step takes far longer than the others: what starts up in it does so
    once."""
    return len(wall_ns) >= MIN_STEPS and bool(wall_ns[0] > START_FACTOR * np.median(wall_ns[1:]))


@dataclass(frozen=True, kw_only=True)
class DividedTrace:
    """Steps of one trace, divided into parts; arrays have one entry per step.

    Work and activity are read again where a cause needs them: of many traces they exceed memory.
    """

    trace: Trace
    steps: analysis.TraceSteps
    source: StepSource
    range_name: str
    """Name of the ranges that the steps come from, where it is not that of a step."""
    part_ns: dict[str, intervals.Int]
    """Time by part of `STEP_PARTS`; sums to the wall time."""
    category_ns: dict[str, intervals.Int]
    """Time by category of `CATEGORIES`; sums to the wall time."""
    busy_ns: intervals.Int
    """Time in which the device had any work."""
    overlap_ns: intervals.Int
    """Time in which computation hides communication; part of `compute`."""
    on_host: bool
    """True without work of a device: the host computes itself."""
    has_host: bool
    """False if the trace has no operators and no Python functions."""

    @cached_property
    def work(self) -> analysis.DeviceWork:
        """Device work of the trace."""
        return device_work_of(self.trace, "keep")

    @cached_property
    def activity(self) -> analysis.StepActivity:
        """Activity in the trace."""
        return step_activity_of(self.trace, self.work, calls_of(self.trace), read_marks(self.trace))

    def divide(self, extent: intervals.Intervals) -> dict[str, intervals.Int]:
        """Divide other intervals into parts by the definitions of the steps; they must be sorted
        and disjoint."""
        return _divide(extent, self.trace, self.activity, on_host=self.on_host)

    def without_start(self) -> DividedTrace:
        """Leave out a first step that is start-up."""
        first = int(begins_with_start_up(self.steps.wall_ns))
        return self.take(np.arange(first, len(self.steps.wall_ns)))

    def without_lost_fetches(self) -> DividedTrace:
        """Leave out the steps in which the time of a fetch of a batch was lost, which would count
        as something else: those in which such a fetch starts, or that lack a fetch where the starts
        of some were lost as well."""
        lost = np.sort(read_lost_fetches(self.trace))
        if not len(lost):
            return self
        extent, trace = self.steps.extent, self.trace.whole
        is_left = np.searchsorted(lost, extent.start) == np.searchsorted(lost, extent.end)
        if lost[0] < trace.start_ns or lost[-1] > trace.end_ns:
            is_left &= intervals.overlap(extent, intervals.union(self.activity.data_loader)) > 0
        return self.take(np.flatnonzero(is_left))

    def take(self, rows: intervals.Int) -> DividedTrace:
        """Take some steps, given by their positions."""
        if len(rows) == len(self.steps.names):
            return self
        return replace(
            self,
            steps=self.steps.take(rows),
            part_ns={part: times[rows] for part, times in self.part_ns.items()},
            category_ns={name: times[rows] for name, times in self.category_ns.items()},
            busy_ns=self.busy_ns[rows],
            overlap_ns=self.overlap_ns[rows],
        )

    @property
    def marked(self) -> bool:
        """False for a trace without steps: one step covers all of it."""
        return self.source != "whole"


_EXCLUDED = "phase IN ('B', 'E') OR (phase = 'X' AND category IN ({}))".format(
    ", ".join(f"'{kind.categories[0]}'" for kind in schema.EVENT_KINDS)
)
"""Events of the table of other events that are ranges with an impossible time or without an end."""


def read_lost_fetches(trace: Trace) -> intervals.Int:
    """Read the starts, or the ends, of the fetches of batches that are in no figure."""
    if not trace.quality_issues.keys() & NAMING_LOSSES:
        return np.empty(0, dtype=np.int64)
    ranges = trace.columns("other_events", ("name", "start_ns"), condition=_EXCLUDED)
    lost: intervals.Int = ranges["start_ns"][
        analysis.match_rows(ranges["name"], analysis.is_data_loader)
    ]
    return lost


def divide_traces(run: Run) -> list[DividedTrace]:
    """Divide the steps of every trace that has any; computed once per run."""
    return run.derive(_divide_traces)


def _divide_traces(run: Run) -> list[DividedTrace]:
    divided = [divide_trace(trace, marked_steps(run, trace)) for trace in reading_ahead(run.traces)]
    return [one for one in divided if one.steps.wall_ns.sum() > 0]


def divide_trace(trace: Trace, marked: MarkedSteps) -> DividedTrace:
    """Divide the steps of one trace into parts.

    Args:
        trace: a trace.
        marked: its steps.
    """
    work, calls = device_work_of(trace, "keep"), calls_of(trace)
    steps = analysis.find_trace_steps(marked.steps, work, calls)
    marks = read_marks(trace)
    activity = step_activity_of(trace, work, calls, marks)
    host = host_categories(trace, calls, marks)
    categories = analysis.merge_categories(analysis.find_device_categories(work), host)
    part_ns = _divide(steps.extent, trace, activity, on_host=not len(work))
    communication_ns = intervals.overlap(steps.extent, intervals.union(activity.communication))
    return DividedTrace(
        trace=trace,
        steps=steps,
        source=marked.source,
        range_name=marked.range_name,
        part_ns=part_ns,
        category_ns=analysis.break_down_steps(steps.extent, categories),
        busy_ns=intervals.overlap(steps.extent, intervals.union(work.intervals)),
        overlap_ns=np.clip(communication_ns - part_ns["communication"], 0, part_ns["compute"]),
        on_host=not len(work),
        has_host=any(len(host[category].start) for category in ("cpu_exec", "data_loader")),
    )


def _divide(
    extent: intervals.Intervals, trace: Trace, activity: analysis.StepActivity, *, on_host: bool
) -> dict[str, intervals.Int]:
    if on_host:
        return analysis.divide_host_steps(extent, activity, *_read_sizeable_operators(trace))
    return analysis.divide_steps(extent, activity)


def _read_sizeable_operators(trace: Trace) -> tuple[intervals.Intervals, intervals.Int]:
    """Read the operators that take long themselves, and that time of each."""
    operators = trace.columns("operators", ("name", *analysis.TIME_COLUMNS, "host_self_ns"))
    rows = (operators["host_self_ns"] >= analysis.WORK_NS) & ~analysis.match_rows(
        operators["name"],
        lambda name: (
            (is_range(name) and not name.startswith(_COMPILED_GRAPH))
            or analysis.requests_communication(name)
        ),
    )
    return analysis.make_intervals(operators, rows), operators["host_self_ns"][rows]


_FUNCTIONS = "parent IS NULL OR regexp_matches(name, '{}')".format(
    analysis.WAIT_FUNCTIONS.replace("'", "''")
)
"""Outermost Python functions, and those that wait."""
_ADDRESS = re.compile(r" (object )?at 0x[0-9a-fA-F]+")


def read_request_waits(
    trace: Trace,
    ranges: Sequence[analysis.Columns],
    calls: analysis.Columns,
    activity: intervals.Intervals,
) -> intervals.Intervals:
    """Read the times in which the host has no work; none in a trace that trains, or without
    operators.

    Args:
        trace: a trace.
        ranges: operators and annotations of the host, with `name` and `track`, operators first.
        calls: runtime calls, with `track`.
        activity: when any thread runs an operator, makes a runtime call, compiles or communicates.
    """
    operators = ranges[0]
    is_training = analysis.is_training
    if trace.recorder.marks_training:
        is_training = analysis.is_step
    if not len(operators["track"]) or any(
        analysis.match_rows(part["name"], is_training).any() for part in ranges
    ):
        return intervals.EMPTY
    functions = _read_functions(trace)
    tracks = np.unique(np.concatenate([operators["track"], calls["track"]]))
    tracks = np.intersect1d(tracks, functions["track"])
    if not len(tracks):
        return analysis.find_unrecorded_time(trace.extent, activity)
    waits = analysis.match_rows(functions["name"], analysis.is_wait_function)
    threads = []
    for track in tracks:
        rows = functions["track"] == track
        threads.append(
            (
                analysis.make_intervals(functions, rows),
                analysis.make_intervals(functions, rows & waits),
            )
        )
    return analysis.find_waits_of_threads(threads, activity)


def name_wait_function(trace: Trace, waiting: intervals.Intervals) -> str | None:
    """Name the Python function in which the host waits longest, the outermost of those that call
    each other; None without Python functions.

    Args:
        waiting: union of times in which the host has no work.
    """
    functions = _read_functions(trace)
    waits = analysis.match_rows(functions["name"], analysis.is_wait_function)
    totals: Counter[str] = Counter()
    for track in np.unique(functions["track"][waits]):
        rows = waits & (functions["track"] == track)
        times = analysis.make_intervals(functions, rows)
        order = intervals.nesting_order(*times)
        times = intervals.Intervals(times.start[order], times.end[order])
        outermost = intervals.parents(*times) < 0
        codes = functions["name"].codes[rows][order][outermost]
        waited_ns = intervals.overlap(
            intervals.Intervals(*(part[outermost] for part in times)), waiting
        )
        for code, time_ns in zip(codes.tolist(), waited_ns.tolist(), strict=True):
            totals[_ADDRESS.sub("", str(functions["name"].values[code]))] += time_ns
    return max(totals, key=lambda name: totals[name]) if any(totals.values()) else None


def _read_functions(trace: Trace) -> analysis.Columns:
    return trace.columns(
        "python_functions", ("name", "track", *analysis.TIME_COLUMNS), condition=_FUNCTIONS
    )
