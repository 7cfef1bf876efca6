"""Joins over a whole file: what may lie far apart in time.

Launches and the work they launched, forward and backward operators, arrows; and overlaps within a
stream, which need all work of a stream in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.importers.kineto.decode import Columns
from stepscope.importers.kineto.gather import Bounds, Gathered, impossible
from stepscope.importers.kineto.kinds import Kind
from stepscope.intervals import nesting_order, sort_order

Int = NDArray[np.int64]

DEVICE_KINDS = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
CALL_KINDS = (Kind.RUNTIME, Kind.DRIVER)
LAUNCHES = ("LaunchKernel", "LaunchCooperativeKernel", "Memcpy", "Memset")
"""What the names of calls contain that put one piece of work on a device."""


@dataclass(slots=True)
class Counts:
    """What was noticed while linking; see `schema.QUALITY_CHECKS`."""

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
    """Finds the launch of all device work and gives the work the column `launch` and the time
    of its launch; without one, -1 and its own start. Also tells carry-over.

    Work is launched by the last call with its correlation that began before it ended. Work
    without a launch was launched before the window if it runs before the first work of its
    stream that has one: a stream is first in, first out. Impossible events say nothing.

    Args:
        captured: ids of the calls that were captured into graphs, and put no work on a device.
    """
    names = ("id", "name", "start", "duration", "correlation")
    parts = [gathered.select(kind, names, "correlation") for kind in CALL_KINDS]
    calls = {name: np.concatenate([part[name] for part in parts]) for name in names}
    ids, starts, keys = calls["id"], calls["start"], calls["correlation"]
    launching = np.isin(calls["name"], gathered.names_with(LAUNCHES))
    if len(captured):
        launching &= ~np.isin(ids, captured)
    usable = np.flatnonzero((keys > 0) & ~impossible(calls, gathered.bounds))
    order = usable[sort_order(keys[usable], starts[usable])]
    ids, starts, keys, launching = ids[order], starts[order], keys[order], launching[order]
    counts.launches = len(keys)
    found_unlinked: dict[Kind, tuple[Columns, NDArray[np.bool_]]] = {}
    earliest = np.full(len(gathered.tracks), np.iinfo(np.int64).max, dtype=np.int64)
    used = np.zeros(len(keys), dtype=np.bool_)
    for kind in DEVICE_KINDS:
        work = gathered.columns(kind, "start", "duration", "correlation", "track")
        found = _last_before(keys, starts, work["correlation"], work["start"] + work["duration"])
        linked = found >= 0
        used[found[linked]] = True
        launch = taken(ids, found)
        when = np.where(linked, taken(starts, found), work["start"])
        gathered.extend(kind, "launch", launch)
        gathered.extend(kind, "when", when)
        possible = ~impossible({**work, "launch": launch}, gathered.bounds)
        telling = linked & possible
        np.minimum.at(earliest, work["track"][telling], work["start"][telling])
        found_unlinked[kind] = (work, possible & ~linked)
        counts.device += len(linked)
        counts.unlinked += int((~linked).sum())
        counts.zero_correlation += int((work["correlation"] <= 0).sum())
    any_launch = len(keys) > 0
    for kind, (work, unlinked) in found_unlinked.items():
        before = any_launch & unlinked & (work["start"] < earliest[work["track"]])
        before &= (earliest != np.iinfo(np.int64).max)[work["track"]]
        gathered.extend(kind, "carry_over", before.astype(np.int64))
        counts.carry_over += int(before.sum())
    same = np.flatnonzero(keys[1:] == keys[:-1])
    first = np.flatnonzero(np.diff(keys, prepend=0))  # row of each key: they are sorted, none is 0
    launched = np.logical_or.reduceat(launching, first)
    counts.launching = int(launched.sum())
    counts.unlinked_launches = int((launched & ~np.logical_or.reduceat(used, first)).sum())
    counts.duplicate_correlation = int((used[same] | used[same + 1]).sum())


def _last_before(keys: Int, starts: Int, wanted: Int, until: Int) -> Int:
    """Row of the last of the calls with a key that began by a time, -1 for none.

    Args:
        keys, starts: sorted by key, then by start.
    """
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    low = np.searchsorted(keys, wanted, side="left")
    high = np.searchsorted(keys, wanted, side="right")
    found = np.where((high > low) & (wanted > 0), low, -1).astype(np.int64)
    for row in np.flatnonzero((high - low > 1) & (wanted > 0)):
        among = starts[low[row] : high[row]]
        found[row] = low[row] + max(0, int(np.searchsorted(among, until[row], side="right")) - 1)
    return found


def count_overlaps(gathered: Gathered, counts: Counts) -> None:
    """Device work that starts before an earlier event of its stream has ended."""
    names = ("start", "duration", "track", "launch")
    columns = [gathered.columns(kind, *names) for kind in DEVICE_KINDS]
    joined = {name: np.concatenate([c[name] for c in columns]) for name in names}
    start, duration, track = joined["start"], joined["duration"], joined["track"]
    wrong = impossible(joined, gathered.bounds)
    position = Positions(gathered.bounds)
    begin = position.of(start[~wrong], track[~wrong])
    end = begin + duration[~wrong]
    order = nesting_order(begin, end)
    begin, end, streams = begin[order], end[order], track[~wrong][order]
    if len(begin) < 2:
        return
    reach = np.maximum.accumulate(end)[:-1]
    excess = np.where(streams[1:] == streams[:-1], reach - begin[1:], 0)
    counts.overlaps = int((excess > 0).sum())
    counts.worst_overlap_ns = max(0, int(excess.max()))


@dataclass(frozen=True, slots=True)
class Positions:
    """One axis for all tracks."""

    bounds: Bounds

    @property
    def stretch(self) -> int:
        """Length of a track on the axis."""
        return self.bounds.last - self.bounds.first + self.bounds.host_limit + 1

    def of(self, times: Int, track: NDArray[Any]) -> Int:
        """Place of a time of a track."""
        return (times - self.bounds.first) + track.astype(np.int64) * self.stretch


class Forwards:
    """Which forward operator each backward operator belongs to.

    Recorders draw arrows for this in some traces; in all of them both carry the same sequence
    number, and the backward one the number of the forward thread. Among the operators with a
    sequence number the one that began last is the one that made the gradient's node: the others
    are around it.
    """

    def __init__(self, gathered: Gathered) -> None:
        found = gathered.select(
            Kind.OPERATOR, ("id", "start", "sequence", "forward_thread"), "sequence"
        )
        forward = found["forward_thread"] <= 0
        sequence, start = found["sequence"][forward], found["start"][forward]
        order = np.lexsort((start, sequence))
        self._ids = found["id"][forward][order]
        self._numbers, first = np.unique(sequence[order], return_index=True)
        self._stretch = gathered.bounds.last - gathered.bounds.first + 1
        self._first_ns = gathered.bounds.first
        place = np.repeat(np.arange(len(first)), np.diff([*first, len(order)]))
        self._at = self._key(place, start[order])

    def _key(self, place: Int, start: Int) -> Int:
        """Sorts by number, then by start."""
        return place * self._stretch + np.clip(start - self._first_ns, 0, self._stretch - 1)

    def of(self, sequence: Int, forward_thread: Int, start: Int) -> Int:
        """Ids of forward operators that began before a start, -1 for none."""
        forward = np.full(len(sequence), -1, dtype=np.int64)
        asking = np.flatnonzero((sequence >= 0) & (forward_thread > 0))
        if len(asking) and len(self._ids):
            place = np.searchsorted(self._numbers, sequence[asking])
            known = self._numbers[np.minimum(place, len(self._numbers) - 1)] == sequence[asking]
            last = np.searchsorted(self._at, self._key(place, start[asking])) - 1
            first = self._at[np.maximum(last, 0)] // self._stretch == place
            fits = known & (last >= 0) & first
            forward[asking[fits]] = self._ids[last[fits]]
        return forward


def bind_flows(gathered: Gathered, base_ns: int) -> Columns:
    """Rows of the table `flows`: arrows that are no launches, with the events they bind to.

    An arrow binds to the operator that begins where it does, on the same track.
    """
    found = gathered.columns(Kind.FLOW, "flow", "track", "start", "name", "phase", "category")
    positions = Positions(gathered.bounds)
    if not len(found["flow"]):
        return {}
    source = np.flatnonzero(found["phase"] == gathered.place("s"))
    target = np.flatnonzero(found["phase"] == gathered.place("f"))
    keys = [np.stack([found["category"][r], found["flow"][r]]) for r in (source, target)]
    keys_s, keys_t = (list(map(tuple, each.T.tolist())) for each in keys)
    ends = dict(zip(keys_t, target.tolist(), strict=True))
    begins = dict(zip(keys_s, source.tolist(), strict=True))
    all_keys = list(dict.fromkeys([*keys_s, *keys_t]))
    rows = {
        "source": np.array([begins.get(k, -1) for k in all_keys], dtype=np.int64),
        "target": np.array([ends.get(k, -1) for k in all_keys], dtype=np.int64),
    }
    named = np.where(rows["source"] >= 0, rows["source"], rows["target"])
    columns: Columns = {
        "kind": found["category"][named],
        "name": found["name"][named],
        "flow": found["flow"][named],
    }
    operators = gathered.columns(Kind.OPERATOR, "id", "track", "start", "duration")
    at = positions.of(operators["start"], operators["track"])
    order = np.lexsort((-operators["duration"], at))
    at, ids = at[order], operators["id"][order]
    for end, row in rows.items():
        known = row >= 0
        start, track = found["start"][row], found["track"][row]
        place = np.searchsorted(at, positions.of(start, track), side="right") - 1
        fits = known & (place >= 0)
        fits &= at[np.maximum(place, 0)] == positions.of(start, track) if len(at) else False
        columns[f"{end}_track"] = np.where(known, track, -1)
        columns[f"{end}_ns"] = np.where(known, start + base_ns, -1)
        columns[end] = np.where(fits, ids[np.maximum(place, 0)] if len(at) else -1, -1)
    return columns


def taken(values: Int, rows: Int) -> Int:
    """Values of rows, -1 where there is no row."""
    if not len(values):
        return np.full(len(rows), -1, dtype=np.int64)
    return np.where(rows >= 0, values[rows], -1)
