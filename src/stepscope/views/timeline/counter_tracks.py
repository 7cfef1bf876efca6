"""Tracks of counters: what the monitor sampled, and what recordings count."""

from __future__ import annotations

from collections import defaultdict

from stepscope.run import Run, Trace
from stepscope.schema import METRIC_TYPES
from stepscope.timeline import timelines_of, track_id
from stepscope.views.names import shown
from stepscope.views.timeline.payload import Track, TrackGroup

_OF_A_PROCESS = "process_"
_OF_A_CORE = "core_"
_OF_A_GPU = "gpu_"
_UNITS = ("_ratio", "_bytes_per_s", "_bytes", "_watt", "_megahertz", "_celsius", "_count", "_cores")
_SAID = {"utilization": "GPU utilisation", "sm_efficiency": "SM efficiency (estimated)"}


def metric_tracks(run: Run, node: str) -> TrackGroup | None:
    """What was sampled of a node: of the whole, of each GPU, of its cores and processes."""
    of_node: list[Track] = []
    below: dict[str, list[Track]] = defaultdict(list)
    for metric, device in timelines_of(run).sampled.get(node, []):
        if metric.startswith(_OF_A_GPU):
            below[f"GPU {device}"].append(_metric(node, metric, device, ""))
        elif metric.startswith(_OF_A_CORE):
            below["cores"].append(_metric(node, metric, device, device))
        elif metric.startswith(_OF_A_PROCESS):
            below["processes"].append(_metric(node, metric, device, device))
        else:
            of_node.append(_metric(node, metric, device, device))
    if not of_node and not below:
        return None
    return TrackGroup(
        id=str(track_id("counters", node)),
        name="counters",
        kind="counters",
        tracks=of_node,
        groups=[
            TrackGroup(
                id=str(track_id("counters", node, name)), name=name, kind="counters", tracks=tracks
            )
            for name, tracks in sorted(below.items(), key=_gpus_first)
        ],
    )


def recorded_counters(run: Run, trace: Trace) -> list[TrackGroup]:
    """Counters in a recording, what its allocator held, and how busy its devices were."""
    tracks = [
        Track(
            id=str(track_id(counter.kind, trace.trace, *counter.words)),
            name=shown(counter.name),
            kind="counter",
            row_count=1,
            unit="bytes" if counter.kind == "memory" else "",
        )
        for counter in timelines_of(run).counters.get(trace.trace, [])
    ]
    tracks += [
        Track(
            id=str(track_id("estimate", trace.trace, device, which)),
            name=f"{_SAID[which]} of device {device}",
            kind="counter",
            row_count=1,
            unit="ratio",
        )
        for device, which in timelines_of(run).estimates.get(trace.trace, [])
    ]
    if not tracks:
        return []
    id_ = str(track_id("counters", "recording", trace.trace))
    return [TrackGroup(id=id_, name="counters", kind="counters", tracks=tracks)]


def _metric(node: str, metric: str, device: str, said: str) -> Track:
    declared = METRIC_TYPES.get(metric)
    name = metric
    for unit in _UNITS:
        name = name.removesuffix(unit)
    return Track(
        id=str(track_id("metric", node, metric, device)),
        name=" ".join([name.removeprefix(_OF_A_GPU).replace("_", " "), said]).strip(),
        kind="counter",
        row_count=1,
        unit=declared.unit if declared else "",
    )


def _gpus_first(group: tuple[str, list[Track]]) -> tuple[bool, int, str]:
    name = group[0]
    number = name.removeprefix("GPU ")
    return (not name.startswith("GPU "), int(number) if number.isdecimal() else 0, name)
