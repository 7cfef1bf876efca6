"""`timeline-flame`: a range of some tracks by path of names."""

from __future__ import annotations

from stepscope.analysis import CallTree, clip_events
from stepscope.run import Run
from stepscope.timeline import chunks
from stepscope.views.flame_nodes import flame_nodes
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.asked import nesting_lines, range_of, tracks_of
from stepscope.views.timeline.payload import FlameView
from stepscope.views.timeline.summary import MOST_TRACKS


def timeline_flame(run: Run, options: ViewOptions) -> FlameView:
    """A range of some tracks by path of names, largest first."""
    extent = range_of(run.clock, options)
    tracks = tracks_of(run, options, sliced=True)[:MOST_TRACKS]
    nests = nesting_lines(run, tracks)
    tree = CallTree()
    for begin, end, slices in chunks(run, tracks, extent):
        tree.add(clip_events(slices, (begin, end), is_first=begin == extent[0], nests=nests))
    total_ns, roots, left_out_ns = flame_nodes(tree)
    return FlameView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        total_ns=total_ns,
        roots=roots,
        left_out_ns=left_out_ns,
    )
