"""Tracks of the spans of the job: one per thread."""

from __future__ import annotations

from collections import defaultdict
from string import ascii_lowercase

from stepscope.run import Run
from stepscope.timeline import IS_SLICE, track_id
from stepscope.views.timeline.payload import Track

_LOGS = f"""
    SELECT process, log, count(*) FILTER ({IS_SLICE}) AS n, max(depth) AS deepest,
        any_value(coalesce(labels->>'$.phase', labels->>'$.tensor')) AS label,
        bool_and(kind = 'device') AS on_device,
        bool_or(kind IN ('optimizer', 'backward')) AS trains,
        any_value(kind) AS kind
    FROM spans GROUP BY process, log ORDER BY process, n DESC, log
"""  # noqa: S608 - a constant


def list_span_tracks(run: Run) -> dict[str, list[Track]]:
    """List the tracks of each process, the busiest thread first."""
    if not run.reader.has("spans"):
        return {}
    columns = run.reader.sql(_LOGS)
    tracks: dict[str, list[Track]] = defaultdict(list)
    names = ("process", "log", "n", "deepest", "label", "on_device", "trains", "kind")
    for process, log, count, deepest, label, on_device, trains, kind in zip(
        *(columns[name].tolist() for name in names), strict=True
    ):
        if label:
            name = label
        elif on_device:
            name = "device, by phase"
        elif kind == "run_queue":
            name = "intervals with time without a core"
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
