"""Joins over a whole file, between events that may be far apart in time.

Launches and the work they launched, forward and backward operators, host ranges and their shadows,
arrows; and overlaps within a stream, which need all work of a stream at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto.columns import Columns
from stepscope.importers.kineto.gather import Bounds, Gathered, impossible
from stepscope.importers.kineto.kinds import (
    ANNOTATION,
    CALL_KINDS,
    OPERATOR,
    WORK_KINDS,
    EventKind,
    OtherKind,
)
from stepscope.intervals import nesting_order, sort_order
from stepscope.schema import WORK_LAUNCHES

Int = NDArray[np.int64]


@dataclass(slots=True)
class Counts:
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
    overhangs: int = 0
    worst_overhang_ns: int = 0
    ranges: int = 0
    impossible_duration: int = 0
    impossible_time: int = 0


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
    names = ("id", "name", "start", "duration", "correlation")
    parts = [gathered.select(kind, names, "correlation") for kind in CALL_KINDS]
    calls = {name: np.concatenate([part[name] for part in parts]) for name in names}
    ids, starts, keys = calls["id"], calls["start"], calls["correlation"]
    launching = np.isin(calls["name"], gathered.names_with(WORK_LAUNCHES))
    if len(captured):
        launching &= ~np.isin(ids, captured)
    usable = np.flatnonzero((keys > 0) & ~impossible(calls, gathered.bounds))
    order = usable[sort_order(keys[usable], starts[usable])]
    ids, starts, keys, launching = ids[order], starts[order], keys[order], launching[order]
    counts.launches = len(keys)
    unlinked_work: dict[EventKind, tuple[Columns, NDArray[np.bool_]]] = {}
    earliest = np.full(len(gathered.tracks), np.iinfo(np.int64).max, dtype=np.int64)
    used = np.zeros(len(keys), dtype=np.bool_)
    for kind in WORK_KINDS:
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


def count_overlaps(gathered: Gathered, counts: Counts) -> None:
    """Count device work that starts before an earlier event of its stream has ended."""
    names = ("start", "duration", "track", "launch")
    columns = [gathered.columns(kind, *names) for kind in WORK_KINDS]
    joined = {name: np.concatenate([c[name] for c in columns]) for name in names}
    possible = ~impossible(joined, gathered.bounds)
    track = joined["track"][possible]
    start = Positions(gathered.bounds).of(joined["start"][possible], track)
    end = start + joined["duration"][possible]
    order = nesting_order(start, end)
    start, end, streams = start[order], end[order], track[order]
    if len(start) < 2:
        return
    reach = np.maximum.accumulate(end)[:-1]
    excess = np.where(streams[1:] == streams[:-1], reach - start[1:], 0)
    counts.overlaps = int((excess > 0).sum())
    counts.worst_overlap_ns = max(0, int(excess.max()))


@dataclass(frozen=True, slots=True)
class Positions:
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
            OPERATOR, ("id", "start", "sequence", "forward_thread"), "sequence"
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
        hosts = gathered.select(ANNOTATION, ("id", "external"), "external")
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
    ends = gathered.columns(OtherKind.FLOW, "flow", "track", "start", "name", "phase", "category")
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
    operators = gathered.columns(OPERATOR, "id", "track", "start", "duration")
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


def values_at(values: Int, rows: Int) -> Int:
    """Return the values of rows, -1 where there is no row."""
    if not len(values):
        return np.full(len(rows), -1, dtype=np.int64)
    return np.where(rows >= 0, values[rows], -1)
