"""Causal graph of the steps of one trace, read from its tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals
from stepscope.run.model.traces import Trace
from stepscope.run.traces.step_activity import DividedTrace, is_range
from stepscope.run.traces.steps import read_fetches, select_named

Int = intervals.Int
_RANGE_COLUMNS = ("id", "name", "track", *analysis.TIME_COLUMNS)
_HOST_TABLES = {"annotations": "on_device = 0", "operators": "", "runtime_calls": ""}
"""Tables of ranges on the host, with the condition for these."""
_EVENT_WAIT, _EVENT_SYNC = "Stream Wait Event", "Event Sync"


class ActivityRows(NamedTuple):
    """Activities of a graph: numbers from `first` on are rows of a table."""

    table: str
    first: int
    ids: Int


class _Calls(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    calls: analysis.DeviceCalls
    ids: Int
    correlation: Int

    def find(self, ids: Int) -> Int:
        """Find the rows of calls by id, -1 for none."""
        return analysis.find_values(self.ids, ids)

    def find_correlated(self, numbers: Int) -> Int:
        """Find the rows of calls by correlation number, -1 for none."""
        return np.where(numbers > 0, analysis.find_values(self.correlation, numbers), -1)


class PieceNames(NamedTuple):
    """Names of pieces of a critical path."""

    label: Int
    """Index into `labels` of each piece, -1 for none."""
    event: Int
    """Id of the event of each piece, -1 for none."""
    labels: list[tuple[str, str]]
    """Names with their kinds: operator, call, range, Python, kernel, copy, phase or fetch."""


class TraceGraph(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Causal graph of the steps of one trace, and what its edges stand for."""

    divided: DividedTrace
    points: analysis.RankGraph
    main_track: int
    """Thread of the steps."""
    activities: list[ActivityRows]
    in_optimizer: NDArray[np.bool_]
    """True for activities inside an optimizer step."""
    reads_host: NDArray[np.bool_]
    """True for copies from the host to a device, and the calls that start or await them."""

    @property
    def rank(self) -> int | None:
        """Number of the rank, None if unknown."""
        return self.divided.trace.rank

    @property
    def label(self) -> str:
        """Name of the trace."""
        return self.divided.trace.label

    def read_names(self) -> tuple[list[str], Int]:
        """Read the names of the activities: distinct ones, and the index of that of each activity,
        -1 for none."""
        names: dict[str, int] = {}
        numbers = [np.empty(0, dtype=np.int64)]
        for rows in self.activities:
            column = _read_activity_names(self.divided.trace.whole, rows.table)
            codes = [names.setdefault(str(name), len(names)) for name in column.values]
            numbers.append(np.append(np.array(codes, dtype=np.int64), -1)[column.codes])
        return list(names), np.concatenate(numbers)

    def name_pieces(self, activity: Int, time_ns: Int) -> PieceNames:
        """Name pieces of a path by their activities, or by Python functions around them.

        Args:
            activity: activity of each piece, -1 for none.
            time_ns: time of each piece at which the Python function counts, -1 where it does not.
        """
        trace = self.divided.trace.whole
        codes, events = (np.full(len(activity), -1, dtype=np.int64) for _ in range(2))
        labels: list[tuple[str, str]] = []
        for table in self.activities:
            inside = (activity >= table.first) & (activity < table.first + len(table.ids))
            rows = np.flatnonzero(inside)
            names = _read_activity_names(trace, table.table)
            codes[rows] = names.codes[activity[rows] - table.first] + len(labels)
            events[rows] = table.ids[activity[rows] - table.first]
            labels += [(str(name), _KINDS[table.table]) for name in names.values]
        if trace.has_stacks:
            rows = np.flatnonzero(time_ns >= 0)
            functions, ids, values = _find_functions(trace, self.main_track, time_ns[rows])
            codes[rows] = np.where(functions >= 0, functions + len(labels), codes[rows])
            events[rows] = np.where(functions >= 0, ids, events[rows])
            labels += [(name, "Python") for name in values]
        return PieceNames(codes, events, labels)


_KINDS = {
    "annotations": "range",
    "operators": "operator",
    "runtime_calls": "call",
    "kernels": "kernel",
    "copies": "copy",
}


def build_trace_graph(divided: DividedTrace, collectives: intervals.Intervals) -> TraceGraph:
    """Build the causal graph of the steps of one trace.

    Args:
        divided: the trace and its steps.
        collectives: its calls of collectives.
    """
    host = divided.steps.host
    window = (int(host.start[0]), int(max(divided.steps.extent.end[-1], host.end[-1])))
    ranges, calls, activities, main_track = _read_host(divided, window)
    threads = analysis.build_threads(ranges, main_track)
    threads = analysis.add_fetches(threads, _read_fetches(divided.trace.whole), main_track)
    work, waits = _read_device(divided, window, calls, activities)
    device = analysis.build_streams(work, calls.calls, waits, threads)
    count, work_count = len(threads.time), len(work.start)
    borders = np.append(host.start[:1], host.end)
    host_points = threads.find(np.full(len(borders), main_track), borders, before=True)
    is_launched = work.launch >= 0
    launched = calls.calls.start[work.launch[is_launched]]
    step = np.zeros(work_count, dtype=np.int64)
    step[is_launched] = np.searchsorted(host.start, launched, side="right")
    if not is_launched.any():  # without calls of the runtime, only times tell
        step = np.searchsorted(host.start, work.start, side="right")
    # Of the work of earlier steps what ends before the first step starts on the device.
    included = ~is_launched & (work.end <= divided.steps.extent.start[0])
    included |= ~is_launched.any() & (step > 0)
    included[is_launched] = launched <= host.end[np.maximum(step[is_launched] - 1, 0)]
    in_steps = np.flatnonzero(included)
    chains = msgspec.structs.replace(
        threads.edges, weight_ns=device.host_weight_ns, category=device.host_category
    )
    edges = analysis.join_edges([chains, device.edges])
    points = _place_calls(collectives, threads, work, activities, len(chains))
    reads_host = _find_copies_to_device(divided.trace.whole, work, activities, edges)
    return TraceGraph(
        divided=divided,
        points=analysis.RankGraph(
            time_ns=np.concatenate([threads.time, work.start, work.end]),
            edges=edges,
            step_count=len(host.start),
            last_points=np.concatenate([count + work_count + in_steps, host_points]),
            last_steps=np.concatenate([step[in_steps], np.arange(len(borders))]),
            activity_count=activities[-1].first + len(activities[-1].ids),
            calls=points,
        ),
        main_track=main_track,
        activities=activities,
        in_optimizer=_find_optimizer(divided.trace.whole, work, activities),
        reads_host=reads_host,
    )


def _place_calls(
    collectives: intervals.Intervals,
    threads: analysis.HostThreads,
    work: analysis.StreamWork,
    activities: list[ActivityRows],
    chain_count: int,
) -> analysis.CollectivePoints:
    """Find the points and edges of the calls of collectives, which are not matched yet."""
    count = len(collectives.start)
    rows = np.flatnonzero(work.is_communication)
    order = rows[np.argsort(work.start[rows], kind="stable")]
    at = np.searchsorted(work.start[order], collectives.start)
    at = np.minimum(at, max(len(order) - 1, 0))
    row = order[at] if len(order) else np.full(len(at), -1)
    first = len(threads.time)
    fits = row >= 0
    if len(order):
        fits &= (work.start[row] == collectives.start) & (work.end[row] == collectives.end)
    on_device = analysis.CollectivePoints(
        collective=np.full(count, -1, dtype=np.int64),
        transfer_ns=np.zeros(count, dtype=np.int64),
        start=np.where(fits, first + row, -1),
        end=np.where(fits, first + len(work.start) + row, -1),
        first_edge=np.where(fits, chain_count + row, 0),
        edge_count=np.where(fits, 1, 0),
    )
    if len(order):
        return on_device
    # Collectives of the host are ranges on a thread of their own.
    pieces = threads.edges.category == analysis.PathCategory.COMMUNICATION
    sources = threads.edges.source[pieces]
    row = analysis.find_values(threads.time[sources], collectives.start)
    starts = np.append(sources, -1)[row]
    ends = threads.find(np.append(threads.track, -1)[starts], collectives.end)
    fits = (ends > starts) & (starts >= 0)
    fits &= np.append(threads.time, -1)[ends] == collectives.end
    return msgspec.structs.replace(
        on_device,
        start=np.where(fits, starts, -1),
        end=np.where(fits, ends, -1),
        first_edge=np.where(fits, threads.edge_after[starts], 0),
        edge_count=np.where(fits, ends - starts, 0),
    )


def _overlapping(columns: analysis.Columns, window: tuple[int, int]) -> NDArray[np.bool_]:
    start = columns["start_ns"]
    mask: NDArray[np.bool_] = (start < window[1]) & (start + columns["duration_ns"] > window[0])
    return mask


def _read_host(
    divided: DividedTrace, window: tuple[int, int]
) -> tuple[analysis.HostRanges, _Calls, list[ActivityRows], int]:
    trace = divided.trace.whole
    operators = trace.columns("operators", (*_RANGE_COLUMNS, "host_self_ns"))
    marks = trace.columns("annotations", _RANGE_COLUMNS, condition=_HOST_TABLES["annotations"])
    columns = trace.columns("runtime_calls", (*_RANGE_COLUMNS, "correlation"))
    parts, activities, first = [], [], 0
    on_host = divided.on_host
    tables = {"annotations": marks, "operators": operators, "runtime_calls": columns}
    for table, rows in tables.items():
        names = rows["name"]
        busy = np.ones(len(rows["id"]), dtype=np.bool_)
        if table == "annotations":
            busy[:] = analysis.match_rows(names, analysis.is_host_communication)
        elif table == "operators":
            busy &= ~analysis.match_rows(names, is_range)
        category = np.full(len(busy), analysis.PathCategory.LAUNCH, dtype=np.int8)
        category[~busy] = analysis.PathCategory.PYTHON
        if on_host and table == "operators":
            category[busy & (rows["host_self_ns"] >= analysis.WORK_NS)] = (
                analysis.PathCategory.COMPUTE
            )
        category[analysis.match_rows(names, analysis.is_host_communication)] = (
            analysis.PathCategory.COMMUNICATION
        )
        parts.append(
            (
                rows["track"],
                np.maximum(rows["start_ns"], window[0]),
                np.minimum(rows["start_ns"] + rows["duration_ns"], window[1]),
                first + np.arange(len(busy)),
                category,
                analysis.match_rows(names, analysis.is_data_loader),
                busy,
            )
        )
        activities.append(ActivityRows(table, first, rows["id"]))
        first += len(busy)
    main_track = _find_main_track(divided, marks, operators)
    steps = divided.steps.host
    count = len(steps.start)
    outside = analysis.PathCategory.PYTHON if main_track >= 0 else analysis.PathCategory.UNEXPLAINED
    is_none = np.zeros(count, dtype=np.bool_)
    parts.append(
        (
            np.full(count, main_track),
            steps.start,
            steps.end,
            np.full(count, -1),
            np.full(count, outside, dtype=np.int8),
            is_none,
            is_none,
        )
    )
    joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
    inside = joined[1] < joined[2]
    ranges = analysis.HostRanges(
        **dict(
            zip(
                analysis.HostRanges.__struct_fields__,
                (part[inside] for part in joined),
                strict=True,
            )
        )
    )
    calls = _Calls(
        calls=analysis.DeviceCalls(
            track=columns["track"],
            start=columns["start_ns"],
            end=columns["start_ns"] + columns["duration_ns"],
            is_wait=analysis.match_rows(columns["name"], analysis.is_synchronization),
        ),
        ids=columns["id"],
        correlation=columns["correlation"],
    )
    return ranges, calls, activities, main_track


def _read_fetches(trace: Trace) -> analysis.Fetches:
    fetches = read_fetches(trace)
    return analysis.Fetches(
        start=fetches.start_ns,
        end=fetches.start_ns + fetches.duration_ns,
        has_workers=fetches.has_workers,
    )


def _find_main_track(
    divided: DividedTrace, marks: analysis.Columns, operators: analysis.Columns
) -> int:
    """Find the thread of the steps: that of their ranges, else of optimizer steps and fetches, else
    the busiest one; -1 without any."""
    tests: list[Callable[[str], bool]] = [
        analysis.is_step,
        divided.range_name.__eq__,
        lambda name: name.startswith("Optimizer."),
        analysis.is_data_loader,
    ]
    for test in tests:
        tracks = np.concatenate(
            [part["track"][analysis.match_rows(part["name"], test)] for part in (marks, operators)]
        )
        if len(tracks):
            return int(np.bincount(tracks).argmax())
    tracks, times = operators["track"], operators["duration_ns"]
    return int(np.bincount(tracks, times).argmax()) if len(tracks) else -1


def _read_device(
    divided: DividedTrace, window: tuple[int, int], calls: _Calls, activities: list[ActivityRows]
) -> tuple[analysis.StreamWork, analysis.RecordedWaits]:
    trace = divided.trace.whole
    names = ("id", "name", "track", "device", *analysis.TIME_COLUMNS, "launch")
    is_collective = trace.collectives.predicate("wide")
    parts = []
    first = sum(len(rows.ids) for rows in activities)
    for table in ("kernels", "copies"):
        rows = trace.columns(table, names)
        category = np.full(len(rows["id"]), analysis.PathCategory.COMPUTE, dtype=np.int8)
        communicates = analysis.match_rows(rows["name"], is_collective)
        if table == "copies":
            communicates[:] = False
            category[:] = analysis.PathCategory.COPY
        category[communicates] = analysis.PathCategory.COMMUNICATION
        inside = _overlapping(rows, window)
        start = rows["start_ns"]
        launch = calls.find(rows["launch"])
        launch[rows["launch"] < 0] = -1
        if len(calls.ids):
            launch[calls.calls.start[launch] < window[0]] = -1
        parts.append(
            tuple(
                part[inside]
                for part in (
                    rows["track"],
                    rows["device"],
                    np.maximum(start, window[0]),
                    start + rows["duration_ns"],
                    launch,
                    communicates,
                    category,
                    first + np.arange(len(start)),
                )
            )
        )
        activities.append(ActivityRows(table, first, rows["id"]))
        first += len(start)
    joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
    work = analysis.StreamWork(
        **dict(zip(analysis.StreamWork.__struct_fields__, joined, strict=True))
    )
    return work, _read_waits(trace, calls)


def _read_waits(trace: Trace, calls: _Calls) -> analysis.RecordedWaits:
    columns = trace.columns(
        "synchronisations",
        ("name", "device", "stream", "waited_stream", "record_correlation", "correlation"),
    )
    streams = trace.columns("tracks", ("track", "device", "stream"), condition="kind = 'device'")
    rows = zip(*(streams[name].tolist() for name in ("device", "stream", "track")), strict=True)
    tracks = {(device, stream): track for device, stream, track in rows if stream >= 0}

    def find_tracks(stream: Int) -> Int:
        keys = zip(columns["device"].tolist(), stream.tolist(), strict=True)
        numbers = [tracks.get(key, analysis.NO_STREAM) for key in keys]
        return np.where(stream < 0, analysis.ALL_STREAMS, np.array(numbers, dtype=np.int64))

    return analysis.RecordedWaits(
        call=calls.find_correlated(columns["correlation"]),
        record_call=calls.find_correlated(columns["record_correlation"]),
        is_for_event=analysis.match_rows(
            columns["name"], lambda name: name in {_EVENT_WAIT, _EVENT_SYNC}
        ),
        by_stream=analysis.match_rows(columns["name"], _EVENT_WAIT.__eq__),
        track=find_tracks(columns["stream"]),
        waited_track=find_tracks(columns["waited_stream"]),
        device=columns["device"],
    )


def _find_optimizer(
    trace: Trace, work: analysis.StreamWork, activities: list[ActivityRows]
) -> NDArray[np.bool_]:
    """Mask the activities inside an optimizer step, on the host and on devices."""
    rows = {part.table: part for part in activities}
    mask = np.zeros(activities[-1].first + len(activities[-1].ids), dtype=np.bool_)
    steps = intervals.unite(
        intervals.EMPTY,
        *(
            select_named(
                trace.columns(table, ("name", *analysis.TIME_COLUMNS)),
                lambda name: name.startswith("Optimizer.step"),
            )
            for table in ("annotations", "operators")
        ),
    )
    for table, condition in _HOST_TABLES.items():
        starts = trace.columns(table, ("start_ns",), condition=condition)["start_ns"]
        inside = intervals.contains(steps, starts)
        mask[rows[table].first : rows[table].first + len(inside)] = inside
    launched = work.launch >= 0
    mask[work.activity[launched]] = mask[rows["runtime_calls"].first + work.launch[launched]]
    return mask


def _find_copies_to_device(
    trace: Trace,
    work: analysis.StreamWork,
    activities: list[ActivityRows],
    edges: analysis.CausalEdges,
) -> NDArray[np.bool_]:
    """Mask the copies from the host to a device, and the calls that start or await them."""
    rows = {part.table: part for part in activities}
    mask = np.zeros(activities[-1].first + len(activities[-1].ids) + 1, dtype=np.bool_)
    names = trace.columns("copies", ("name",))["name"]
    to_device = analysis.match_rows(names, lambda name: analysis.parse_copy_route(name).reads_host)
    mask[rows["copies"].first : rows["copies"].first + len(to_device)] = to_device
    of_copy = (work.launch >= 0) & mask[work.activity]
    mask[rows["runtime_calls"].first + work.launch[of_copy]] = True
    syncs = np.flatnonzero((edges.kind == analysis.EdgeKind.SYNC) & mask[edges.activity])
    waits = np.isin(edges.target, edges.target[syncs]) & (edges.kind == analysis.EdgeKind.HOST)
    calls = edges.activity[waits & (edges.category == analysis.PathCategory.HOST_SYNC)]
    mask[calls[calls >= 0]] = True
    return mask[:-1]


def _read_activity_names(trace: Trace, table: str) -> analysis.Strings:
    """Read the names of the activities of a table, in the order of their numbers."""
    condition = _HOST_TABLES.get(table, "")
    names: analysis.Strings = trace.columns(table, ("name",), condition=condition)["name"]
    return names


def _find_functions(trace: Trace, track: int, times: Int) -> tuple[Int, Int, list[str]]:
    """Find the innermost Python function of a thread at each time: the indices of their names and
    their ids, -1 for none, and the names."""
    rows = trace.columns(
        "python_functions", ("id", "name", *analysis.TIME_COLUMNS), condition=f"track = {track}"
    )
    extent = analysis.make_intervals(rows)
    order = intervals.nesting_order(*extent)
    start, end = (edge[order] for edge in extent)
    parent = intervals.parents(start, end, intervals.OVERHANG_NS)
    row = intervals.innermost_at(times, start, end, parent)
    codes, ids = (
        np.append(values[order], -1)[row].astype(np.int64)
        for values in (rows["name"].codes, rows["id"])
    )
    return codes, ids, [str(name) for name in rows["name"].values]
