"""`timeline-search`: events by part of their name."""

from __future__ import annotations

import msgspec

from stepscope.run import Run
from stepscope.timeline import parse_tracks, search_events
from stepscope.views.names import shorten_name
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.payload import SearchView
from stepscope.views.timeline.selection import get_range

MAX_LISTED = 1_000


def timeline_search(run: Run, options: ViewOptions) -> SearchView:
    """Search for events by part of their name, in time order."""
    name = options.name or ""
    result = search_events(
        run,
        name,
        parse_tracks(options.tracks),
        get_range(run.clock, options),
        around_ns=options.around_ns,
        limit=min(options.top or MAX_LISTED, MAX_LISTED),
    )
    return SearchView(
        name=name,
        match_count=result.match_count,
        before_count=result.before_count,
        total_ns=result.total_ns,
        matches=[
            msgspec.structs.replace(event, name=shorten_name(event.name)) for event in result.listed
        ],
    )
