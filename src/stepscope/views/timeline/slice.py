"""`timeline-slice`: details of one event."""

from __future__ import annotations

import msgspec

from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.timeline import EventDetails, find_event, find_span, get_timelines, parse_track
from stepscope.views.names import shorten_name
from stepscope.views.options import ViewOptions


def timeline_slice(run: Run, options: ViewOptions) -> EventDetails:
    """Show one event; raises UsageError if the track has no such event."""
    track, event = parse_track(options.track or ""), options.event or 0
    details = None
    if track.kind == "spans":
        details = find_span(run, track, event)
    elif track.is_sliced and track.trace in get_timelines(run):
        details = find_event(run, track, event)
    if details is None:
        raise UsageError(f"Track {options.track} has no event {event}.")
    links = [msgspec.structs.replace(link, name=shorten_name(link.name)) for link in details.links]
    return msgspec.structs.replace(details, links=links)
