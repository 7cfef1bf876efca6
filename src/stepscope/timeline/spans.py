"""The job's own recording as the timeline draws it.

The few spans that last long are held in memory. So the others are looked for among those that begin
in a window or shortly before it, and where the window is wide the store sums them up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from stepscope.analysis import Slices, merge_slices
from stepscope.intervals import separate_overlaps
from stepscope.run import RunClock
from stepscope.store import RunReader, literal
from stepscope.timeline.tracks import TrackId

SPAN_NAME = "CASE WHEN name IN ('', kind) THEN kind ELSE name END"
LONG_SHARE = 256
"""A span is a long one when it takes such a part of the run."""
_THREAD = "hash(process, log)"
"""A thread as a number: to compare strings row by row would cost more than all the rest."""
_LONG = f"""
    SELECT {_THREAD} AS thread, depth, seq, start_ns,
        greatest(coalesce(end_ns, $1), start_ns) AS until, {SPAN_NAME} AS called
    FROM spans WHERE end_ns IS NULL OR end_ns - start_ns >= $2
"""  # noqa: S608 - constants
_THREADS = f"SELECT {_THREAD} AS thread FROM (SELECT unnest($1) AS process, unnest($2) AS log)"  # noqa: S608
_LONGEST = f"CAST(until - start_ns AS HUGEINT) * {1 << 40} - seq"
"""Of several spans the longest, and the earliest of those."""
# $1 and $2 the window, $3 how far before it spans may begin, $4 what is drawn by itself.
_SHORT = f"""
    SELECT {_THREAD} AS thread, depth, seq, start_ns,
        greatest(end_ns, start_ns) AS until, {SPAN_NAME} AS called
    FROM spans
    WHERE start_ns >= $1 - $3 AND start_ns < $2 AND (end_ns > $1 OR start_ns >= $1)
        AND end_ns - start_ns < $3 AND {{tracks}}
"""  # noqa: S608
_SUMMED_UP = f"""
    SELECT thread, depth, min(start_ns) AS start_ns, max(until) AS until, count(*) AS n,
        CAST(sum(until - start_ns) AS BIGINT) AS busy, max(until - start_ns) AS longest,
        arg_max(called, {_LONGEST}) AS called, min(seq) AS seq
    FROM ({_SHORT})
    GROUP BY thread, depth, CASE WHEN until - start_ns >= $4 THEN seq ELSE -1 END, start_ns // $4
"""  # noqa: S608


class SpanTimeline:
    """The spans of a run.

    Args:
        reader: the run.
        clock: its clock; what never ended is drawn up to the end of the run.
    """

    def __init__(self, reader: RunReader, clock: RunClock) -> None:
        self._reader = reader
        self._end_ns = clock.end_ns
        self._long_ns = max(1, (clock.end_ns - clock.origin_ns) // LONG_SHARE)

    @cached_property
    def _long(self) -> dict[str, Any]:
        """The long ones."""
        return self._reader.sql(_LONG, [self._end_ns, self._long_ns])

    def window(
        self, tracks: Sequence[TrackId], places: Sequence[int], extent: tuple[int, int], width: int
    ) -> Slices:
        """Spans of some threads that lie in a range, those shorter than `width` summed up.

        Args:
            tracks: threads.
            places: what each is called in the answer.
            extent: epoch nanoseconds, the end exclusive.
            width: nanoseconds; 1 keeps every span by itself.
        """
        words = [list(words) for words in zip(*(track.words for track in tracks), strict=True)]
        threads = self._reader.sql(_THREADS, words)["thread"]
        processes = ", ".join(sorted(set(map(literal, words[0]))))
        short = self._reader.sql(
            _SUMMED_UP.format(tracks=f"process IN ({processes})"),
            [*extent, self._long_ns, width],
            within=(extent[0] - self._long_ns, extent[1]),
        )
        order = np.argsort(threads)
        parts = []
        for spans in (short, self._long):
            place = np.searchsorted(threads[order], spans["thread"])
            place = order[np.minimum(place, len(order) - 1)]
            rows = np.lexsort((spans["thread"], spans["seq"]))  # the store has no order of its own
            rows = rows[threads[place[rows]] == spans["thread"][rows]]
            chosen = {name: values[rows] for name, values in spans.items()}
            parts.append(_slices(chosen, np.asarray(places, dtype=np.int64)[place[rows]]))
        found = merge_slices([parts[0], parts[1].overlapping(*extent)])
        row = separate_overlaps(found.line, found.row, found.start, found.start + found.duration)
        return found.place_on_rows(row)


def _slices(found: dict[str, Any], line: Any) -> Slices:
    start, until = found["start_ns"].astype(np.int64), found["until"].astype(np.int64)
    count = found["n"].astype(np.int64) if "n" in found else np.ones(len(line), dtype=np.int64)
    return Slices(
        line=line,
        row=found["depth"].astype(np.int64),
        start=start,
        duration=until - start,
        count=count,
        busy=found["busy"].astype(np.int64) if "n" in found else until - start,
        longest=found["longest"].astype(np.int64) if "n" in found else until - start,
        name=np.arange(len(line), dtype=np.int64),
        event=np.where(count == 1, found["seq"], -1).astype(np.int64),
        names=found["called"].tolist(),
    )
