"""Search for events by part of their name, in traces and in spans of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from stepscope.run import Run
from stepscope.timeline.blocks import build_event_query
from stepscope.timeline.spans import SPAN_DURATION, SPAN_NAME
from stepscope.timeline.trace import get_timelines
from stepscope.timeline.tracks import TrackId, track_id

_EVENTS = build_event_query(
    ("trace", "shadow", "track", "id", "name", "start_ns", "duration"), "contains(lower(name), $1)"
)
# $1 text, $2 end of the run, $3 origin, $4 and $5 traces and their clock shifts, $6 and $7 range,
# $8 tracks (empty: all).
_MATCHES = f"""
    SELECT * FROM (
        SELECT concat_ws(':', if(shadow <> 0, 'ranges', 'trace'), trace, track) AS track,
            trace, id AS event, name, duration, 0 AS depth,
            start_ns - $3 + coalesce($5[list_position($4, trace)], 0) AS after_ns
        FROM ({_EVENTS})
        UNION ALL
        SELECT concat_ws('/', process, log), -1, seq, label,
            {SPAN_DURATION}, depth, start_ns - $3
        FROM (SELECT *, {SPAN_NAME} AS label FROM spans)
        WHERE contains(lower(label), $1)
    ) WHERE after_ns >= $6 AND after_ns < $7 AND (len($8) = 0 OR list_contains($8, track))
"""  # noqa: S608 - constants
_TOTALS = f"""
    SELECT count(*) AS n, CAST(coalesce(sum(duration), 0) AS BIGINT) AS total,
        count(*) FILTER (after_ns < $9) AS before FROM ({_MATCHES})
"""  # noqa: S608
_ORDER = "after_ns {0}, track {0}, event {0}"
_LISTED = f"""
    SELECT * FROM (
        (SELECT * FROM ({_MATCHES}) WHERE after_ns < $9 ORDER BY {_ORDER.format("DESC")} LIMIT $10)
        UNION ALL
        (SELECT * FROM ({_MATCHES}) WHERE after_ns >= $9 ORDER BY {_ORDER.format("ASC")} LIMIT $11)
    ) ORDER BY {_ORDER.format("ASC")}
"""  # noqa: S608


class TimelineEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event and its position on the timeline."""

    track: str
    event: int
    name: str
    after_ns: int
    duration_ns: int
    row: int


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a search."""

    match_count: int
    total_ns: int
    before_count: int
    """Matches before the first listed one."""
    listed: list[TimelineEvent]


def search_events(
    run: Run,
    text: str,
    tracks: Sequence[TrackId],
    extent: tuple[int, int],
    *,
    around_ns: int | None,
    limit: int,
) -> SearchResult:
    """Find events whose name contains a text, regardless of case, in time order.

    Args:
        run: the run.
        text: part of the name.
        tracks: tracks to search; empty for all.
        extent: range of the starts, nanoseconds after the run's origin, the end exclusive.
        around_ns: half of the listed matches start before this; None lists the first ones.
        limit: maximum number of listed matches.
    """
    track_keys = [
        "/".join(track.words) if track.kind == "spans" else str(track) for track in tracks
    ]
    clock = run.clock
    shifts = list(clock.shift_by_trace_ns.items())
    parameters: list[Any] = [text.lower(), clock.end_ns, clock.origin_ns]
    parameters += [
        [trace for trace, _ in shifts],
        [shift for _, shift in shifts],
        *extent,
        track_keys,
    ]
    pivot_ns = extent[0] if around_ns is None else around_ns
    totals = run.reader.sql(_TOTALS, [*parameters, pivot_ns])
    before = int(totals["before"][0])
    listed_before = min(before, limit // 2)
    rows = run.reader.sql(_LISTED, [*parameters, pivot_ns, listed_before, limit - listed_before])
    return SearchResult(
        match_count=int(totals["n"][0]),
        total_ns=int(totals["total"][0]),
        before_count=before - listed_before,
        listed=[_build_event(run, rows, i) for i in range(len(rows["event"]))],
    )


def _build_event(run: Run, rows: dict[str, Any], index: int) -> TimelineEvent:
    trace, event, after_ns = (int(rows[name][index]) for name in ("trace", "event", "after_ns"))
    if trace < 0:
        track = track_id("spans", *rows["track"][index].rsplit("/", 1))
        row = int(rows["depth"][index])
    else:
        kind, *words = rows["track"][index].split(":")
        track = track_id(kind, *words)
        start = after_ns + run.clock.origin_in(trace)
        row = get_timelines(run)[trace].find_row(event, start)
    return TimelineEvent(
        track=str(track),
        event=event,
        name=rows["name"][index],
        after_ns=after_ns,
        duration_ns=int(rows["duration"][index]),
        row=row,
    )
