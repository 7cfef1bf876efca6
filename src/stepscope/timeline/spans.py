"""Spans of the job on the timeline.

The few long spans are cached in memory. All others start within a window or shortly before it, and
for wide windows the store summarizes them.
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
"""A span is long if it takes at least 1/LONG_SHARE of the run."""
_THREAD = "hash(process, log)"
"""Thread as a number: comparing strings row by row would dominate the time."""
_LONG = f"""
    SELECT {_THREAD} AS thread, depth, seq, start_ns,
        greatest(coalesce(end_ns, $1), start_ns) AS until, {SPAN_NAME} AS label
    FROM spans WHERE end_ns IS NULL OR end_ns - start_ns >= $2
"""  # noqa: S608 - constants
_THREADS = f"SELECT {_THREAD} AS thread FROM (SELECT unnest($1) AS process, unnest($2) AS log)"  # noqa: S608
_DURATION_ORDER = f"CAST(until - start_ns AS HUGEINT) * {1 << 40} - seq"
"""Order that makes the longest span the largest, and the earliest of equally long ones."""
# $1 and $2 window, $3 maximum duration, by which spans may start earlier, $4 minimum duration of a
# span that is drawn individually.
_SHORT = f"""
    SELECT {_THREAD} AS thread, depth, seq, start_ns,
        greatest(end_ns, start_ns) AS until, {SPAN_NAME} AS label
    FROM spans
    WHERE start_ns >= $1 - $3 AND start_ns < $2 AND (end_ns > $1 OR start_ns >= $1)
        AND end_ns - start_ns < $3 AND {{tracks}}
"""  # noqa: S608
_SUMMARIES = f"""
    SELECT thread, depth, min(start_ns) AS start_ns, max(until) AS until, count(*) AS n,
        CAST(sum(until - start_ns) AS BIGINT) AS busy, max(until - start_ns) AS longest,
        arg_max(label, {_DURATION_ORDER}) AS label, min(seq) AS seq
    FROM ({_SHORT})
    GROUP BY thread, depth, CASE WHEN until - start_ns >= $4 THEN seq ELSE -1 END, start_ns // $4
"""  # noqa: S608


class SpanTimeline:
    """Spans of a run.

    Args:
        reader: reader of the run.
        clock: its clock; unfinished spans are drawn to the end of the run.
    """

    def __init__(self, reader: RunReader, clock: RunClock) -> None:
        self._reader = reader
        self._end_ns = clock.end_ns
        self._long_ns = max(1, (clock.end_ns - clock.origin_ns) // LONG_SHARE)

    @cached_property
    def _long(self) -> dict[str, Any]:
        """Columns of the long spans."""
        return self._reader.sql(_LONG, [self._end_ns, self._long_ns])

    def window(
        self, tracks: Sequence[TrackId], lines: Sequence[int], extent: tuple[int, int], width: int
    ) -> Slices:
        """Read spans of threads that overlap a range; spans shorter than `width` are summarized.

        Args:
            tracks: the threads.
            lines: line of each thread in the result.
            extent: epoch nanoseconds, the end exclusive.
            width: nanoseconds; 1 keeps every span individual.
        """
        words = [list(words) for words in zip(*(track.words for track in tracks), strict=True)]
        threads = self._reader.sql(_THREADS, words)["thread"]
        processes = ", ".join(sorted(set(map(literal, words[0]))))
        short = self._reader.sql(
            _SUMMARIES.format(tracks=f"process IN ({processes})"),
            [*extent, self._long_ns, width],
            within=(extent[0] - self._long_ns, extent[1]),
        )
        order = np.argsort(threads)
        parts = []
        for spans in (short, self._long):
            position = np.searchsorted(threads[order], spans["thread"])
            position = order[np.minimum(position, len(order) - 1)]
            rows = np.lexsort((spans["thread"], spans["seq"]))  # the store has no order of its own
            rows = rows[threads[position[rows]] == spans["thread"][rows]]
            columns = {name: values[rows] for name, values in spans.items()}
            parts.append(_build_slices(columns, np.asarray(lines, dtype=np.int64)[position[rows]]))
        slices = merge_slices([parts[0], parts[1].overlapping(*extent)])
        row = separate_overlaps(
            slices.line, slices.row, slices.start, slices.start + slices.duration
        )
        return slices.place_on_rows(row)


def _build_slices(columns: dict[str, Any], line: Any) -> Slices:
    start, until = columns["start_ns"].astype(np.int64), columns["until"].astype(np.int64)
    count = columns["n"].astype(np.int64) if "n" in columns else np.ones(len(line), dtype=np.int64)
    return Slices(
        line=line,
        row=columns["depth"].astype(np.int64),
        start=start,
        duration=until - start,
        count=count,
        busy=columns["busy"].astype(np.int64) if "n" in columns else until - start,
        longest=columns["longest"].astype(np.int64) if "n" in columns else until - start,
        name=np.arange(len(line), dtype=np.int64),
        event=np.where(count == 1, columns["seq"], -1).astype(np.int64),
        names=columns["label"].tolist(),
    )
