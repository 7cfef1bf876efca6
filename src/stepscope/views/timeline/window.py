"""Views of a window of the timeline: slices, counters, sums, flame graph, search, details."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from stepscope import analysis, errors, schema
from stepscope.quantities import count
from stepscope.run import Run, RunClock
from stepscope.timeline import (
    ESTIMATES,
    MEMORY_COLUMNS,
    PATH,
    Bins,
    EventDetails,
    SliceKind,
    SlicePart,
    TrackId,
    TrackSource,
    build_call_tree,
    classify_slice,
    compute_busy_ratios,
    find_event,
    find_piece,
    find_span,
    get_path_timeline,
    get_timelines,
    is_stream,
    load_sampled_bins,
    parse_track,
    parse_tracks,
    read_parts,
    read_window,
    search_events,
    split_by_line,
    sum_tracks,
)
from stepscope.views.options import ViewOptions, shorten_name
from stepscope.views.timeline.payload import (
    CounterSeries,
    CountersView,
    FlameView,
    NameTime,
    SearchView,
    SlicesView,
    SummaryView,
    Track,
    TrackGroup,
    TrackSlices,
    TrackSummary,
    build_flame_nodes,
)
from stepscope.views.timeline.tree import build_groups

MAX_SLICES = 20_000
"""Slices of one response; drawing more takes too long."""
MAX_SLICE_TRACKS = 2_000
MIN_PARTS_PIXELS = 4
"""Width of a slice from which its parts are visible."""


def timeline_slices(run: Run, options: ViewOptions) -> SlicesView:
    """Read a window of tracks."""
    extent = get_range(run.clock, options)
    requested = list_tracks(run, options, is_sliced=True)
    tracks = [track for track in requested[:MAX_SLICE_TRACKS] if track.kind != PATH]
    width = analysis.choose_width(extent[1] - extent[0], options.pixels)
    slices = analysis.limit_slices(read_window(run, tracks, extent, width=width), MAX_SLICES, width)
    slices = slices.rename(shorten_name)
    names = {name: index for index, name in enumerate(slices.names)}
    parts: dict[int, list[SlicePart]] = defaultdict(list)
    for part in read_parts(run, tracks, extent, min_duration_ns=MIN_PARTS_PIXELS * width):
        parts[part.line].append(part)
    tracks_view = [
        _flag_unfinished(
            run, track, _build_track(track, line_slices, extent[0], parts[line], names)
        )
        for line, (track, line_slices) in enumerate(
            zip(tracks, split_by_line(slices, len(tracks)), strict=True)
        )
    ]
    if any(track.kind == PATH for track in requested[:MAX_SLICE_TRACKS]):
        tracks_view.append(_build_path_track(run, extent, width, names))
    return SlicesView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        tracks=tracks_view,
        names=list(names),
        kinds=_classify(run, tracks, tracks_view, list(names)),
        omitted_tracks=[str(track) for track in requested[MAX_SLICE_TRACKS:]],
    )


def _classify(
    run: Run, tracks: Sequence[TrackId], slices: Sequence[TrackSlices], names: Sequence[str]
) -> list[SliceKind]:
    """Classify the names of slices; the names of parts are those of spans."""
    sources: dict[int, TrackSource] = {}
    for track, track_slices in zip(tracks, slices, strict=False):
        source: TrackSource = "host"
        if track.kind == "spans":
            source = "spans"
        elif is_stream(run, track):
            source = "device"
        for name in {*track_slices.name, *track_slices.part_name}:
            sources.setdefault(name, source)
    return [classify_slice(name, sources.get(n, "host")) for n, name in enumerate(names)]


def _build_path_track(
    run: Run, extent: tuple[int, int], width: int, names: dict[str, int]
) -> TrackSlices:
    """Build the track of the critical path; adds the names of its pieces and kinds to `names`."""
    path = get_path_timeline(run)
    slices = analysis.limit_slices(path.slices.overlapping(*extent), MAX_SLICES, width)
    kinds = [
        names.setdefault(analysis.PATH_NAMES[category], len(names))
        for category in path.category[slices.name].tolist()
    ]
    slices = slices.rename(shorten_name)
    numbers = [names.setdefault(name, len(names)) for name in slices.names]
    track = _build_track(TrackId(PATH, ()), slices, extent[0], (), names)
    return msgspec.structs.replace(track, name=[numbers[n] for n in track.name], kind=kinds)


def _build_track(
    track: TrackId,
    slices: analysis.Slices,
    start_ns: int,
    parts: Sequence[SlicePart],
    names: dict[str, int],
) -> TrackSlices:
    """Build the slices of a track; adds the names of its parts to `names`."""
    index_of_event = {event: index for index, event in enumerate(slices.event.tolist())}
    drawn = [part for part in parts if part.event in index_of_event]
    return TrackSlices(
        track=str(track),
        row_count=int(slices.row.max(initial=-1)) + 1,
        row=slices.row.tolist(),
        after_ns=(slices.start - start_ns).tolist(),
        duration_ns=slices.duration.tolist(),
        name=slices.name.tolist(),
        count=slices.count.tolist(),
        busy_ratio=compute_busy_ratios(slices),
        event=slices.event.tolist(),
        part_slice=[index_of_event[part.event] for part in drawn],
        part_name=[names.setdefault(shorten_name(part.name), len(names)) for part in drawn],
        part_ns=[part.spent_ns for part in drawn],
    )


def _flag_unfinished(run: Run, track: TrackId, slices: TrackSlices) -> TrackSlices:
    """Flag the slices that had not ended: spans alone can be without an end."""
    if track.kind != "spans":
        return slices
    events = get_timelines(run).spans.unfinished.get((track.words[0], track.words[1]), ())
    flagged = [index for index, event in enumerate(slices.event) if event in events]
    return msgspec.structs.replace(slices, unfinished=flagged)


MAX_COUNTER_TRACKS = 500
MAX_VALUES = 100_000
"""Bins of all counters together."""


def timeline_counters(run: Run, options: ViewOptions) -> CountersView:
    """Summarize counters in the bins of a window."""
    extent = get_range(run.clock, options)
    tracks = list_tracks(run, options, is_sliced=False)[:MAX_COUNTER_TRACKS]
    pixels = min(options.pixels, MAX_VALUES // max(1, len(tracks)))
    width = analysis.choose_width(extent[1] - extent[0], pixels)
    series_by_track = dict(_load_trace_series(run, tracks, extent, width))
    series_by_track |= _load_sampled_series(run, tracks, extent, width)
    return CountersView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        piece_ns=width,
        series=[series_by_track[track] for track in tracks if track in series_by_track],
    )


def _load_sampled_series(
    run: Run, tracks: Sequence[TrackId], extent: tuple[int, int], width: int
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
            unit = schema.METRIC_TYPES[key[0]].unit if key[0] in schema.METRIC_TYPES else ""
            payload = _build_series(series[key], bins, unit=unit, maximum=maximum, width=width)
            series_by_track[series[key]] = payload
    return series_by_track


def _load_trace_series(
    run: Run, tracks: Sequence[TrackId], extent: tuple[int, int], width: int
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
        mean=analysis.nan_to_none(bins.mean),
        minimum=analysis.nan_to_none(bins.minimum),
        largest=analysis.nan_to_none(bins.maximum),
    )


MAX_SUMMARY_TRACKS = 500
"""Tracks that are summed up."""


def timeline_summary(run: Run, options: ViewOptions) -> SummaryView:
    """Sum up the events of tracks within a range."""
    extent = get_range(run.clock, options)
    requested = list_tracks(run, options, is_sliced=True)
    tracks = requested[:MAX_SUMMARY_TRACKS]
    notes = []
    if len(requested) > len(tracks):
        notes.append(
            f"only the first {count(MAX_SUMMARY_TRACKS)} of {count(len(requested))} tracks "
            "are summed up"
        )
    return SummaryView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        tracks=[
            _summarize_track(track, sums, extent[1] - extent[0], options.top)
            for track, sums in zip(tracks, sum_tracks(run, tracks, extent), strict=True)
            if sums.event_count
        ],
        notes=notes,
    )


def _summarize_track(
    track: TrackId, sums: analysis.LineSums, range_ns: int, top: int
) -> TrackSummary:
    names = sorted(sums.names.items(), key=lambda item: (-item[1].self_ns, item[0]))
    return TrackSummary(
        track=str(track),
        event_count=sums.event_count,
        busy_ns=sums.busy_ns,
        busy_ratio=sums.busy_ns / range_ns,
        gap_count=sums.gap_count,
        longest_gap_ns=sums.longest_gap_ns,
        name_count=len(names),
        names=[_summarize_name(name, name_sums) for name, name_sums in names[: top or None]],
    )


def _summarize_name(name: str, sums: analysis.NameSums) -> NameTime:
    return NameTime(
        name=shorten_name(name),
        count=sums.count,
        total_ns=sums.total_ns,
        self_ns=sums.self_ns,
        mean_ns=sums.duration_ns / max(1, sums.count),
        max_ns=sums.max_ns,
    )


def timeline_flame(run: Run, options: ViewOptions) -> FlameView:
    """Sum up a range of tracks by path of names, largest first."""
    extent = get_range(run.clock, options)
    tracks = list_tracks(run, options, is_sliced=True)[:MAX_SUMMARY_TRACKS]
    total_ns, roots, left_out_ns = build_flame_nodes(build_call_tree(run, tracks, extent))
    return FlameView(
        from_after_ns=extent[0],
        to_after_ns=extent[1],
        total_ns=total_ns,
        roots=roots,
        left_out_ns=left_out_ns,
    )


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


def timeline_slice(run: Run, options: ViewOptions) -> EventDetails:
    """Show one event; raises UsageError if the track has no such event."""
    track, event = parse_track(options.track or ""), options.event or 0
    details = None
    if track.kind == "spans":
        details = find_span(run, track, event)
    elif track.kind == PATH:
        details = find_piece(run, event)
    elif track.is_sliced and track.trace in get_timelines(run):
        details = find_event(run, track, event)
    if details is None:
        raise errors.UsageError(f"Track {options.track} has no event {event}.")
    links = [msgspec.structs.replace(link, name=shorten_name(link.name)) for link in details.links]
    return msgspec.structs.replace(details, links=links)


def get_range(clock: RunClock, options: ViewOptions) -> tuple[int, int]:
    """Return the requested range after the run's origin, at least 1 ns long."""
    start = options.from_ns or 0
    end = clock.end_ns - clock.origin_ns + 1 if options.to_ns is None else options.to_ns
    return start, max(end, start + 1)


def list_tracks(run: Run, options: ViewOptions, *, is_sliced: bool) -> Sequence[TrackId]:
    """List the requested tracks with slices, or those with values; by default all listed ones."""
    if options.tracks is None:
        groups, _ = build_groups(run)
        tracks = [parse_track(track.id) for group in groups for track in iterate_tracks(group)]
    else:
        tracks = list(parse_tracks(options.tracks))
    return [track for track in tracks if track.is_sliced == is_sliced]


def iterate_tracks(group: TrackGroup) -> Iterator[Track]:
    """Iterate over the tracks of a group and of its subgroups."""
    yield from group.tracks
    for subgroup in group.groups:
        yield from iterate_tracks(subgroup)
