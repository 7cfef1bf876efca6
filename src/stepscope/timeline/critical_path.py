"""Critical path of the steps on the timeline: its pieces as slices of one track.

The pieces of each causal graph are on a row; graphs that overlap in time are below each other. A
path that changes ranks is drawn on the clock of the rank in which it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, intervals
from stepscope.run import PathPieces, Run, RunGraph, get_run_graphs, name_path_pieces


class PathPiece(NamedTuple):
    """A piece of a critical path."""

    graph: RunGraph
    pieces: PathPieces
    """Those of its graph."""
    row: int
    """Index among them."""


class PathTimeline(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Pieces of the critical paths of a run; an event is the number of a piece."""

    slices: analysis.Slices
    """Nanoseconds after the run's origin, on line 0."""
    category: intervals.Int
    """`PathCategory` of each name of the slices."""
    graphs: Sequence[tuple[RunGraph, PathPieces]]
    first: intervals.Int
    """Number of the first piece of each graph, and the number of all pieces."""

    def find_piece(self, event: int) -> PathPiece | None:
        """Find a piece by its number; None if there is none."""
        if not 0 <= event < self.first[-1]:
            return None
        index = int(np.searchsorted(self.first, event, side="right")) - 1
        return PathPiece(*self.graphs[index], event - int(self.first[index]))


def get_path_timeline(run: Run) -> PathTimeline:
    """Return the critical paths of a run, computed once per run."""
    return run.derive(_build_path_timeline)


def _build_path_timeline(run: Run) -> PathTimeline:
    graphs = [(graph, name_path_pieces(graph)) for graph in get_run_graphs(run)]
    counts = [len(pieces.label) for _, pieces in graphs]
    first = np.cumsum([0, *counts])
    borders = [_shift_borders(run, graph) for graph, _ in graphs]
    starts, ends = (np.array([border[at] for border in borders], np.int64) for at in (0, -1))
    none = np.zeros(len(graphs), dtype=np.int64)
    rows = intervals.separate_overlaps(none, none, starts, ends).tolist()
    parts, categories = [], []
    for (graph, pieces), border, row, number in zip(graphs, borders, rows, first, strict=False):
        labels = len(analysis.PathCategory) * pieces.label + graph.path.category
        codes, name = np.unique(labels, return_inverse=True)
        label, category = np.divmod(codes, len(analysis.PathCategory))
        count, duration = len(pieces.label), np.diff(border)
        parts.append(
            analysis.Slices(
                line=np.zeros(count, dtype=np.int64),
                row=np.full(count, row),
                start=border[:-1],
                duration=duration,
                count=np.ones(count, dtype=np.int64),
                busy=duration,
                longest=duration,
                name=name,
                event=number + np.arange(count),
                names=[pieces.labels[code][0] for code in label.tolist()],
            )
        )
        categories.append(category)
    return PathTimeline(
        slices=analysis.merge_slices(parts),
        category=np.concatenate([np.empty(0, dtype=np.int64), *categories]),
        graphs=graphs,
        first=first,
    )


def _shift_borders(run: Run, graph: RunGraph) -> intervals.Int:
    """Convert the borders of a path to nanoseconds after the run's origin."""
    trace = graph.divided[graph.rank].trace
    offset_ns = graph.joined.offset_ns[graph.rank] - run.clock.origin_in(trace.trace)
    return graph.path.border_ns + offset_ns
