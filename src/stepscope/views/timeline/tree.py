"""`timeline`: the tree of tracks, steps to jump to, and findings of rules in time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from string import ascii_lowercase

import msgspec

from stepscope import analysis, schema
from stepscope.quantities import count
from stepscope.run import (
    Run,
    RunClock,
    Trace,
    explain_no_graph,
    named_steps,
    process_names,
    reading_ahead,
)
from stepscope.timeline import (
    IS_SLICE,
    PATH,
    Content,
    TrackDescription,
    find_outlier_steps,
    find_steps_of_run,
    get_timelines,
    load_track_descriptions,
    track_id,
)
from stepscope.views.options import ViewOptions, shorten_name
from stepscope.views.timeline.counters import build_counter_groups, build_metric_group
from stepscope.views.timeline.marks import list_findings, list_standing_calls, process_group_id
from stepscope.views.timeline.payload import RankSteps, TimelineView, Track, TrackGroup
from stepscope.views.trace_data import note_run_quality

NOTHING = (
    "the run has no timed events: run a job with `stepscope run -- CMD`, or import a trace with "
    "`stepscope import FILE -o RUN`"
)
NOTHING_IN_FILES = "the imported files contain no timed events"


def timeline(run: Run, options: ViewOptions) -> TimelineView:
    """Build the tree of tracks, with steps and findings."""
    clock = run.clock
    groups, notes = build_groups(run)
    steps, step_notes = run.whole_run.derive(list_steps)
    notes += step_notes
    names = {trace.trace: trace.name for trace in run.traces}
    shifted = [names[trace] for trace in clock.shift_by_trace_ns]
    if shifted:
        notes.append(
            "these traces have no clock base and are drawn from the origin of the run: "
            + ", ".join(shifted[:8])
            + (f" and {len(shifted) - 8} more" if len(shifted) > 8 else "")
        )
    return TimelineView(
        origin_ns=str(clock.origin_ns),
        end_after_ns=clock.end_ns - clock.origin_ns,
        critical_path=_build_path_group(run.traces),
        groups=groups,
        steps=steps,
        findings=list_findings(run),
        standing=list_standing_calls(run, groups),
        notes=notes,
        quality=note_run_quality(run, run.traces),
        missing=None if groups else NOTHING_IN_FILES if run.is_imported else NOTHING,
    )


def _build_path_group(traces: Sequence[Trace]) -> TrackGroup | None:
    """Build the group of the critical path, which is computed when it is first drawn."""
    if not traces or explain_no_graph(traces) is not None:
        return None
    track = Track(id=PATH, name="critical path", kind="path", row_count=1)
    return TrackGroup(id=f"{PATH}:traces", name="traces", kind="recording", tracks=[track])


MAX_TRACKS = 5_000
"""Listed tracks."""


def trace_group_id(trace: Trace) -> str:
    """Return the id of the group of a trace."""
    return str(track_id("recording", trace.trace))


def build_groups(run: Run) -> tuple[list[TrackGroup], list[str]]:
    """Build the tree; also returns notes on what it leaves out."""
    groups_by_process: dict[str | None, list[TrackGroup]] = defaultdict(list)
    process_ids = {process.process for process in run.processes}
    descriptions = load_track_descriptions(run.reader)
    for trace in run.traces:
        owner = trace.process if trace.process in process_ids else None
        group = _build_trace_group(run, trace, owner, descriptions.get(trace.trace, []))
        if group.tracks or group.groups:
            groups_by_process[owner].append(group)
    spans = run.whole_run.derive(list_span_tracks)
    workers_by_pid: dict[int, list[schema.ProcessInfo]] = defaultdict(list)
    main_processes = []
    pids = {(p.node, p.pid) for p in run.processes if p.role != "dataloader_worker"}
    for process in run.processes:
        if process.role == "dataloader_worker" and (process.node, process.parent_pid) in pids:
            workers_by_pid[process.parent_pid].append(process)
        else:
            main_processes.append(process)
    by_node: dict[str, list[TrackGroup]] = defaultdict(list)
    names = process_names(run)
    for process in main_processes:
        group = _build_process_group(
            process, spans, workers_by_pid[process.pid], groups_by_process[process.process], names
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
    process: schema.ProcessInfo,
    spans: dict[str, list[Track]],
    workers: Sequence[schema.ProcessInfo],
    trace_groups: list[TrackGroup],
    names: Mapping[str, str],
) -> TrackGroup:
    worker_groups = [_build_process_group(worker, spans, (), [], names) for worker in workers]
    return TrackGroup(
        id=process_group_id(process),
        name=names[process.process],
        kind="process",
        rank=process.rank,
        tracks=spans.get(process.process, []),
        groups=[*(group for group in worker_groups if group.tracks), *trace_groups],
    )


def _build_trace_group(
    run: Run, trace: Trace, owner: str | None, tracks: Sequence[TrackDescription]
) -> TrackGroup:
    """Build the group of a trace, which is below that of its owner, a process, if there is one."""
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
        elif description.device_described is not None:
            track = _build_host_track(trace, description, track_content)
            streams[description.device_described].append(
                msgspec.structs.replace(track, kind="device")
            )
        else:
            host.append(_build_host_track(trace, description, track_content))
    rank = [] if trace.rank is None or trace.process is not None else [f"rank {trace.rank}"]
    if trace.window is not None and owner is not None:
        name = [f"window {trace.window}"]
    else:
        name = [*rank, trace.name]
    return TrackGroup(
        id=trace_group_id(trace),
        name=shorten_name(": ".join(name)),
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
        is_empty=content.marks == content.event_count,
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


_LOGS = f"""
    SELECT process, log, CAST(sum(n) AS BIGINT) AS n, max(deepest) AS deepest, max(label) AS label,
        bool_and(kind = 'device') AS on_device,
        bool_or(kind IN ('optimizer', 'backward')) AS trains,
        max_by(kind, (span_count, kind)) AS kind
    FROM (
        SELECT process, log, kind, count(*) FILTER ({IS_SLICE}) AS n, count(*) AS span_count,
            max(depth) AS deepest, max(coalesce(labels->>'$.phase', labels->>'$.tensor')) AS label
        FROM spans GROUP BY process, log, kind
    )
    GROUP BY process, log ORDER BY process, n DESC, log
"""  # noqa: S608 - a constant


def list_span_tracks(run: Run) -> dict[str, list[Track]]:
    """List the tracks of each process, the busiest thread first."""
    if not run.reader.has("spans"):
        return {}
    columns = run.reader.sql(_LOGS)
    tracks: dict[str, list[Track]] = defaultdict(list)
    names = ("process", "log", "n", "deepest", "label", "on_device", "trains", "kind")
    for process, log, span_count, deepest, label, on_device, trains, kind in zip(
        *(columns[name].tolist() for name in names), strict=True
    ):
        if label:
            name = label
        elif on_device:
            name = "device, by phase"
        elif kind == "run_queue":
            name = "waiting for a core"
        else:
            thread = log.rstrip(ascii_lowercase)
            is_main = thread == process.partition("-")[0]
            subject = "main thread" if is_main else f"thread {thread}"
            name = f"{subject} ({'training' if trains else kind})"
        tracks[process].append(
            Track(
                id=str(track_id("spans", process, log)),
                name=name,
                kind="spans",
                row_count=int(deepest) + 1,
                event_count=int(span_count),
            )
        )
    return tracks


MAX_LISTED = 5_000
"""Steps of one rank."""
MAX_SENT = 50_000
"""Steps of all ranks."""
MAX_TRACES = 200
"""Traces that are searched for steps."""


def list_steps(run: Run) -> tuple[list[RankSteps], list[str]]:
    """List the steps of each training process and of each imported trace.

    Also returns notes on the steps left out.
    """
    clock = run.clock
    steps_by_process, left_out = find_steps_of_run(run)
    process_ids = {process.process for process, _ in steps_by_process}
    traces = [trace for trace in run.traces if trace.process not in process_ids]
    limit = max(1, min(MAX_LISTED, MAX_SENT // max(1, len(steps_by_process) + len(traces))))
    names = process_names(run)
    listed = [
        _list_process_steps(process, names[process.process], steps, clock, limit)
        for process, steps in steps_by_process
    ]
    for trace in reading_ahead(traces[:MAX_TRACES]):
        steps = named_steps(trace)
        if steps is not None:
            listed.append(_list_trace_steps(trace, steps, clock, limit))
    notes = []
    if left_out:
        notes.append(
            f"the steps of {count(len(left_out))} more processes are not listed: the run is too "
            "long to search all of it"
        )
    if len(traces) > MAX_TRACES:
        notes.append(f"only the steps of the first {count(MAX_TRACES)} traces are listed")
    return [steps for steps in listed if steps.numbers], notes


def _list_process_steps(
    process: schema.ProcessInfo, name: str, steps: analysis.Steps, clock: RunClock, limit: int
) -> RankSteps:
    numbers = range(min(limit, len(steps)))
    return RankSteps(
        group=process_group_id(process),
        title=name,
        rank=name,
        numbers=list(numbers),
        after_ns=(steps.range_start[:limit] - clock.origin_ns).tolist(),
        duration_ns=steps.duration_ns[:limit].tolist(),
        outliers=[number for number in find_outlier_steps(steps) if number in numbers],
        left_out_count=len(steps) - len(numbers),
    )


def _list_trace_steps(
    trace: Trace, steps: analysis.HostSteps, clock: RunClock, limit: int
) -> RankSteps:
    names, (start, end) = steps.names, steps.extent
    numbers = [int(name) for name in names if name.isdecimal() and len(name) < 16]
    if len(numbers) < len(names):
        numbers = list(range(len(names)))
    summary = analysis.summarize(end - start) if len(names) else None
    slow = (end - start > summary.outlier_threshold).tolist() if summary else []
    base = clock.origin_in(trace.trace)
    return _limit_steps(
        RankSteps(
            group=trace_group_id(trace),
            title=trace.name,
            rank=trace.label,
            numbers=numbers,
            after_ns=(start - base).tolist(),
            duration_ns=(end - start).tolist(),
            outliers=[number for number, is_slow in zip(numbers, slow, strict=True) if is_slow],
            left_out_count=0,
        ),
        limit,
    )


def _limit_steps(steps: RankSteps, limit: int) -> RankSteps:
    """Limit the number of listed steps."""
    numbers = steps.numbers[:limit]
    listed_numbers = set(numbers)
    return msgspec.structs.replace(
        steps,
        numbers=numbers,
        after_ns=steps.after_ns[:limit],
        duration_ns=steps.duration_ns[:limit],
        outliers=[number for number in steps.outliers if number in listed_numbers],
        left_out_count=len(steps.numbers) - len(numbers),
    )
