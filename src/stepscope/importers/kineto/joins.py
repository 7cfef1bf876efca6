"""Joins over a whole file, between events that may be far apart in time.

Launches and the work they launched, forward and backward operators, host ranges and their shadows,
arrows.

Kernels of replayed CUDA graphs and the operators that were captured. A replay is one launch: its
kernels belong to the call of cudaGraphLaunch, which no operator but the replaying one encloses.
While a graph is captured, every operator makes its launches as usual, but nothing runs. The nodes
of a graph are numbered in the order in which they were captured, so where the capture is in the
same trace, the n-th node is the n-th launch.

No file says which capture became which graph. They match if the launches of the one are of the
kinds of the nodes of the other, one by one; several that are alike match in their order, if there
are as many captures as graphs. The quality record counts the work that was matched so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, schema
from stepscope.importers.kineto import arguments
from stepscope.importers.kineto.columns import Columns
from stepscope.importers.kineto.gather import Bounds, Gathered, impossible

Int = NDArray[np.int64]


class Counts(msgspec.Struct):
    """Counts taken while linking; see `schema.QUALITY_CHECKS`."""

    device: int = 0
    unlinked: int = 0
    launching: int = 0
    unlinked_launches: int = 0
    captured: int = 0
    zero_correlation: int = 0
    carry_over: int = 0
    duplicate_correlation: int = 0
    launches: int = 0
    calls: int = 0
    matched_by_time: int = 0
    overlaps: int = 0
    worst_overlap_ns: int = 0
    overflows: int = 0
    worst_overflow_ns: int = 0
    unended: int = 0
    """Ranges that end long after all others."""
    worst_unended_ns: int = 0
    setbacks: int = 0
    """Times at which the clock was set back."""
    worst_setback_ns: int = 0
    setback_detail: str = ""
    early: int = 0
    """Work that starts before its launch."""
    worst_early_ns: int = 0
    waits: int = 0
    """Waits of the host for work of a device that was launched before."""
    late_waits: int = 0
    """Those that end before the work."""
    median_late_ns: int = 0
    crowded: int = 0
    """Work of streams that have more at once than a device takes."""
    worst_crowd: int = 0
    unit: str = ""
    """Sentence about the unit of the times, if it is perhaps another one."""
    overhangs: int = 0
    worst_overhang_ns: int = 0
    ranges: int = 0
    copies: int = 0
    """Events that equal an earlier one."""
    processes: list[str] = msgspec.field(default_factory=list)
    """Processes that launch work, or mark steps, if there are several."""
    impossible_duration: list[tuple[arguments.Kind, NDArray[np.int32]]] = msgspec.field(
        default_factory=list
    )
    """Kinds and names of the events that have one."""
    impossible_time: list[tuple[arguments.Kind, NDArray[np.int32]]] = msgspec.field(
        default_factory=list
    )


MIN_PROCESS_SHARE = 0.01
"""Launches of a process, as a share of those of all, from which it is one of a file."""


def _find_processes(gathered: Gathered, tracks: NDArray[Any]) -> NDArray[Any]:
    """Number the processes that launched work, by the tracks of the launches; find those that mark
    steps, too.

    Returns:
        The number of the process of each track, -1 for processes without either.
    """
    names: dict[int | str, int] = {}
    for pid, _ in gathered.tracks:
        names.setdefault(pid, len(names))
    number = np.array([names[pid] for pid, _ in gathered.tracks], dtype=np.int64)
    launches = np.bincount(number[tracks], minlength=len(names))
    is_one = launches > MIN_PROCESS_SHARE * max(len(tracks), 1)
    codes = [n for n, text in enumerate(gathered.strings) if text.startswith(schema.STEP_PREFIX)]
    for kind in (arguments.ANNOTATION, arguments.OPERATOR) if codes else ():
        columns = gathered.columns(kind, "name", "track")
        is_one[number[columns["track"][np.isin(columns["name"], codes)]]] = True
    return np.where(is_one[number], number, -1)


def join_launches(gathered: Gathered, counts: Counts, captured: Int) -> None:
    """Find the launch of all device work and whether the work is carry-over.

    Work gets the columns `launch` and `when`, the time of its launch; without a launch, -1 and its
    own start. It is launched by the last call with its correlation that started before it ended.
    Work without a launch was launched before the window (`carry_over`) if it runs before the first
    work of its stream that has one: a stream is first in, first out. Impossible events are ignored.

    Args:
        gathered: the events.
        counts: receives the counts.
        captured: ids of calls that were captured into graphs, and put no work on a device.
    """
    names = ("id", "name", "start", "duration", "correlation", "track")
    calls = gathered.select(arguments.CALL_KINDS, names, "correlation")
    ids, starts, keys = calls["id"], calls["start"], calls["correlation"]
    launching = np.isin(calls["name"], gathered.names_with(schema.WORK_LAUNCHES))
    if len(captured):
        launching &= ~np.isin(ids, captured)
    is_usable = (keys > 0) & ~impossible(calls, gathered.bounds)
    process = _find_processes(gathered, calls["track"][launching])
    processes = np.unique(process[process >= 0], return_index=True)[1]
    if len(processes) > 1:
        counts.processes = [
            str(gathered.tracks[np.flatnonzero(process >= 0)[row]][0]) for row in processes
        ]
        is_usable &= ~_find_shared(keys, process[calls["track"]])
    usable = np.flatnonzero(is_usable)
    order = usable[intervals.sort_order(keys[usable], starts[usable])]
    ids, starts, keys, launching = ids[order], starts[order], keys[order], launching[order]
    del calls, is_usable, usable, order  # a tenth of the memory of a large import
    counts.launches = len(keys)
    unlinked_work: dict[arguments.EventKind, tuple[Columns, NDArray[np.bool_]]] = {}
    earliest = np.full(len(gathered.tracks), np.iinfo(np.int64).max, dtype=np.int64)
    used = np.zeros(len(keys), dtype=np.bool_)
    for kind in arguments.WORK_KINDS:
        work = gathered.columns(kind, "start", "duration", "correlation", "track")
        row = _last_before(keys, starts, work["correlation"], work["start"] + work["duration"])
        linked = row >= 0
        used[row[linked]] = True
        launch = values_at(ids, row)
        when = np.where(linked, values_at(starts, row), work["start"])
        gathered.extend(kind, "launch", launch)
        gathered.extend(kind, "when", when)
        possible = ~impossible({**work, "launch": launch}, gathered.bounds)
        valid = linked & possible
        np.minimum.at(earliest, work["track"][valid], work["start"][valid])
        unlinked_work[kind] = (work, possible & ~linked)
        counts.device += len(linked)
        counts.unlinked += int((~linked).sum())
        counts.zero_correlation += int((work["correlation"] <= 0).sum())
        early_ns = np.where(valid, when - work["start"], 0)
        counts.early += int((early_ns > schema.MAX_EARLY_NS).sum())
        counts.worst_early_ns = max(counts.worst_early_ns, int(early_ns.max(initial=0)))
    has_launches = len(keys) > 0
    for kind, (work, unlinked) in unlinked_work.items():
        before = has_launches & unlinked & (work["start"] < earliest[work["track"]])
        before &= (earliest != np.iinfo(np.int64).max)[work["track"]]
        gathered.extend(kind, "carry_over", before.astype(np.int64))
        counts.carry_over += int(before.sum())
    same = np.flatnonzero(keys[1:] == keys[:-1])
    first = np.flatnonzero(np.diff(keys, prepend=0))  # row of each key: they are sorted, none is 0
    launched = np.logical_or.reduceat(launching, first)
    counts.launching = int(launched.sum())
    counts.unlinked_launches = int((launched & ~np.logical_or.reduceat(used, first)).sum())
    counts.duplicate_correlation = int((used[same] | used[same + 1]).sum())


def _find_shared(keys: Int, process: Int) -> NDArray[np.bool_]:
    """Mask the calls whose number calls of another process have, too: they may be of either."""
    order = np.lexsort((process, keys))
    is_border = (keys[order][1:] == keys[order][:-1]) & (process[order][1:] != process[order][:-1])
    shared: NDArray[np.bool_] = np.isin(keys, keys[order][1:][is_border])
    return shared


def _last_before(keys: Int, starts: Int, requested: Int, until: Int) -> Int:
    """Return the row of the last call of each requested key that started by a time, -1 for none.

    Args:
        keys, starts: of the calls, sorted by key, then by start.
        requested: keys to look up.
        until: time per requested key; without a call by then, the first call is returned.
    """
    if not len(keys):
        return np.full(len(requested), -1, dtype=np.int64)
    low = np.searchsorted(keys, requested, side="left")
    high = np.searchsorted(keys, requested, side="right")
    rows = np.where((high > low) & (requested > 0), low, -1).astype(np.int64)
    for index in np.flatnonzero((high - low > 1) & (requested > 0)):
        candidates = starts[low[index] : high[index]]
        position = int(np.searchsorted(candidates, until[index], side="right")) - 1
        rows[index] = low[index] + max(0, position)
    return rows


class Positions(msgspec.Struct, frozen=True):
    """One axis for the times of all tracks."""

    bounds: Bounds

    @property
    def stretch(self) -> int:
        """Length of a track on the axis."""
        return self.bounds.last - self.bounds.first + self.bounds.host_limit + 1

    def of(self, times: Int, track: NDArray[Any]) -> Int:
        """Return the positions of times of tracks."""
        return (times - self.bounds.first) + track.astype(np.int64) * self.stretch


class Forwards:
    """Index of forward operators, to find that of a backward operator.

    Recorders draw arrows for this in some traces; in all of them both carry the same sequence
    number, and the backward one the number of the forward thread. Among the operators with a
    sequence number, the one that started last made the gradient's node: the others enclose it.
    """

    def __init__(self, gathered: Gathered) -> None:
        operators = gathered.select(
            arguments.OPERATOR, ("id", "start", "sequence", "forward_thread"), "sequence"
        )
        is_forward = operators["forward_thread"] <= 0
        sequence, start = operators["sequence"][is_forward], operators["start"][is_forward]
        order = np.lexsort((start, sequence))
        self._ids = operators["id"][is_forward][order]
        self._numbers, first = np.unique(sequence[order], return_index=True)
        self._stretch = gathered.bounds.last - gathered.bounds.first + 1
        self._first_ns = gathered.bounds.first
        number_index = np.repeat(np.arange(len(first)), np.diff([*first, len(order)]))
        self._keys = self._key(number_index, start[order])

    def _key(self, number_index: Int, start: Int) -> Int:
        """Return keys that sort by number, then by start."""
        return number_index * self._stretch + np.clip(start - self._first_ns, 0, self._stretch - 1)

    def of(self, sequence: Int, forward_thread: Int, start: Int) -> Int:
        """Return ids of the forward operators that started before a start, -1 for none."""
        forward = np.full(len(sequence), -1, dtype=np.int64)
        backward = np.flatnonzero((sequence >= 0) & (forward_thread > 0))
        if len(backward) and len(self._ids):
            number = sequence[backward]
            index = np.searchsorted(self._numbers, number)
            is_known = self._numbers[np.minimum(index, len(self._numbers) - 1)] == number
            row = np.searchsorted(self._keys, self._key(index, start[backward])) - 1
            has_number = self._keys[np.maximum(row, 0)] // self._stretch == index
            fits = is_known & (row >= 0) & has_number
            forward[backward[fits]] = self._ids[row[fits]]
        return forward


class ShadowHosts:
    """Index of host ranges by External id, which their shadows on devices carry, too."""

    def __init__(self, gathered: Gathered) -> None:
        hosts = gathered.select(arguments.ANNOTATION, ("id", "external"), "external")
        order = np.argsort(hosts["external"], kind="stable")
        self._numbers, self._ids = hosts["external"][order], hosts["id"][order]

    def of(self, external: Int) -> Int:
        """Return ids of the host ranges of shadows, -1 for none."""
        if not len(self._ids):
            return np.full(len(external), -1, dtype=np.int64)
        row = np.searchsorted(self._numbers, external, side="right") - 1
        fits = (external > 0) & (self._numbers[np.maximum(row, 0)] == external)
        return np.where(fits, self._ids[row], -1)


def bind_flows(gathered: Gathered, base_ns: int) -> Columns:
    """Return rows of the table `flows`: arrows that are no launches, with the events they bind to.

    An arrow binds to the operator that starts where it does, on the same track.
    """
    ends = gathered.columns(
        arguments.OtherKind.FLOW, "flow", "track", "start", "name", "phase", "category"
    )
    positions = Positions(gathered.bounds)
    if not len(ends["flow"]):
        return {}
    rows = _rows_of_arrows(ends, gathered.code_of("s"), gathered.code_of("f"))
    first = np.where(rows["source"] >= 0, rows["source"], rows["target"])
    columns: Columns = {
        "kind": ends["category"][first],
        "name": ends["name"][first],
        "flow": ends["flow"][first],
    }
    operators = gathered.columns(arguments.OPERATOR, "id", "track", "start", "duration")
    at = positions.of(operators["start"], operators["track"])
    order = np.lexsort((-operators["duration"], at))
    at, ids = at[order], operators["id"][order]
    for end, row in rows.items():
        exists = row >= 0
        start, track = ends["start"][row], ends["track"][row]
        position = positions.of(start, track)
        index = np.searchsorted(at, position, side="right") - 1
        fits = exists & (index >= 0)
        fits &= at[np.maximum(index, 0)] == position if len(at) else False
        columns[f"{end}_track"] = np.where(exists, track, -1)
        columns[f"{end}_ns"] = np.where(exists, start + base_ns, -1)
        columns[end] = np.where(fits, ids[np.maximum(index, 0)] if len(at) else -1, -1)
    return columns


def _rows_of_arrows(ends: Columns, start_code: int, end_code: int) -> dict[str, Int]:
    """Return the rows of both ends of each arrow, -1 where an end is missing."""
    row_of: dict[str, dict[tuple[int, int], int]] = {}
    for name, code in (("source", start_code), ("target", end_code)):
        rows = np.flatnonzero(ends["phase"] == code)
        keys = zip(ends["category"][rows].tolist(), ends["flow"][rows].tolist(), strict=True)
        row_of[name] = dict(zip(keys, rows.tolist(), strict=True))
    arrows = row_of["source"] | row_of["target"]
    return {
        name: np.array([rows.get(key, -1) for key in arrows], dtype=np.int64)
        for name, rows in row_of.items()
    }


class Arrows(NamedTuple):
    """Arrows with both ends, one entry per arrow."""

    source_track: NDArray[Any]
    source_ns: Int
    target_track: NDArray[Any]
    target_ns: Int

    def find_targets(self, work: Columns) -> Int:
        """Return the arrow that ends where each piece of work starts, on its track; -1 for none."""
        order = np.lexsort((self.target_ns, self.target_track))
        ends = {"track": self.target_track[order], "start": self.target_ns[order]}
        row = find_rows(ends, work)
        return np.where(row >= 0, np.append(order, -1)[row], -1)


def find_arrows(gathered: Gathered, category: str) -> Arrows:
    """Return the arrows of a category that have both ends."""
    ends = gathered.columns(arguments.OtherKind.FLOW, "flow", "track", "start", "phase", "category")
    rows = _rows_of_arrows(ends, gathered.code_of("s"), gathered.code_of("f"))
    if not (rows["target"] >= 0).any():  # rocprof ends its arrows with steps
        rows = _rows_of_arrows(ends, gathered.code_of("s"), gathered.code_of("t"))
    source, target = rows["source"], rows["target"]
    complete = (source >= 0) & (target >= 0)
    source, target = source[complete], target[complete]
    is_chosen = (ends["category"][source] == gathered.code_of(category)) & (
        ends["flow"][source] >= 0
    )
    source, target = source[is_chosen], target[is_chosen]
    return Arrows(
        source_track=ends["track"][source],
        source_ns=ends["start"][source],
        target_track=ends["track"][target],
        target_ns=ends["start"][target],
    )


def find_rows(ordered: Mapping[str, NDArray[Any]], requested: Mapping[str, NDArray[Any]]) -> Int:
    """Return the last row of the same track and start, -1 for none.

    Args:
        ordered: columns `track` and `start`, sorted by both.
        requested: the same columns.
    """
    if not len(ordered["start"]):
        return np.full(len(requested["start"]), -1, dtype=np.int64)
    # By rank: an unreadable start is far from all others, and products of starts overflow.
    starts = np.unique(np.concatenate([ordered["start"], requested["start"]]))
    keys, sought = (
        part["track"].astype(np.int64) * len(starts) + np.searchsorted(starts, part["start"])
        for part in (ordered, requested)
    )
    row = np.searchsorted(keys, sought, side="right") - 1
    fits = (row >= 0) & (keys[np.maximum(row, 0)] == sought)
    return np.where(fits, row, -1)


def values_at(values: Int, rows: Int) -> Int:
    """Return the values of rows, -1 where there is no row."""
    if not len(values):
        return np.full(len(rows), -1, dtype=np.int64)
    return np.where(rows >= 0, values[rows], -1)


class Captures(msgspec.Struct, frozen=True):
    """Captured launches, capture by capture in the order of their calls."""

    launches: list[Int]
    """Ids of calls."""
    kinds: list[tuple[arguments.Kind, ...]]
    """Kind of work that each launch puts on the device."""

    @property
    def ids(self) -> Int:
        """Ids of all launches."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.launches])


def name_captured(gathered: Gathered, captures: Captures, counts: Counts) -> None:
    """Give work of replayed graphs the column `captured`: the captured launch of its node.

    It is -1 for all other work, and where no capture fits.
    """
    if not captures.launches:
        return
    graphs = _graph_nodes(gathered)
    launch_of: dict[tuple[int, int], int] = {}
    for form in set(captures.kinds):
        same_form = [index for index, kinds in enumerate(captures.kinds) if kinds == form]
        candidates = [
            graph for graph, nodes in sorted(graphs.items()) if tuple(nodes.values()) == form
        ]
        if form and len(same_form) == len(candidates):
            for index, graph in zip(same_form, candidates, strict=True):
                nodes = zip(graphs[graph], captures.launches[index].tolist(), strict=True)
                launch_of.update({(graph, node): launch for node, launch in nodes})
    if not launch_of:
        return
    for kind in arguments.WORK_KINDS:
        columns = gathered.columns(kind, "graph", "graph_node")
        pairs = zip(columns["graph"].tolist(), columns["graph_node"].tolist(), strict=True)
        captured = np.array([launch_of.get(pair, -1) for pair in pairs], dtype=np.int64)
        gathered.extend(kind, "captured", captured)
        counts.captured += int((captured >= 0).sum())


def _graph_nodes(gathered: Gathered) -> dict[int, dict[int, arguments.Kind]]:
    """Return the kinds of the nodes of each graph, in their order."""
    graphs: dict[int, dict[int, arguments.Kind]] = {}
    for kind in arguments.WORK_KINDS:
        work = gathered.select(kind, ("graph", "graph_node"), "graph")
        rows = work["graph"] >= 0
        pairs = np.unique(np.stack([work["graph"][rows], work["graph_node"][rows]], axis=1), axis=0)
        for graph, node in pairs.tolist():
            graphs.setdefault(graph, {})[node] = kind
    return {graph: dict(sorted(nodes.items())) for graph, nodes in graphs.items()}


def find_captures(gathered: Gathered) -> Captures:
    """Find the captures in a trace."""
    captures = Captures([], [])
    begins, ends, launches = map(
        gathered.names_with, ((schema.CAPTURE_BEGIN,), (schema.CAPTURE_END,), schema.WORK_LAUNCHES)
    )
    if not begins or not ends:
        return captures
    copies, sets = (
        gathered.names_with((schema.COPY_LAUNCH,)),
        gathered.names_with((schema.SET_LAUNCH,)),
    )
    calls = gathered.columns(arguments.CALL_KINDS, "id", "start", "track", "name")
    marks = np.flatnonzero(np.isin(calls["name"], begins + ends))
    for begin in marks[np.isin(calls["name"][marks], begins)].tolist():
        same_track = calls["track"] == calls["track"][begin]
        later = marks[(calls["start"][marks] > calls["start"][begin]) & same_track[marks]]
        later = later[np.isin(calls["name"][later], ends)]
        if not len(later):
            continue
        end = calls["start"][later].min()
        inside = same_track & (calls["start"] > calls["start"][begin]) & (calls["start"] < end)
        rows = np.flatnonzero(inside & np.isin(calls["name"], launches))
        rows = rows[np.argsort(calls["start"][rows], kind="stable")]
        captures.launches.append(calls["id"][rows])
        captures.kinds.append(
            tuple(
                arguments.MEMCPY
                if name in copies
                else arguments.MEMSET
                if name in sets
                else arguments.KERNEL
                for name in calls["name"][rows].tolist()
            )
        )
    return captures
