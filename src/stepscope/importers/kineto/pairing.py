"""Ranges made of begin and end events.

Kineto writes whole ranges; other writers of the same format write a `B` and an `E` event for each,
which match like brackets, thread by thread.
"""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec import Raw

from stepscope.importers.kineto.categories import Event
from stepscope.importers.kineto.columns import Columns
from stepscope.importers.kineto.decode import chunk_of
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.kinds import OtherKind
from stepscope.importers.times import INVALID, decimal_text
from stepscope.schema import MALFORMED_JSON

_COLUMNS = (
    "id", "track", "name", "start", "phase", "category", "duration", "has_duration", "args",
)  # fmt: skip


def pair_ranges(gathered: Gathered) -> None:
    """Replace begin and end events by ranges; those without a partner stay events of their own.

    A range has the id of its begin event.
    """
    if not gathered.count(OtherKind.BEGIN, OtherKind.END):
        return
    begins, ends = (gathered.take(kind, *_COLUMNS) for kind in (OtherKind.BEGIN, OtherKind.END))
    marks = {name: np.concatenate([begins[name], ends[name]]) for name in _COLUMNS}
    partner = _partners(marks, len(begins["id"]), gathered.code_of(""))
    paired = [row for row in range(len(begins["id"])) if partner[row] >= 0]
    unpaired = [row for row, partner_row in enumerate(partner) if partner_row < 0]
    ranges = chunk_of([_range(gathered, marks, row, partner[row]) for row in paired])
    gathered.add(ranges, marks["id"][paired])
    gathered.keep(OtherKind.OTHER, {name: values[unpaired] for name, values in marks.items()})


def _partners(marks: Columns, begin_count: int, unnamed: int) -> list[int]:
    """Return the partner row of each begin and end event, -1 for none; begins come first.

    An end closes the range that was opened last, or the last one that has its name.
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
            same_name = [i for i, begin in enumerate(stack) if names[begin] == names[row]]
            if not same_name:
                continue
            del stack[same_name[-1] + 1 :]  # these never ended
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
        args=Raw(_merge_args(text("args", begin), text("args", end))),
    )


def _merge_args(begin: str, end: str) -> bytes:
    """Merge the arguments of a begin and of its end event, whose values take precedence."""
    try:
        objects = [msgspec.json.decode(text, type=dict[str, Raw]) for text in (begin, end) if text]
    except MALFORMED_JSON:
        return (begin or end).encode()
    return msgspec.json.encode({key: value for args in objects for key, value in args.items()})
