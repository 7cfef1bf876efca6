"""Times that cannot be: work that lasts beyond the next of its stream, ranges without an end,
clocks that were set back, work that goes on when the host has waited for its end, and events that
were written twice.

Each rule is one function of arrays.

    longest_durations   a stream does one work after the other
    last_credible_end   a recording does not go on for long after all its events but a few
    measure_setbacks    what a thread does later starts later
    measure_crowds      a device takes work from a few queues
    measure_lateness    a wait for a device ends after the work that was launched before
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope import intervals, quantities, schema
from stepscope.importers.kineto import arguments
from stepscope.importers.kineto.gather import Gathered, impossible, name_tracks
from stepscope.importers.kineto.joins import Counts, Positions

Int = NDArray[np.int64]
Codes = NDArray[np.int32]
MAX_OVERLAP_NS = 10_000
"""Overlap of work of a stream that hardware allows: a kernel may start before the one before it has
ended (https://docs.nvidia.com/cuda/cuda-c-programming-guide/#programmatic-dependent-launch-and-synchronization)."""
MAX_OVERFLOWING_SHARE = 0.5
MAX_CONCURRENT = 32
"""Queues from which a device takes work
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables)."""
MIN_LATE_SHARE = 0.5
"""Share of the waits from which on it is not their own fault that work goes on after them."""
_DEVICE_WAIT = re.compile("device_?synchronize|synchronize_?device", re.IGNORECASE)
_STREAM_WAIT = re.compile("stream_?synchronize|synchronize_?stream", re.IGNORECASE)
_LAUNCH = re.compile("|".join(schema.WORK_LAUNCHES))
_COPY_OUT = re.compile(r"DtoH|D2M")
_PAGEABLE_OUT = re.compile(r"Memcpy DtoH \(Device -> Pageable\)")
"""The call of such a copy returns when it has ended
(https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html)."""


class Patience(NamedTuple):
    """Time for which a recording may go on with nothing but open ranges."""

    factor: int
    """Multiple of the extent of the others …"""
    minimum_ns: int
    """… and at least this."""

    def after(self, extent_ns: int) -> int:
        """Return the time for which a recording of this extent may go on."""
        return max(self.factor * extent_ns, self.minimum_ns)


DEVICE_PATIENCE = Patience(1, 100_000_000)
"""The profiler waits for the device before it stops, and the host has events meanwhile."""
HOST_PATIENCE = Patience(10, 10_000_000_000)
MIN_EVIDENCE = 10
"""Other ranges without which nothing is known about the end of a recording."""

MIN_NUMBERED = 20
"""Numbered events of a thread by which the order of numbers is known to be that of time."""
MAX_SETBACK_SHARE = 0.05
"""Numbers of which more are out of order tell no order."""
SETBACK_TOLERANCE_NS = 10_000
_STEP = re.compile(rf"{schema.STEP_PREFIX}(\d{{1,18}})")


MIN_LAUNCHES, MIN_OPERATORS = 20, 100
"""Calls by which the unit of times is judged."""
POSSIBLE_NS = (100, 1_000_000)
"""A call of the driver, or an operator, takes longer; and hardly any file has almost only longer
ones."""


def find_unit(gathered: Gathered, counts: Counts) -> None:
    """Find out whether almost all launches, or operators without these, last too long or too short
    for times in microseconds."""
    of_calls = gathered.columns(arguments.CALL_KINDS, "name", "duration")
    duration = of_calls["duration"][_match(gathered, of_calls["name"], _LAUNCH)]
    calls = "calls that launch work"
    if len(duration) < MIN_LAUNCHES:
        duration = gathered.columns(arguments.OPERATOR, "duration")["duration"]
        calls = "operators"
        if len(duration) < MIN_OPERATORS:
            return
    low, middle, high = np.percentile(duration, (10, 50, 90)).tolist()
    unit = {low > POSSIBLE_NS[1]: "nanoseconds", high < POSSIBLE_NS[0]: "milliseconds"}.get(True)
    if unit is not None:
        counts.unit = (
            f"{calls} last {quantities.duration(middle)} at the median, so the times are perhaps "
            f"{unit}, and they are read as microseconds"
        )


_RANGE_KINDS: Sequence[arguments.Kind] = (
    *(arguments.OPERATOR, arguments.ANNOTATION, arguments.PYTHON_FUNCTION),
    *arguments.CALL_KINDS,
    *arguments.WORK_KINDS,
)
MIN_COPIED_SHARE = 0.1
"""Exact copies among ranges, as a share of them, from which a file was written in parts twice."""
MIN_COPIED_NS = 2_000
"""Of shorter ranges, several can start and end at one tick of the clock."""
_SAMPLED_ROWS = 20_000
_HASH = np.uint64(0x9E3779B97F4A7C15)


def leave_out_copies(gathered: Gathered, counts: Counts) -> None:
    """Leave out events that equal an earlier one in everything, where a file has many of them.

    Events of equal starts are sampled first: nearly all files have no copies.
    """
    sampled = copied = 0
    for kind in _RANGE_KINDS:
        start = gathered.columns(kind, "start")["start"]
        keys = (start.astype(np.uint64) * _HASH) >> np.uint64(32)
        is_sampled = keys % np.uint64(1 + len(start) // _SAMPLED_ROWS) == 0
        is_sampled &= gathered.columns(kind, "duration")["duration"] >= MIN_COPIED_NS
        rows = np.flatnonzero(is_sampled)
        sampled += len(rows)
        copied += int(_find_copies(gathered, kind, rows).sum())
    if copied <= MIN_COPIED_SHARE * sampled:
        return
    for kind in (*schema.EVENT_KINDS, arguments.OtherKind.OTHER):
        is_copy = _find_copies(gathered, kind, np.arange(gathered.count(kind)))
        counts.copies += int(is_copy.sum())
        gathered.leave_out(kind, is_copy)


def _find_copies(gathered: Gathered, kind: arguments.Kind, rows: Int) -> NDArray[np.bool_]:
    """Mask the rows that equal an earlier one in all columns."""
    is_copy = np.zeros(len(rows), dtype=np.bool_)
    if len(rows) < 2:
        return is_copy

    def read(name: str, rows: Int) -> NDArray[Any]:
        return gathered.columns(kind, name)[name][rows]  # one at a time: all of them take memory

    first = {name: read(name, rows) for name in ("track", "start", "name")}
    is_possible = ~impossible(first, gathered.bounds)  # lost times are equal
    order = np.lexsort(tuple(first.values()))
    is_same = np.logical_and.reduce([v[order][1:] == v[order][:-1] for v in first.values()])
    is_same &= is_possible[order][1:]
    candidates = np.zeros(len(rows), dtype=np.bool_)
    candidates[order[1:][is_same]] = candidates[order[:-1][is_same]] = True
    alike = np.flatnonzero(candidates)
    if not len(alike):
        return is_copy
    keys = np.zeros(len(alike), dtype=np.uint64)
    for name in gathered.column_names(kind):
        for column in read(name, rows[alike]).reshape(len(alike), -1).T if name != "id" else ():
            wide = column.astype(np.float64 if column.dtype.kind == "f" else np.int64)
            keys = (keys ^ wide.view(np.uint64)) * _HASH
            keys ^= keys >> np.uint64(29)
    originals = np.unique(keys, return_index=True)[1]
    is_copy[alike] = True
    is_copy[alike[originals]] = False
    return is_copy


def cut_unended(gathered: Gathered, counts: Counts) -> None:
    """Let ranges whose end was not recorded end where the last of the others does."""
    if counts.crowded:  # durations are wrong
        return
    bounds = gathered.bounds
    host = (arguments.OPERATOR, *arguments.CALL_KINDS, arguments.ANNOTATION)
    kinds = (*host, *arguments.WORK_KINDS)
    last = max(int(_read_ends(gathered, kind).max(initial=bounds.first)) for kind in kinds)
    if last <= bounds.last + DEVICE_PATIENCE.minimum_ns:
        return
    parts = [_read_ends(gathered, kind) for kind in kinds]
    ends, lengths = np.concatenate(parts), [len(part) for part in parts]
    certain = (arguments.PYTHON_FUNCTION, arguments.OtherKind.OTHER)
    certain_ends = np.concatenate([_read_ends(gathered, kind) for kind in certain])
    limit = last_credible_end(
        bounds.first,
        int(certain_ends.max(initial=bounds.last)),
        ends,
        np.repeat([kind in arguments.WORK_KINDS for kind in kinds], lengths),
    )
    late = int((ends > limit).sum())
    if not late or len(certain_ends) + len(ends) - late < MIN_EVIDENCE:
        return
    counts.unended = late
    counts.worst_unended_ns = int(ends.max()) - limit
    for kind, kind_ends in zip(kinds, parts, strict=True):
        if (kind_ends > limit).any():
            columns = gathered.columns(kind, "start", "duration")
            cut = np.where(kind_ends > limit, limit - columns["start"], columns["duration"])
            gathered.extend(kind, "duration", cut)


def _read_ends(gathered: Gathered, kind: arguments.Kind) -> Int:
    """Return the ends of the ranges of a kind; of those that are impossible, the first time."""
    names = ("start", "duration", *(("launch",) if kind in arguments.WORK_KINDS else ()))
    columns = gathered.columns(kind, *names)
    is_wrong = impossible(columns, gathered.bounds)
    return np.where(is_wrong, gathered.bounds.first, columns["start"] + columns["duration"])


def last_credible_end(first: int, last: int, ends: Int, on_device: NDArray[np.bool_]) -> int:
    """Return the first time from `last` on after which nothing ends while one can be patient.

    Args:
        first: start of the recording.
        last: last time that is certain, such as the latest start of an event.
        ends: ends of the ranges that may have lost theirs.
        on_device: True for those of device work.
    """
    limit = last
    rows = np.flatnonzero(ends > last)
    for row in rows[np.argsort(ends[rows], kind="stable")].tolist():
        patience = DEVICE_PATIENCE if on_device[row] else HOST_PATIENCE
        if ends[row] <= limit + patience.after(limit - first):
            limit = int(ends[row])
    return limit


def find_setbacks(gathered: Gathered, counts: Counts) -> None:
    """Find where the clock was set back: steps of one thread that overlap or are not in the order
    of their numbers, and operators and calls, which recorders number in the order of their start.
    """
    for kind in (arguments.ANNOTATION, arguments.OPERATOR):
        _find_step_setbacks(gathered, counts, kind)
    numbers = {arguments.OPERATOR: "external", **dict.fromkeys(arguments.CALL_KINDS, "correlation")}
    for kind, number in numbers.items():
        columns = gathered.select(kind, ("track", "start", "duration", number), number)
        is_valid = ~impossible(columns, gathered.bounds) & (columns[number] > 0)
        track, start, order = (columns.pop(name)[is_valid] for name in ("track", "start", number))
        del columns
        # One after the other: of all together, this would take the most memory of a large import.
        for one in np.flatnonzero(np.bincount(track) >= MIN_NUMBERED).tolist():
            is_here = track == one
            starts = start[is_here]
            amounts = measure_setbacks(order[is_here], starts, starts)
            if np.count_nonzero(amounts) <= MAX_SETBACK_SHARE * len(amounts):
                _count_setbacks(counts, amounts, "")


def _find_step_setbacks(gathered: Gathered, counts: Counts, kind: arguments.Kind) -> None:
    codes = [n for n, text in enumerate(gathered.strings) if _STEP.fullmatch(text)]
    if not codes:
        return
    columns = gathered.columns(kind, "track", "name", "start", "duration")
    rows = np.flatnonzero(np.isin(columns["name"], codes) & ~impossible(columns, gathered.bounds))
    rows = rows[np.argsort(columns["start"][rows], kind="stable")]
    keys = columns["track"][rows].astype(np.int64) * len(gathered.strings) + columns["name"][rows]
    last = len(rows) - 1 - np.unique(keys[::-1], return_index=True)[1]  # numbers may start again
    rows = rows[np.sort(last)]
    track, start = columns["track"][rows], columns["start"][rows]
    names = [gathered.strings[code] for code in columns["name"][rows].tolist()]
    number = np.array([int(name.partition("#")[2]) for name in names], np.int64)
    end = start + columns["duration"][rows]
    amounts = np.zeros(len(rows), dtype=np.int64)
    threads = [track == one for one in np.unique(track)]
    for is_here in threads:
        amounts[is_here] = measure_setbacks(number[is_here], start[is_here], end[is_here])
    if amounts.any():
        row = int(amounts.argmax())
        before = number[(track == track[row]) & (number < number[row])].max()
        detail = f"step {number[row]} starts before the end of step {before}"
        for is_here in threads:
            _count_setbacks(counts, amounts[is_here], detail)


def _count_setbacks(counts: Counts, amounts: Int, detail: str) -> None:
    """Count setbacks of a thread: those of the thread with most of them, as all threads have the
    same clock."""
    count = int(np.count_nonzero(amounts))
    if count:
        counts.setbacks = max(counts.setbacks, count)
        counts.worst_setback_ns = max(counts.worst_setback_ns, int(amounts.max()))
        counts.setback_detail = counts.setback_detail or detail


def measure_setbacks(number: Int, start: Int, reached: Int) -> Int:
    """Return the time by which each event of a thread starts before the one with the next smaller
    number had reached, 0 up to the tolerance.

    Args:
        number: position in the order in which the events began.
        reached: time that was certainly reached before the event with the next number.
    """
    order = np.argsort(number, kind="stable")
    back = reached[order[:-1]]
    back -= start[order[1:]]
    back[back <= SETBACK_TOLERANCE_NS] = 0
    amounts = np.zeros(len(order), dtype=np.int64)
    amounts[order[1:]] = back
    return amounts


def count_overlaps(gathered: Gathered, counts: Counts) -> None:
    """Count device work that starts before an earlier event of its stream has ended."""
    names = ("start", "duration", "track", "launch")
    work = gathered.columns(arguments.WORK_KINDS, *names)
    possible = ~impossible(work, gathered.bounds)
    track = work["track"][possible]
    start = Positions(gathered.bounds).of(work["start"][possible], track)
    end = start + work["duration"][possible]
    order = intervals.nesting_order(start, end)
    start, end, streams = start[order], end[order], track[order]
    if len(start) < 2:
        return
    reach = np.maximum.accumulate(end)[:-1]
    excess = np.where(streams[1:] == streams[:-1], reach - start[1:], 0)
    counts.overlaps = int((excess > 0).sum())
    counts.worst_overlap_ns = max(0, int(excess.max()))


def cut_overflows(gathered: Gathered, counts: Counts) -> None:
    """Let device work end where the next work of its stream starts, if it cannot last longer."""
    names = ("start", "duration", "track", "graph_node", "launch")
    work = gathered.columns(arguments.WORK_KINDS, *names)
    possible = np.flatnonzero(~impossible(work, gathered.bounds))
    track, start, duration, node = (
        work[name][possible] for name in ("track", "start", "duration", "graph_node")
    )
    may_nest = (node >= 0) | _find_nesting_tracks(gathered)[track]
    crowds = np.where(may_nest, 0, measure_crowds(track, start, duration))
    counts.crowded = int((crowds > MAX_CONCURRENT).sum())
    counts.worst_crowd = int(crowds.max(initial=0))
    allowed = longest_durations(track, start, duration, may_nest)
    too_long = duration > allowed
    counts.overflows = int(too_long.sum())
    if not counts.overflows:
        return
    counts.worst_overflow_ns = int((duration - allowed)[too_long].max())
    durations = work["duration"].copy()
    durations[possible] = np.where(too_long, allowed, duration)
    ends = np.cumsum([gathered.count(kind) for kind in arguments.WORK_KINDS])
    for kind, values in zip(arguments.WORK_KINDS, np.split(durations, ends[:-1]), strict=True):
        gathered.extend(kind, "duration", values)


def _find_nesting_tracks(gathered: Gathered) -> NDArray[np.bool_]:
    """Mask the tracks whose work may run during other work of the track."""
    names = name_tracks(gathered)
    processes = frozenset(process for process, _, _ in names)
    lanes = [schema.find_lane(process, thread, processes) for process, thread, _ in names]
    return np.array(
        [
            "XLA" in thread or (lane is not None and lane[1].nests)
            for (_, thread, _), lane in zip(names, lanes, strict=True)
        ],
        dtype=np.bool_,
    )


def longest_durations(
    stream: NDArray[Any], start: Int, duration: Int, in_graph: NDArray[np.bool_]
) -> Int:
    """Return the longest possible duration of work: a stream does one work after the other.

    The next work may start up to `MAX_OVERLAP_NS` before the end. Work in a graph may run beside
    other work of it, and a stream of which more than half is longer works on several at once.
    """
    order = np.lexsort((start, stream))
    streams, starts = stream[order], start[order]
    is_first = np.ones(len(order) + 1, dtype=np.bool_)
    is_first[1:-1] = (streams[1:] != streams[:-1]) | (starts[1:] != starts[:-1])
    following = np.flatnonzero(is_first)[np.cumsum(is_first[:-1])]  # the first work that is later
    has_next = following < len(order)
    has_next[has_next] = streams[following[has_next]] == streams[has_next]
    limits = duration[order].copy()
    gaps = starts[following[has_next]] - starts[has_next]
    limits[has_next] = np.minimum(limits[has_next], gaps)
    too_long = (duration[order] > limits + MAX_OVERLAP_NS) & ~in_graph[order]
    numbers = np.unique(streams, return_inverse=True)[1]
    shares = np.bincount(numbers, too_long) / np.maximum(np.bincount(numbers), 1)
    too_long &= (shares <= MAX_OVERFLOWING_SHARE)[numbers]
    longest = np.empty_like(limits)
    longest[order] = np.where(too_long, limits, duration[order])
    return longest


def measure_crowds(stream: NDArray[Any], start: Int, duration: Int) -> NDArray[np.float64]:
    """Return for each work the mean number of works that its stream has at once, from the first
    start to the last."""
    numbers, count = stream.astype(np.int64), int(stream.max(initial=-1)) + 1
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, numbers, start)
    np.maximum.at(last, numbers, start)
    inside = np.minimum(duration, last[numbers] - start)
    crowds = np.bincount(numbers, inside, count) / np.maximum(last - first, 1)
    of_work: NDArray[np.float64] = crowds[numbers]
    return of_work


def find_late_work(gathered: Gathered, counts: Counts) -> None:
    """Find waits of the host that end before the work that they wait for, after launches are
    joined."""
    if counts.crowded:  # durations are wrong
        return
    lateness = np.concatenate([_measure_late_waits(gathered), _measure_late_copies(gathered)])
    late = lateness > schema.MAX_EARLY_NS
    if late.any() and late.mean() >= MIN_LATE_SHARE:
        counts.waits, counts.late_waits = len(lateness), int(late.sum())
        counts.median_late_ns = int(np.median(lateness[late]))


def _measure_late_waits(gathered: Gathered) -> Int:
    """Return the time by which work goes on after each wait for a device."""
    names = ("device", "when", "start", "duration", "launch")
    work = gathered.columns(arguments.WORK_KINDS, *names)
    rows = np.flatnonzero((work["launch"] >= 0) & ~impossible(work, gathered.bounds))
    device, when = work["device"][rows], work["when"][rows]
    ends = work["start"][rows] + work["duration"][rows]
    waits = np.flatnonzero(_match(gathered, _read_calls(gathered, "name"), _DEVICE_WAIT))
    start = _read_calls(gathered, "start")[waits]
    end = start + _read_calls(gathered, "duration")[waits]
    return measure_lateness(device, when, ends, start, end)


def _read_calls(gathered: Gathered, name: str) -> NDArray[Any]:
    """Return a column of all calls; of a large file, several at once take much memory."""
    return gathered.columns(arguments.CALL_KINDS, name)[name]


def _match(gathered: Gathered, names: NDArray[Any], pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    """Mask the codes of strings in which a pattern is."""
    mask = np.zeros(len(gathered.strings) + 1, dtype=np.bool_)
    mask[names] = True
    for code in np.flatnonzero(mask).tolist():
        text = gathered.strings[code] if code < len(gathered.strings) else ""  # of code -1
        mask[code] = pattern.search(text) is not None
    is_match: NDArray[np.bool_] = mask[names]
    return is_match


def _measure_late_copies(gathered: Gathered) -> Int:
    """Return the time by which each copy to the host goes on after the wait for it: its call if it
    is to pageable memory, or the next call of the thread if that waits for a stream."""
    copies = gathered.columns(arguments.MEMCPY, "name", "launch", "start", "duration")
    is_out = _match(gathered, copies["name"], _COPY_OUT) & (copies["launch"] >= 0)
    if not is_out.any():
        return np.zeros(0, dtype=np.int64)
    copies = {name: values[is_out] for name, values in copies.items()}
    ids = _read_calls(gathered, "id")
    order = np.argsort(ids, kind="stable")
    call = order[np.searchsorted(ids[order], copies["launch"])]
    track, start = _read_calls(gathered, "track"), _read_calls(gathered, "start")
    by_thread = np.lexsort((start, track))
    position = np.empty_like(order)
    position[by_thread] = np.arange(len(order))
    following = np.append(by_thread, -1)[position[call] + 1]
    names = _read_calls(gathered, "name")[following]
    is_wait = (following >= 0) & _match(gathered, names, _STREAM_WAIT)
    is_wait &= track[following] == track[call]
    wait = np.where(is_wait, following, call)
    is_waited = is_wait | _match(gathered, copies["name"], _PAGEABLE_OUT)
    late = copies["start"] + copies["duration"] - start[wait]
    late -= _read_calls(gathered, "duration")[wait]
    return np.asarray(late[is_waited], dtype=np.int64)


def measure_lateness(device: Int, launched: Int, ends: Int, wait_start: Int, wait_end: Int) -> Int:
    """Return the time by which work goes on after each wait for a device before which it was
    launched; a process with several devices waits for one of them, not known which.

    Args:
        device, launched, ends: of work: its device, and the times of its launch and its end.
        wait_start, wait_end: of the waits that have work before them.

    Returns:
        One for each wait before which each device has work; negative where the wait is longer.
    """
    order = np.argsort(launched, kind="stable")
    lateness = []
    for number in np.unique(device):
        of_device = order[device[order] == number]
        reached = np.maximum.accumulate(ends[of_device])
        before = np.searchsorted(launched[of_device], wait_start, side="left") - 1
        lateness.append(np.where(before >= 0, reached[before] - wait_end, np.iinfo(np.int64).min))
    if not lateness:
        return np.zeros(0, dtype=np.int64)
    smallest = np.min(lateness, axis=0)
    return np.asarray(smallest[smallest > np.iinfo(np.int64).min], dtype=np.int64)
