"""Events by a part of their name, in recordings and in what the job itself recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.run import Run
from stepscope.timeline.blocks import event_query
from stepscope.timeline.spans import SPAN_NAME
from stepscope.timeline.trace import timelines_of
from stepscope.timeline.tracks import PlacedEvent, TrackId, track_id

_EVENTS = event_query(
    ("trace", "shadow", "track", "id", "name", "start_ns", "duration"),
    "contains(lower(name), $1)",
)
# $1 the text, $2 end of the run, $3 origin, $4 and $5 recordings and by what they are moved, $6 and
# $7 the range, $8 tracks, none of them for all.
_FOUND = f"""
    SELECT * FROM (
        SELECT concat_ws(':', if(shadow <> 0, 'ranges', 'trace'), trace, track) AS track,
            trace, id AS event, name, duration, 0 AS depth,
            start_ns - $3 + coalesce($5[list_position($4, trace)], 0) AS after_ns
        FROM ({_EVENTS})
        UNION ALL
        SELECT concat_ws('/', process, log), -1, seq, called,
            greatest(coalesce(end_ns, $2), start_ns) - start_ns, depth, start_ns - $3
        FROM (SELECT *, {SPAN_NAME} AS called FROM spans)
        WHERE contains(lower(called), $1)
    ) WHERE after_ns >= $6 AND after_ns < $7 AND (len($8) = 0 OR list_contains($8, track))
"""  # noqa: S608 - constants
_TOTALS = f"""
    SELECT count(*) AS n, CAST(coalesce(sum(duration), 0) AS BIGINT) AS total,
        count(*) FILTER (after_ns < $9) AS before FROM ({_FOUND})
"""  # noqa: S608
_ORDER = "after_ns {0}, track {0}, event {0}"
_LISTED = f"""
    SELECT * FROM (
        (SELECT * FROM ({_FOUND}) WHERE after_ns < $9 ORDER BY {_ORDER.format("DESC")} LIMIT $10)
        UNION ALL
        (SELECT * FROM ({_FOUND}) WHERE after_ns >= $9 ORDER BY {_ORDER.format("ASC")} LIMIT $11)
    ) ORDER BY {_ORDER.format("ASC")}
"""  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search found."""

    match_count: int
    total_ns: int
    before_count: int
    """Matches before the first one listed."""
    listed: list[PlacedEvent]


def search_events(
    run: Run,
    text: str,
    tracks: Sequence[TrackId],
    extent: tuple[int, int],
    *,
    around_ns: int | None,
    most: int,
) -> Found:
    """Events with a part of a name, regardless of case, in the order of time.

    Args:
        signals: of the run.
        text: the part.
        tracks: to look at; none for all.
        extent: they begin in it, after the run's origin, the end exclusive.
        around_ns: half of those listed begin before this; None lists the first ones.
        most: matches that are listed.
    """
    wanted = ["/".join(track.words) if track.kind == "spans" else str(track) for track in tracks]
    clock = run.clock
    moved = list(clock.shift_by_trace_ns.items())
    given: list[Any] = [text.lower(), clock.end_ns, clock.origin_ns]
    given += [[trace for trace, _ in moved], [shift for _, shift in moved], *extent, wanted]
    at = extent[0] if around_ns is None else around_ns
    totals = run.reader.sql(_TOTALS, [*given, at])
    before = int(totals["before"][0])
    ahead = min(before, most // 2)
    rows = run.reader.sql(_LISTED, [*given, at, ahead, most - ahead])
    return Found(
        match_count=int(totals["n"][0]),
        total_ns=int(totals["total"][0]),
        before_count=before - ahead,
        listed=[_event(run, rows, i) for i in range(len(rows["event"]))],
    )


def _event(run: Run, rows: dict[str, Any], i: int) -> PlacedEvent:
    trace, event, after = (int(rows[name][i]) for name in ("trace", "event", "after_ns"))
    if trace < 0:
        track = track_id("spans", *rows["track"][i].rsplit("/", 1))
        row = int(rows["depth"][i])
    else:
        kind, *words = rows["track"][i].split(":")
        track = track_id(kind, *words)
        start = after + run.clock.origin_in(trace)
        row = timelines_of(run)[trace].row_of(event, start)
    return PlacedEvent(
        track=track,
        event=event,
        name=rows["name"][i],
        after_ns=after,
        duration_ns=int(rows["duration"][i]),
        row=row,
    )
