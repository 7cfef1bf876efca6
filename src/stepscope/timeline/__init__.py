from __future__ import annotations

from stepscope.timeline.content import Content, TrackDescription, load_track_descriptions
from stepscope.timeline.counters import ESTIMATES, MEMORY_COLUMNS, Bins, load_sampled_bins
from stepscope.timeline.event import EventDetails, find_event, find_span
from stepscope.timeline.search import TimelineEvent, search_events
from stepscope.timeline.spans import IS_AGGREGATE, IS_SLICE, SPAN_NAME, SlicePart
from stepscope.timeline.steps import find_outlier_steps, find_steps_of_run
from stepscope.timeline.sums import build_call_tree, sum_tracks
from stepscope.timeline.trace import get_timelines
from stepscope.timeline.tracks import TrackId, parse_track, parse_tracks, track_id
from stepscope.timeline.window import compute_busy_ratios, read_parts, read_window, split_by_line

__all__ = [
    "ESTIMATES",
    "IS_AGGREGATE",
    "IS_SLICE",
    "MEMORY_COLUMNS",
    "SPAN_NAME",
    "Bins",
    "Content",
    "EventDetails",
    "SlicePart",
    "TimelineEvent",
    "TrackDescription",
    "TrackId",
    "build_call_tree",
    "compute_busy_ratios",
    "find_event",
    "find_outlier_steps",
    "find_span",
    "find_steps_of_run",
    "get_timelines",
    "load_sampled_bins",
    "load_track_descriptions",
    "parse_track",
    "parse_tracks",
    "read_parts",
    "read_window",
    "search_events",
    "split_by_line",
    "sum_tracks",
    "track_id",
]
