"""`timeline-search`: events by a part of their name."""

from __future__ import annotations

from stepscope.run import Run
from stepscope.timeline import parse_tracks, search_events
from stepscope.views.names import shown
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.asked import range_of
from stepscope.views.timeline.payload import Match, SearchView

MOST_LISTED = 1_000


def timeline_search(run: Run, options: ViewOptions) -> SearchView:
    """Events by a part of their name, in order of time."""
    name = options.name or ""
    found = search_events(
        run,
        name,
        parse_tracks(options.tracks),
        range_of(run.clock, options),
        around_ns=options.around_ns,
        most=min(options.top or MOST_LISTED, MOST_LISTED),
    )
    return SearchView(
        name=name,
        match_count=found.match_count,
        before_count=found.before_count,
        total_ns=found.total_ns,
        matches=[
            Match(
                track=str(event.track),
                event=event.event,
                name=shown(event.name),
                after_ns=event.after_ns,
                duration_ns=event.duration_ns,
                row=event.row,
            )
            for event in found.listed
        ],
    )
