from __future__ import annotations

from stepscope.timeline.content import Content
from stepscope.timeline.counters import ESTIMATES, MEMORY_COLUMNS, Floats, Pieces, sampled
from stepscope.timeline.event import KnownEvent, LinkedEvent, find_event, find_span
from stepscope.timeline.search import search_events
from stepscope.timeline.steps import steps_of_process, watched_steps
from stepscope.timeline.trace import timelines_of
from stepscope.timeline.tracks import TrackId, parse_track, parse_tracks, track_id
from stepscope.timeline.window import chunks, read_window

__all__ = [
    "ESTIMATES",
    "MEMORY_COLUMNS",
    "Content",
    "Floats",
    "KnownEvent",
    "LinkedEvent",
    "Pieces",
    "TrackId",
    "chunks",
    "find_event",
    "find_span",
    "parse_track",
    "parse_tracks",
    "read_window",
    "sampled",
    "search_events",
    "steps_of_process",
    "timelines_of",
    "track_id",
    "watched_steps",
]
