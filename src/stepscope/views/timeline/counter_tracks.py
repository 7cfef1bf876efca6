"""Tracks of counters: samples of the monitor and counters of traces."""

from __future__ import annotations

from collections import defaultdict

from stepscope.run import Run, Trace
from stepscope.schema import METRIC_TYPES
from stepscope.timeline import get_timelines, track_id
from stepscope.views.names import shorten_name
from stepscope.views.timeline.payload import Track, TrackGroup

_PROCESS_PREFIX = "process_"
_CORE_PREFIX = "core_"
_GPU_PREFIX = "gpu_"
_UNITS = (
    *("_ratio", "_bytes_per_s", "_per_s", "_bytes", "_watt", "_megahertz", "_celsius"),
    *("_count", "_cores"),
)
_ESTIMATE_LABELS = {"utilization": "GPU utilisation", "sm_efficiency": "SM efficiency (estimated)"}


def build_metric_group(run: Run, node: str) -> TrackGroup | None:
    """Group the sampled metrics of a node: node, GPUs, cores and processes; None without any."""
    node_tracks: list[Track] = []
    tracks_by_group: dict[str, list[Track]] = defaultdict(list)
    for metric, device in get_timelines(run).sampled_series.get(node, []):
        if metric.startswith(_GPU_PREFIX):
            tracks_by_group[f"GPU {device}"].append(_build_metric_track(node, metric, device, ""))
        elif metric.startswith(_CORE_PREFIX):
            tracks_by_group["cores"].append(_build_metric_track(node, metric, device, device))
        elif metric.startswith(_PROCESS_PREFIX):
            tracks_by_group["processes"].append(_build_metric_track(node, metric, device, device))
        else:
            node_tracks.append(_build_metric_track(node, metric, device, device))
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
    declared = METRIC_TYPES.get(metric)
    label = metric
    for unit in _UNITS:
        label = label.removesuffix(unit)
    return Track(
        id=str(track_id("metric", node, metric, device)),
        name=" ".join([label.removeprefix(_GPU_PREFIX).replace("_", " "), suffix]).strip(),
        kind="counter",
        row_count=1,
        unit=declared.unit if declared else "",
    )


def _order_groups(group: tuple[str, list[Track]]) -> tuple[bool, int, str]:
    name = group[0]
    number = name.removeprefix("GPU ")
    return (not name.startswith("GPU "), int(number) if number.isdecimal() else 0, name)
