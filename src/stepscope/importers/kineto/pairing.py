"""Begin and end events become ranges.

Kineto writes whole ranges; other writers of the same format write a `B` and an `E` event for each,
which belong together as brackets do, thread by thread.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import Raw

from stepscope.importers.kineto.categories import Event
from stepscope.importers.kineto.decode import Columns, chunk_of
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.kinds import Kind
from stepscope.importers.times import INVALID, decimal_text

_COLUMNS = (
    "id", "track", "name", "start", "phase", "category", "duration", "has_duration", "args",
)  # fmt: skip
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError)


def pair_ranges(gathered: Gathered) -> None:
    """Puts ranges in the place of begin and end events; those without a partner stay events of
    their own. A range has the id of its begin."""
    if not gathered.count(Kind.BEGIN, Kind.END):
        return
    begins, ends = (gathered.take(kind, *_COLUMNS) for kind in (Kind.BEGIN, Kind.END))
    marks = {name: np.concatenate([begins[name], ends[name]]) for name in _COLUMNS}
    partner = _partners(marks, len(begins["id"]), gathered.place(""))
    paired = [row for row in range(len(begins["id"])) if partner[row] >= 0]
    alone = [row for row, other in enumerate(partner) if other < 0]
    ranges = chunk_of([_range(gathered, marks, row, partner[row]) for row in paired])
    gathered.add(ranges, marks["id"][paired])
    gathered.keep(Kind.OTHER, {name: values[alone] for name, values in marks.items()})


def _partners(marks: Columns, begin_count: int, unnamed: int) -> list[int]:
    """The row that each begin or end belongs to, -1 for none; begins come first.

    An end closes what was opened last, unless it has the name of something opened before.
    """
    partner = [-1] * len(marks["id"])
    open_rows: dict[int, list[int]] = {}
    times, tracks, names = (marks[name].tolist() for name in ("start", "track", "name"))
    for row in np.lexsort((marks["id"], marks["start"])).tolist():
        if times[row] == INVALID:
            continue
        stack = open_rows.setdefault(tracks[row], [])
        if row < begin_count:
            stack.append(row)
            continue
        if names[row] != unnamed:
            places = [place for place, begin in enumerate(stack) if names[begin] == names[row]]
            if not places:
                continue
            del stack[places[-1] + 1 :]  # these never ended
        if stack:
            begin = stack.pop()
            partner[row], partner[begin] = begin, row
    return partner


def _range(gathered: Gathered, marks: Columns, begin: int, end: int) -> Event:
    def text(name: str, row: int) -> str:
        code = marks[name][row]
        return gathered.strings[code] if code >= 0 else ""

    pid, tid = gathered.tracks[marks["track"][begin]]
    start = int(marks["start"][begin])
    return Event(
        ph="X",
        cat=text("category", begin),
        name=text("name", begin),
        pid=pid,
        tid=tid,
        ts=Raw(decimal_text(start)),
        dur=Raw(decimal_text(int(marks["start"][end]) - start)),
        args=Raw(_both(text("args", begin), text("args", end))),
    )


def _both(first: str, second: str) -> bytes:
    """The arguments of a begin and of its end, which says the last word."""
    try:
        held = [msgspec.json.decode(each, type=dict[str, Raw]) for each in (first, second) if each]
    except _UNREADABLE:
        return (first or second).encode()
    return msgspec.json.encode({key: value for args in held for key, value in args.items()})
