"""`timeline-slice`: everything that is known of one event."""

from __future__ import annotations

from stepscope.errors import UsageError
from stepscope.run import Run
from stepscope.timeline import (
    KnownEvent,
    LinkedEvent,
    TrackId,
    find_event,
    find_span,
    parse_track,
    timelines_of,
)
from stepscope.views.names import shown
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.payload import Linked, SliceView
from stepscope.views.timeline.steps import step_at


def timeline_slice(run: Run, options: ViewOptions) -> SliceView:
    """One event; UsageError where there is none of that number on that track."""
    track, event = parse_track(options.track or ""), options.event or 0
    found = None
    if track.kind == "spans":
        found = find_span(run, track, event)
    elif track.sliced and track.trace in timelines_of(run):
        found = find_event(run, track, event)
    if found is None:
        raise UsageError(f"There is no event {event} on the track {options.track}.")
    return _payload(run, track, found)


def _payload(run: Run, track: TrackId, event: KnownEvent) -> SliceView:
    return SliceView(
        track=str(track),
        event=event.event,
        name=event.name,
        kind=event.kind,
        after_ns=event.after_ns,
        duration_ns=event.duration_ns,
        row=event.row,
        self_ns=event.self_ns,
        step=step_at(run, track, event.after_ns),
        args=event.args,
        stack=event.stack,
        links=[_link(link) for link in event.links],
    )


def _link(link: LinkedEvent) -> Linked:
    return Linked(
        relation=link.relation,
        track=str(link.track),
        event=link.event,
        name=shown(link.name),
        after_ns=link.after_ns,
        duration_ns=link.duration_ns,
        row=link.row,
    )
