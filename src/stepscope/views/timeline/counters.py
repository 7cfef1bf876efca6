"""`timeline-counters`: counters within a window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from stepscope.analysis import choose_width
from stepscope.run import Run
from stepscope.schema import METRIC_TYPES
from stepscope.timeline import (
    ESTIMATES,
    MEMORY_COLUMNS,
    Floats,
    Pieces,
    TrackId,
    sampled,
    timelines_of,
)
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.asked import range_of, tracks_of
from stepscope.views.timeline.payload import CounterSeries, CountersView

MOST_TRACKS = 500
MOST_VALUES = 100_000
"""Pieces of all counters; with more of them, each has fewer."""
_GAP = 4
"""So many sampling periods without a sample are a gap."""


def timeline_counters(run: Run, options: ViewOptions) -> CountersView:
    """Counters within a window."""
    extent = range_of(run.clock, options)
    tracks = tracks_of(run, options, sliced=False)[:MOST_TRACKS]
    pixels = min(options.pixels, MOST_VALUES // max(1, len(tracks)))
    width = choose_width(extent[1] - extent[0], pixels)
    found = dict(_recorded(run, tracks, extent, width))
    found |= _sampled(run, tracks, extent, width)
    return CountersView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        piece_ns=width,
        series=[found[track] for track in tracks if track in found],
    )


def _sampled(
    run: Run,
    tracks: Sequence[TrackId],
    extent: tuple[int, int],
    width: int,
) -> dict[TrackId, CounterSeries]:
    by_node: dict[str, dict[tuple[str, str], TrackId]] = defaultdict(dict)
    for track in tracks:
        if track.kind == "metric":
            by_node[track.words[0]][track.words[1], track.words[2]] = track
    found = {}
    origin = run.clock.origin_ns
    own = extent[0] + origin, extent[1] + origin
    for node, series in by_node.items():
        known = run.nodes.get(node)
        period = known.sample_interval_ns if known else 10**9
        # What is seen just outside is drawn up to the edges of the picture.
        pieces = sampled(run.reader, node, list(series), own, width=width, margin=_GAP * period)
        most = timelines_of(run).largest(node, [metric for metric, _ in series])
        for key, its in pieces.items():
            largest = most.get(key, 0.0)
            unit = METRIC_TYPES[key[0]].unit if key[0] in METRIC_TYPES else ""
            gap = max(1, -(-_GAP * period // width))
            payload = _series(series[key], its, unit=unit, largest=largest, width=width, gap=gap)
            found[series[key]] = payload
    return found


def _recorded(
    run: Run,
    tracks: Sequence[TrackId],
    extent: tuple[int, int],
    width: int,
) -> Iterator[tuple[TrackId, CounterSeries]]:
    timelines = timelines_of(run)
    for track in tracks:
        if track.kind == "metric" or track.trace not in timelines:
            continue
        base = run.clock.origin_in(track.trace)
        own = extent[0] + base, extent[1] + base
        timeline = timelines[track.trace]
        largest, unit = 1.0, "ratio"
        if track.kind == "estimate":
            load = timeline.loads.get(track.track)
            if load is None or track.words[2] not in ESTIMATES:
                continue
            pieces = load.pieces(track.words[2], own, width)
        else:
            counters = timelines.counters.get(track.trace, [])
            known = [each for each in counters if each.words == track.words[1:]]
            if not known or (track.kind == "memory" and track.words[3] not in MEMORY_COLUMNS):
                continue
            largest = known[0].largest
            if track.kind == "memory":
                device_type, device, which = track.words[1:]
                curve, unit = timeline.memory[int(device_type), int(device), which], "bytes"
            else:
                name, series = track.words[2:]
                curve, unit = timeline.counter(track.track, name, series), ""
            pieces = curve.pieces(own, width)
        yield track, _series(track, pieces, unit=unit, largest=largest, width=width, gap=1)


def _series(
    track: TrackId, pieces: Pieces, *, unit: str, largest: float, width: int, gap: int
) -> CounterSeries:
    """The pieces as a payload; where `gap` or more of them are without a value, one says so."""
    missing = np.flatnonzero(np.diff(pieces.piece) > gap)
    at = np.insert(pieces.piece, missing + 1, pieces.piece[missing] + 1)

    def listed(values: Floats) -> list[float | None]:
        filled = np.insert(values, missing + 1, np.nan)
        return [value if np.isfinite(value) else None for value in filled.tolist()]

    return CounterSeries(
        track=str(track),
        unit=unit,
        full=1.0 if unit == "ratio" else largest,
        after_ns=(at * width).tolist(),
        mean=listed(pieces.mean),
        least=listed(pieces.least),
        largest=listed(pieces.largest),
    )
