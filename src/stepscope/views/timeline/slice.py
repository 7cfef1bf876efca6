"""`timeline-slice`: details of one event."""

from __future__ import annotations

from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.timeline import (
    EventDetails,
    LinkedEvent,
    TrackId,
    find_event,
    find_span,
    find_step_at,
    get_timelines,
    parse_track,
)
from stepscope.views.names import shorten_name
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.payload import Linked, SliceView


def timeline_slice(run: Run, options: ViewOptions) -> SliceView:
    """Show one event; raises UsageError if the track has no such event."""
    track, event = parse_track(options.track or ""), options.event or 0
    details = None
    if track.kind == "spans":
        details = find_span(run, track, event)
    elif track.is_sliced and track.trace in get_timelines(run):
        details = find_event(run, track, event)
    if details is None:
        raise UsageError(f"Track {options.track} has no event {event}.")
    return _build_payload(run, track, details)


def _build_payload(run: Run, track: TrackId, details: EventDetails) -> SliceView:
    return SliceView(
        track=str(track),
        event=details.event,
        name=details.name,
        kind=details.kind,
        after_ns=details.after_ns,
        duration_ns=details.duration_ns,
        row=details.row,
        self_ns=details.self_ns,
        step=find_step_at(run, track, details.after_ns),
        args=details.args,
        stack=details.stack,
        links=[_build_link(link) for link in details.links],
    )


def _build_link(link: LinkedEvent) -> Linked:
    return Linked(
        relation=link.relation,
        track=str(link.track),
        event=link.event,
        name=shorten_name(link.name),
        after_ns=link.after_ns,
        duration_ns=link.duration_ns,
        row=link.row,
    )
