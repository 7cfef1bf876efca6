"""`timeline-flame`: a range of tracks by path of names."""

from __future__ import annotations

from stepscope.run import Run
from stepscope.timeline import build_call_tree
from stepscope.views.flame_nodes import build_flame_nodes
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.payload import FlameView
from stepscope.views.timeline.selection import get_range, list_tracks
from stepscope.views.timeline.summary import MAX_TRACKS


def timeline_flame(run: Run, options: ViewOptions) -> FlameView:
    """Sum up a range of tracks by path of names, largest first."""
    extent = get_range(run.clock, options)
    tracks = list_tracks(run, options, is_sliced=True)[:MAX_TRACKS]
    total_ns, roots, left_out_ns = build_flame_nodes(build_call_tree(run, tracks, extent))
    return FlameView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        total_ns=total_ns,
        roots=roots,
        left_out_ns=left_out_ns,
    )
