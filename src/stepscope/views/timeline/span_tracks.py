"""Tracks of the job's own recording: one per thread."""

from __future__ import annotations

from collections import defaultdict
from string import ascii_lowercase

from stepscope.run import Run
from stepscope.timeline import track_id
from stepscope.views.timeline.payload import Track

_LOGS = """
    SELECT process, log, count(*) AS n, max(depth) AS deepest,
        any_value(coalesce(labels->>'$.phase', labels->>'$.tensor')) AS called,
        bool_and(kind = 'device') AS on_device, bool_or(kind = 'optimizer') AS trains,
        any_value(kind) AS kind
    FROM spans GROUP BY process, log ORDER BY process, n DESC
"""


def span_tracks(run: Run) -> dict[str, list[Track]]:
    """By process, the busiest thread first."""
    if not run.reader.has("spans"):
        return {}
    found = run.reader.sql(_LOGS)
    tracks: dict[str, list[Track]] = defaultdict(list)
    columns = ("process", "log", "n", "deepest", "called", "on_device", "trains", "kind")
    for process, log, count, deepest, called, on_device, trains, kind in zip(
        *(found[name].tolist() for name in columns), strict=True
    ):
        if called:
            name = called
        elif on_device:
            name = "device, by phase"
        else:
            name = f"thread {log.rstrip(ascii_lowercase)} ({'training' if trains else kind})"
        tracks[process].append(
            Track(
                id=str(track_id("spans", process, log)),
                name=name,
                kind="spans",
                row_count=int(deepest) + 1,
                event_count=int(count),
            )
        )
    return tracks
