"""The tree: nodes, processes, recordings, devices, and the tracks of each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stepscope.run import Run, Trace
from stepscope.schema import DataLoaderWorkerFact, ProcessInfo
from stepscope.timeline import Content, TrackId, timelines_of, track_id
from stepscope.views.names import shown
from stepscope.views.timeline.counter_tracks import metric_tracks, recorded_counters
from stepscope.views.timeline.payload import Track, TrackGroup
from stepscope.views.timeline.span_tracks import span_tracks

MOST_TRACKS = 5_000
"""Tracks that are listed; a tree of more would not be looked through."""


def process_group(process: ProcessInfo) -> str:
    """Id of the group of a process."""
    return str(TrackId("process", (process.process,)))


def recording_group(trace: Trace) -> str:
    """Id of the group of a recording."""
    return str(track_id("recording", trace.trace))


def groups_of(run: Run) -> tuple[list[TrackGroup], list[str]]:
    """The tree, and sentences on what is not in it."""
    recordings: dict[str | None, list[TrackGroup]] = defaultdict(list)
    known = {process.process for process in run.processes}
    described = _described(run)
    for trace in run.traces:
        group = _recording(run, trace, described.get(trace.trace, []))
        if group.tracks or group.groups:
            owner = trace.process if trace.process in known else None
            recordings[owner].append(group)
    spans = span_tracks(run)
    workers: dict[int, list[ProcessInfo]] = defaultdict(list)
    mains = []
    pids = {(p.node, p.pid) for p in run.processes if p.role != "dataloader_worker"}
    for process in run.processes:
        if process.role == "dataloader_worker" and (process.node, process.parent_pid) in pids:
            workers[process.parent_pid].append(process)
        else:
            mains.append(process)
    by_node: dict[str, list[TrackGroup]] = defaultdict(list)
    for process in mains:
        group = _process(process, spans, workers[process.pid], recordings[process.process])
        if group.tracks or group.groups:
            by_node[process.node].append(group)
    nodes = []
    for node in sorted({*by_node, *run.nodes}):
        counters = metric_tracks(run, node)
        groups = ([counters] if counters else []) + by_node[node]
        if groups:
            name = f"node {node}"
            id_ = str(track_id("node", node))
            nodes.append(TrackGroup(id=id_, name=name, kind="node", groups=groups))
    return _bounded([*nodes, *recordings[None]])


def _process(
    process: ProcessInfo,
    spans: dict[str, list[Track]],
    workers: Sequence[ProcessInfo],
    recordings: list[TrackGroup],
) -> TrackGroup:
    below = [_process(worker, spans, (), []) for worker in workers]
    return TrackGroup(
        id=process_group(process),
        name=_process_name(process),
        kind="process",
        rank=process.rank,
        tracks=spans.get(process.process, []),
        groups=[*(group for group in below if group.tracks), *recordings],
    )


def _process_name(process: ProcessInfo) -> str:
    if process.role != "dataloader_worker":
        return process.title
    numbers = [fact.worker for fact in process.facts_of(DataLoaderWorkerFact)]
    number = f" {numbers[0]}" if numbers else ""
    return f"DataLoader worker{number} (process {process.pid})"


class _Described(NamedTuple):
    """What a recording says of a track."""

    track: int
    kind: str
    thread: str
    name: str | None
    device: int
    stream: int
    """-1 where the recording does not say."""


def _described(run: Run) -> dict[int, list[_Described]]:
    """By recording, its tracks."""
    names = ("track", "kind", "tid", "thread_name", "device", "stream")
    rows = run.reader.table("tracks", ("trace", *names), order_by="trace, track")
    columns = (np.ma.filled(rows[name], -1).tolist() for name in names)
    found: dict[int, list[_Described]] = defaultdict(list)
    for trace, *said in zip(rows["trace"].tolist(), *columns, strict=True):
        found[trace].append(_Described(*said))
    return found


def _recording(run: Run, trace: Trace, tracks: Sequence[_Described]) -> TrackGroup:
    content = timelines_of(run).contents[trace.trace]
    host: list[Track] = []
    streams: dict[int, list[Track]] = defaultdict(list)
    for said in tracks:
        its = content.get(said.track)
        if its is None:
            continue
        if said.kind == "device":
            streams[said.device] += _stream(trace, said.track, said.stream, its)
        else:
            host.append(_thread(trace, said, its))
    window = "" if trace.window is None else f"window {trace.window}: "
    rank = "" if trace.rank is None or trace.process is not None else f"rank {trace.rank}: "
    return TrackGroup(
        id=recording_group(trace),
        name=shown(f"{window}{rank}{trace.name}"),
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
        + recorded_counters(run, trace),
    )


def _thread(trace: Trace, said: _Described, content: Content) -> Track:
    title = (said.name or (f"thread {said.thread}" if said.thread else "")).strip()
    title = title or "without a thread"
    mostly_backward = 2 * content.backward > content.counts["operators"]
    does = "steps" if content.steps else "backward" if mostly_backward else ""
    return Track(
        id=str(track_id("trace", trace.trace, said.track)),
        name=shown(title) + (f": {does}" if does else ""),
        kind="host",
        row_count=content.rows,
        event_count=content.own,
    )


def _stream(trace: Trace, track: int, stream: int, content: Content) -> list[Track]:
    name = f"stream {stream}" if stream >= 0 else "stream"
    found = []
    if content.shadows:
        found.append(
            Track(
                id=str(track_id("ranges", trace.trace, track)),
                name=f"{name} (annotations)",
                kind="device",
                row_count=content.shadow_rows,
                event_count=content.shadows,
            )
        )
    if content.own:
        found.append(
            Track(
                id=str(track_id("trace", trace.trace, track)),
                name=f"{name} ({_work(content)})",
                kind="device",
                row_count=content.rows,
                event_count=content.own,
            )
        )
    return found


def _work(content: Content) -> str:
    kernels = content.counts["kernels"]
    if not kernels:
        return "copies" if content.counts["copies"] else "synchronisation"
    return "communication" if 2 * content.communication > kernels else "computation"


def _bounded(groups: list[TrackGroup]) -> tuple[list[TrackGroup], list[str]]:
    """At most so many tracks, the first ones of the tree."""
    left = MOST_TRACKS
    out = 0

    def cut(group: TrackGroup) -> TrackGroup:
        nonlocal left, out
        kept = group.tracks[:left]
        left -= len(kept)
        out += len(group.tracks) - len(kept)
        below = [cut(each) for each in group.groups]
        return TrackGroup(
            id=group.id,
            name=group.name,
            kind=group.kind,
            rank=group.rank,
            tracks=kept,
            groups=[each for each in below if each.tracks or each.groups],
        )

    cut_groups = [cut(group) for group in groups]
    notes = [f"{out:,} tracks are not listed: the first {MOST_TRACKS:,} are"] if out else []
    return [each for each in cut_groups if each.tracks or each.groups], notes
