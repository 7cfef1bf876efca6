"""Tracks of counters on the timeline: sampled metrics of a node, and counters of a trace."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from stepscope import schema
from stepscope.run import Run, Trace, names_by_pid
from stepscope.timeline import get_timelines, track_id
from stepscope.views.options import shorten_name
from stepscope.views.timeline.payload import Track, TrackGroup

_PROCESS_PREFIX = "process_"
_CORE_PREFIX = "core_"
_GPU_PREFIX = "gpu_"
_ESTIMATE_LABELS = {"utilization": "GPU utilisation", "sm_efficiency": "SM efficiency (estimated)"}


def build_metric_group(run: Run, node: str) -> TrackGroup | None:
    """Group the sampled metrics of a node: node, GPUs, cores and processes; None without any."""
    node_tracks: list[Track] = []
    tracks_by_group: dict[str, list[Track]] = defaultdict(list)
    sampled = get_timelines(run).sampled_series.get(node, [])
    maxima = get_timelines(run).load_maxima(node, [metric for metric, _ in sampled])
    processes = names_by_pid(run, node)

    def build(metric: str, device: str, suffix: str) -> Track:
        track = _build_metric_track(node, metric, device, suffix)
        return msgspec.structs.replace(track, is_empty=maxima.get((metric, device), 0) == 0)

    for metric, device in sampled:
        if metric.startswith(_GPU_PREFIX):
            tracks_by_group[f"GPU {device}"].append(build(metric, device, ""))
        elif metric.startswith(_CORE_PREFIX):
            tracks_by_group["cores"].append(build(metric, device, device))
        elif metric.startswith(_PROCESS_PREFIX):
            name = processes.get(int(device), device) if device.isdecimal() else device
            tracks_by_group["processes"].append(build(metric, device, name))
        else:
            node_tracks.append(build(metric, device, device))
    if not node_tracks and not tracks_by_group:
        return None
    return TrackGroup(
        id=str(track_id("counters", node)),
        name="counters",
        kind="counters",
        tracks=node_tracks,
        groups=[
            TrackGroup(
                id=str(track_id("counters", node, name)), name=name, kind="counters", tracks=tracks
            )
            for name, tracks in sorted(tracks_by_group.items(), key=_order_groups)
        ],
    )


def build_counter_groups(run: Run, trace: Trace) -> list[TrackGroup]:
    """Group the counters, memory series and device loads of a trace."""
    tracks = [
        Track(
            id=str(track_id(counter.kind, trace.trace, *counter.words)),
            name=shorten_name(counter.name),
            kind="counter",
            row_count=1,
            unit="bytes" if counter.kind == "memory" else "",
            is_empty=counter.largest == 0,
        )
        for counter in get_timelines(run).counters.get(trace.trace, [])
    ]
    tracks += [
        Track(
            id=str(track_id("estimate", trace.trace, device, measure)),
            name=f"{_ESTIMATE_LABELS[measure]} of device {device}",
            kind="counter",
            row_count=1,
            unit="ratio",
        )
        for device, measure in get_timelines(run).estimates.get(trace.trace, [])
    ]
    if not tracks:
        return []
    id_ = str(track_id("counters", "recording", trace.trace))
    return [TrackGroup(id=id_, name="counters", kind="counters", tracks=tracks)]


def _build_metric_track(node: str, metric: str, device: str, suffix: str) -> Track:
    declared = schema.METRIC_TYPES.get(metric)
    title = declared.title.removeprefix("GPU ") if declared else metric.replace("_", " ")
    return Track(
        id=str(track_id("metric", node, metric, device)),
        name=f"{title} {suffix}".strip(),
        kind="counter",
        row_count=1,
        unit=declared.unit if declared else "",
    )


def _order_groups(group: tuple[str, list[Track]]) -> tuple[bool, int, str]:
    name = group[0]
    number = name.removeprefix("GPU ")
    return (not name.startswith("GPU "), int(number) if number.isdecimal() else 0, name)
