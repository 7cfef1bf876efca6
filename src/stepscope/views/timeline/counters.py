"""`timeline-counters`: counters within a window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stepscope.analysis import choose_width, nan_to_none
from stepscope.run import Run
from stepscope.schema import METRIC_TYPES
from stepscope.timeline import (
    ESTIMATES,
    MEMORY_COLUMNS,
    Bins,
    TrackId,
    get_timelines,
    load_sampled_bins,
)
from stepscope.views.options import ViewOptions
from stepscope.views.timeline.payload import CounterSeries, CountersView
from stepscope.views.timeline.selection import get_range, list_tracks

MAX_TRACKS = 500
MAX_VALUES = 100_000
"""Bins of all counters together."""


def timeline_counters(run: Run, options: ViewOptions) -> CountersView:
    """Summarize counters in the bins of a window."""
    extent = get_range(run.clock, options)
    tracks = list_tracks(run, options, is_sliced=False)[:MAX_TRACKS]
    pixels = min(options.pixels, MAX_VALUES // max(1, len(tracks)))
    width = choose_width(extent[1] - extent[0], pixels)
    series_by_track = dict(_load_trace_series(run, tracks, extent, width))
    series_by_track |= _load_sampled_series(run, tracks, extent, width)
    return CountersView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        piece_ns=width,
        series=[series_by_track[track] for track in tracks if track in series_by_track],
    )


def _load_sampled_series(
    run: Run,
    tracks: Sequence[TrackId],
    extent: tuple[int, int],
    width: int,
) -> dict[TrackId, CounterSeries]:
    by_node: dict[str, dict[tuple[str, str], TrackId]] = defaultdict(dict)
    for track in tracks:
        if track.kind == "metric":
            by_node[track.words[0]][track.words[1], track.words[2]] = track
    series_by_track = {}
    origin = run.clock.origin_ns
    epoch_extent = extent[0] + origin, extent[1] + origin
    for node, series in by_node.items():
        if node not in run.nodes:
            continue
        bins_by_series = load_sampled_bins(
            run.reader, run.nodes[node], list(series), epoch_extent, width=width
        )
        maxima = get_timelines(run).load_maxima(node, [metric for metric, _ in series])
        for key, bins in bins_by_series.items():
            maximum = maxima.get(key, 0.0)
            unit = METRIC_TYPES[key[0]].unit if key[0] in METRIC_TYPES else ""
            payload = _build_series(series[key], bins, unit=unit, maximum=maximum, width=width)
            series_by_track[series[key]] = payload
    return series_by_track


def _load_trace_series(
    run: Run,
    tracks: Sequence[TrackId],
    extent: tuple[int, int],
    width: int,
) -> Iterator[tuple[TrackId, CounterSeries]]:
    timelines = get_timelines(run)
    for track in tracks:
        if track.kind == "metric" or track.trace not in timelines:
            continue
        base = run.clock.origin_in(track.trace)
        trace_extent = extent[0] + base, extent[1] + base
        timeline = timelines[track.trace]
        maximum, unit = 1.0, "ratio"
        if track.kind == "estimate":
            load = timeline.loads.get(track.track)
            if load is None or track.words[2] not in ESTIMATES:
                continue
            bins = load.bin_values(track.words[2], trace_extent, width)
        else:
            counters = timelines.counters.get(track.trace, [])
            matching = [counter for counter in counters if counter.words == track.words[1:]]
            if not matching or (track.kind == "memory" and track.words[3] not in MEMORY_COLUMNS):
                continue
            maximum = matching[0].largest
            if track.kind == "memory":
                device_type, device, measure = track.words[1:]
                curve, unit = timeline.memory[int(device_type), int(device), measure], "bytes"
            else:
                name, series = track.words[2:]
                curve, unit = timeline.counter(track.track, name, series), ""
            bins = curve.bin_values(trace_extent, width)
        bins = bins.mark_gaps(1)
        yield track, _build_series(track, bins, unit=unit, maximum=maximum, width=width)


def _build_series(
    track: TrackId, bins: Bins, *, unit: str, maximum: float, width: int
) -> CounterSeries:
    """Convert bins to a payload, with a null in each gap."""
    return CounterSeries(
        track=str(track),
        unit=unit,
        full=1.0 if unit == "ratio" else maximum,
        after_ns=(bins.index * width).tolist(),
        mean=nan_to_none(bins.mean),
        minimum=nan_to_none(bins.minimum),
        largest=nan_to_none(bins.maximum),
    )
