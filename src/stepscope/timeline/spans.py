"""Spans of the job on the timeline.

The few long spans are cached in memory. All others start within a window or shortly before it, and
for wide windows the store summarizes them. Aggregates (`schema.AGGREGATE_KINDS`) are no slices: a
sum of times is a part of the slice in which they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stepscope import analysis, intervals, run, schema, store
from stepscope.timeline.tracks import TrackId

SPAN_NAME = (
    "CASE WHEN name IN ('', kind) THEN kind WHEN kind IN ('annotation', 'mode') THEN name "
    "ELSE concat(kind, ': ', name) END"
)
"""SQL for the name of a span on the timeline. Without the kind, the fetch, samples and sample of a
dataset would have one name."""


def _select_kinds(kinds: Iterable[str]) -> str:
    return f"kind IN ({', '.join(map(store.literal, kinds))})"


IS_AGGREGATE = _select_kinds(schema.AGGREGATE_KINDS)
"""SQL condition for spans that are no intervals."""
SPAN_DURATION = f"if({IS_AGGREGATE}, value, greatest(coalesce(end_ns, $2), start_ns) - start_ns)"
"""SQL for the duration of a span, or the sum of an aggregate; $2 is the end of the run."""
IS_SLICE = (
    f"NOT {_select_kinds(k for k, container in schema.AGGREGATE_KINDS.items() if k != container)}"
)
"""SQL condition for spans that have a slice: all except the aggregates inside another slice."""
IS_NO_WORK = f"({IS_AGGREGATE} OR {_select_kinds(('step', 'window'))})"
"""SQL condition for spans that do no work: aggregates, and marks of steps and windows."""
LONG_SHARE = 256
"""A span is long if it takes at least 1/LONG_SHARE of the run."""
_THREAD = "hash(process, log)"
"""Thread as a number: comparing strings row by row would dominate the time."""
_LONG = f"""
    SELECT {_THREAD} AS thread, depth, seq, start_ns,
        greatest(coalesce(end_ns, $1), start_ns) AS until, {SPAN_NAME} AS label,
        {IS_NO_WORK} AS is_no_work
    FROM spans WHERE {IS_SLICE} AND (end_ns IS NULL OR end_ns - start_ns >= $2)
"""  # noqa: S608 - constants
_THREADS = f"SELECT {_THREAD} AS thread FROM (SELECT unnest($1) AS process, unnest($2) AS log)"  # noqa: S608
_DURATION_ORDER = f"CAST(until - start_ns AS HUGEINT) * {1 << 40} - seq"
"""Order that makes the longest span the largest, and the earliest of equally long ones."""
# $1 and $2 window, $3 maximum duration, by which spans may start earlier, $4 minimum duration of a
# span that is drawn individually.
_SHORT = f"""
    SELECT {_THREAD} AS thread, depth, seq, start_ns,
        greatest(end_ns, start_ns) AS until, {SPAN_NAME} AS label,
        if({IS_AGGREGATE}, value, until - start_ns) AS busy
    FROM spans
    WHERE start_ns >= $1 - $3 AND start_ns < $2 AND (end_ns > $1 OR start_ns >= $1)
        AND end_ns - start_ns < $3 AND {{condition}}
"""  # noqa: S608
_SUMMARIES = f"""
    SELECT thread, depth, min(start_ns) AS start_ns, max(until) AS until, count(*) AS n,
        CAST(sum(busy) AS BIGINT) AS busy, max(until - start_ns) AS longest,
        arg_max(label, {_DURATION_ORDER}) AS label, min(seq) AS seq
    FROM ({_SHORT})
    GROUP BY thread, depth, CASE WHEN until - start_ns >= $4 THEN seq ELSE -1 END, start_ns // $4
"""  # noqa: S608
_CONTAINER = (
    "CASE kind "
    + " ".join(
        f"WHEN '{kind}' THEN '{container}'" for kind, container in schema.AGGREGATE_KINDS.items()
    )
    + " END"
)
_PARTS = f"""
    SELECT part.thread AS thread, container.seq AS event, part.label AS label, part.value AS value
    FROM (
        SELECT *, {_THREAD} AS thread, {SPAN_NAME} AS label, {_CONTAINER} AS container
        FROM spans WHERE {IS_AGGREGATE} AND {{condition}}
    ) AS part JOIN (
        SELECT *, {_THREAD} AS thread
        FROM spans WHERE {_select_kinds(schema.AGGREGATE_KINDS.values())} AND {{condition}}
    ) AS container ON container.thread = part.thread AND container.kind = part.container
        AND container.start_ns = part.start_ns AND container.end_ns = part.end_ns
    ORDER BY part.thread, part.seq
"""  # noqa: S608
_LONG_PARTS = _PARTS.format(condition="end_ns - start_ns >= $1")
# Parameters as of `_SHORT`; $4 is the minimum duration of a span whose parts are read.
_SHORT_PARTS = _PARTS.format(
    condition="start_ns >= $1 - $3 AND start_ns < $2 AND end_ns > $1 "
    "AND end_ns - start_ns >= $4 AND end_ns - start_ns < $3"
)


class SlicePart(NamedTuple):
    """Aggregate inside a slice."""

    line: int
    """Line of the slice."""
    event: int
    """Event of the slice."""
    name: str
    spent_ns: int
    """Sum of the times; where in the slice they are is not recorded."""


class SpanTimeline:
    """Spans of a run.

    Args:
        reader: reader of the run.
        clock: its clock; unfinished spans are drawn to the end of the run.
    """

    def __init__(self, reader: store.RunReader, clock: run.RunClock) -> None:
        self._reader = reader
        self._end_ns = clock.end_ns
        self._long_ns = max(1, (clock.end_ns - clock.origin_ns) // LONG_SHARE)

    @cached_property
    def _long(self) -> dict[str, Any]:
        """Columns of the long spans."""
        return self._reader.sql(_LONG, [self._end_ns, self._long_ns])

    @cached_property
    def unfinished(self) -> dict[tuple[str, str], set[int]]:
        """Spans without an end, by process and log."""
        columns = self._reader.sql("SELECT process, log, seq FROM spans WHERE end_ns IS NULL")
        spans: dict[tuple[str, str], set[int]] = defaultdict(set)
        for process, log, seq in zip(
            *(columns[name].tolist() for name in ("process", "log", "seq")), strict=True
        ):
            spans[process, log].add(seq)
        return spans

    @cached_property
    def _long_parts(self) -> dict[str, Any]:
        """Columns of the parts of long spans."""
        return self._reader.sql(_LONG_PARTS, [self._long_ns])

    def window(
        self,
        tracks: Sequence[TrackId],
        lines: Sequence[int],
        extent: tuple[int, int],
        width: int,
        *,
        only_work: bool,
    ) -> analysis.Slices:
        """Read spans of threads that overlap a range; spans shorter than `width` are summarized.

        Args:
            tracks: the threads.
            lines: line of each thread in the result.
            extent: epoch nanoseconds, the end exclusive.
            width: nanoseconds; 1 keeps every span individual.
            only_work: leave out aggregates, and marks of steps and windows.
        """
        processes = ", ".join(sorted({store.literal(track.words[0]) for track in tracks}))
        condition = f"NOT {IS_NO_WORK}" if only_work else IS_SLICE
        short = self._reader.sql(
            _SUMMARIES.format(condition=f"{condition} AND process IN ({processes})"),
            [*extent, self._long_ns, width],
            within=(extent[0] - self._long_ns, extent[1]),
        )
        long = self._long
        if only_work:
            long = {name: values[~long["is_no_work"]] for name, values in long.items()}
        parts = []
        for spans in (short, long):
            order = np.lexsort((spans["thread"], spans["seq"]))  # the store has no order of its own
            line = self._find_lines(spans["thread"][order], tracks, lines)
            columns = {name: values[order[line >= 0]] for name, values in spans.items()}
            parts.append(_build_slices(columns, line[line >= 0]))
        slices = analysis.merge_slices([parts[0], parts[1].overlapping(*extent)])
        row = intervals.separate_overlaps(
            slices.line, slices.row, slices.start, slices.start + slices.duration
        )
        return slices.place_on_rows(row)

    def parts(
        self,
        tracks: Sequence[TrackId],
        lines: Sequence[int],
        extent: tuple[int, int],
        min_duration_ns: int,
    ) -> list[SlicePart]:
        """Read the aggregates inside the slices that overlap a range.

        Args:
            tracks, lines, extent: as for `window`.
            min_duration_ns: of the slices.
        """
        short = self._reader.sql(
            _SHORT_PARTS,
            [*extent, self._long_ns, min_duration_ns],
            within=(extent[0] - self._long_ns, extent[1]),
        )
        return [
            SlicePart(*part)
            for columns in (short, self._long_parts)
            for part in zip(
                self._find_lines(columns["thread"], tracks, lines).tolist(),
                *(columns[name].tolist() for name in ("event", "label", "value")),
                strict=True,
            )
            if part[0] >= 0
        ]

    def _find_lines(
        self, thread: Any, tracks: Sequence[TrackId], lines: Sequence[int]
    ) -> intervals.Int:
        """Find the line of each span by its thread; -1 if the thread was not requested."""
        words = [list(words) for words in zip(*(track.words for track in tracks), strict=True)]
        threads = self._reader.sql(_THREADS, words)["thread"]
        order = np.argsort(threads)
        position = np.searchsorted(threads[order], thread)
        position = order[np.minimum(position, len(order) - 1)]
        line: intervals.Int = np.where(threads[position] == thread, np.asarray(lines)[position], -1)
        return line


def _build_slices(columns: dict[str, Any], line: Any) -> analysis.Slices:
    start, until = columns["start_ns"].astype(np.int64), columns["until"].astype(np.int64)
    count = columns["n"].astype(np.int64) if "n" in columns else np.ones(len(line), dtype=np.int64)
    return analysis.Slices(
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
