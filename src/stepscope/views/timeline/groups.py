"""Tree of nodes, processes, traces and devices, with their tracks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from stepscope.quantities import count
from stepscope.run import Run, Trace
from stepscope.schema import DataLoaderWorkerFact, ProcessInfo
from stepscope.timeline import (
    Content,
    TrackDescription,
    TrackId,
    get_timelines,
    load_track_descriptions,
    track_id,
)
from stepscope.views.names import shorten_name
from stepscope.views.timeline.counter_tracks import build_counter_groups, build_metric_group
from stepscope.views.timeline.payload import Track, TrackGroup
from stepscope.views.timeline.span_tracks import list_span_tracks

MAX_TRACKS = 5_000
"""Listed tracks."""


def process_group_id(process: ProcessInfo) -> str:
    """Return the id of the group of a process."""
    return str(TrackId("process", (process.process,)))


def trace_group_id(trace: Trace) -> str:
    """Return the id of the group of a trace."""
    return str(track_id("recording", trace.trace))


def build_groups(run: Run) -> tuple[list[TrackGroup], list[str]]:
    """Build the tree; also returns notes on what it leaves out."""
    groups_by_process: dict[str | None, list[TrackGroup]] = defaultdict(list)
    process_ids = {process.process for process in run.processes}
    descriptions = load_track_descriptions(run.reader)
    for trace in run.traces:
        group = _build_trace_group(run, trace, descriptions.get(trace.trace, []))
        if group.tracks or group.groups:
            owner = trace.process if trace.process in process_ids else None
            groups_by_process[owner].append(group)
    spans = list_span_tracks(run)
    workers_by_pid: dict[int, list[ProcessInfo]] = defaultdict(list)
    main_processes = []
    pids = {(p.node, p.pid) for p in run.processes if p.role != "dataloader_worker"}
    for process in run.processes:
        if process.role == "dataloader_worker" and (process.node, process.parent_pid) in pids:
            workers_by_pid[process.parent_pid].append(process)
        else:
            main_processes.append(process)
    by_node: dict[str, list[TrackGroup]] = defaultdict(list)
    for process in main_processes:
        group = _build_process_group(
            process, spans, workers_by_pid[process.pid], groups_by_process[process.process]
        )
        if group.tracks or group.groups:
            by_node[process.node].append(group)
    nodes = []
    for node in sorted({*by_node, *run.nodes}):
        counters = build_metric_group(run, node)
        groups = ([counters] if counters else []) + by_node[node]
        if groups:
            name = f"node {node}"
            id_ = str(track_id("node", node))
            nodes.append(TrackGroup(id=id_, name=name, kind="node", groups=groups))
    return _limit_groups([*nodes, *groups_by_process[None]])


def _build_process_group(
    process: ProcessInfo,
    spans: dict[str, list[Track]],
    workers: Sequence[ProcessInfo],
    trace_groups: list[TrackGroup],
) -> TrackGroup:
    worker_groups = [_build_process_group(worker, spans, (), []) for worker in workers]
    return TrackGroup(
        id=process_group_id(process),
        name=_name_process(process),
        kind="process",
        rank=process.rank,
        tracks=spans.get(process.process, []),
        groups=[*(group for group in worker_groups if group.tracks), *trace_groups],
    )


def _name_process(process: ProcessInfo) -> str:
    if process.role != "dataloader_worker":
        return process.title
    numbers = [fact.worker for fact in process.facts_of(DataLoaderWorkerFact)]
    number = f" {numbers[0]}" if numbers else ""
    return f"DataLoader worker{number} (process {process.pid})"


def _build_trace_group(run: Run, trace: Trace, tracks: Sequence[TrackDescription]) -> TrackGroup:
    content = get_timelines(run).contents[trace.trace]
    host: list[Track] = []
    streams: dict[int, list[Track]] = defaultdict(list)
    for description in tracks:
        track_content = content.get(description.track)
        if track_content is None:
            continue
        if description.kind == "device":
            streams[description.device] += _build_stream_tracks(
                trace, description.track, description.stream, track_content
            )
        else:
            host.append(_build_host_track(trace, description, track_content))
    window = "" if trace.window is None else f"window {trace.window}: "
    rank = "" if trace.rank is None or trace.process is not None else f"rank {trace.rank}: "
    return TrackGroup(
        id=trace_group_id(trace),
        name=shorten_name(f"{window}{rank}{trace.name}"),
        kind="recording",
        rank=trace.rank,
        tracks=sorted(host, key=lambda track: -(track.event_count or 0)),
        groups=[
            TrackGroup(
                id=str(track_id("device", trace.trace, device)),
                name=f"device {device}" if device >= 0 else "device",
                kind="device",
                tracks=tracks,
            )
            for device, tracks in sorted(streams.items())
        ]
        + build_counter_groups(run, trace),
    )


def _build_host_track(trace: Trace, description: TrackDescription, content: Content) -> Track:
    title = (
        description.name or (f"thread {description.thread}" if description.thread else "")
    ).strip()
    title = title or "without a thread"
    mostly_backward = 2 * content.backward > content.counts["operators"]
    role = "steps" if content.steps else "backward" if mostly_backward else ""
    return Track(
        id=str(track_id("trace", trace.trace, description.track)),
        name=shorten_name(title) + (f": {role}" if role else ""),
        kind="host",
        row_count=content.rows,
        event_count=content.event_count,
    )


def _build_stream_tracks(trace: Trace, track: int, stream: int, content: Content) -> list[Track]:
    name = f"stream {stream}" if stream >= 0 else "stream"
    tracks = []
    if content.shadows:
        tracks.append(
            Track(
                id=str(track_id("ranges", trace.trace, track)),
                name=f"{name} (annotations)",
                kind="device",
                row_count=content.shadow_rows,
                event_count=content.shadows,
            )
        )
    if content.event_count:
        tracks.append(
            Track(
                id=str(track_id("trace", trace.trace, track)),
                name=f"{name} ({_describe_work(content)})",
                kind="device",
                row_count=content.rows,
                event_count=content.event_count,
            )
        )
    return tracks


def _describe_work(content: Content) -> str:
    kernels = content.counts["kernels"]
    if not kernels:
        return "copies" if content.counts["copies"] else "synchronisation"
    return "communication" if 2 * content.communication > kernels else "computation"


def _limit_groups(groups: list[TrackGroup]) -> tuple[list[TrackGroup], list[str]]:
    """Keep the first `MAX_TRACKS` tracks of the tree; returns a note on the others."""
    remaining = MAX_TRACKS
    left_out_count = 0

    def limit(groups: list[TrackGroup]) -> list[TrackGroup]:
        nonlocal remaining, left_out_count
        limited = []
        for group in groups:
            tracks = group.tracks[:remaining]
            remaining -= len(tracks)
            left_out_count += len(group.tracks) - len(tracks)
            subgroups = limit(group.groups)
            if tracks or subgroups:
                limited.append(msgspec.structs.replace(group, tracks=tracks, groups=subgroups))
        return limited

    limited = limit(groups)
    if not left_out_count:
        return limited, []
    return limited, [
        f"{count(left_out_count)} tracks are not listed, only the first {count(MAX_TRACKS)}"
    ]
