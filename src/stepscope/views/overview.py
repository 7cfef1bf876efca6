"""`overview`: the job, its status, and the verdict."""

from __future__ import annotations

import time

import msgspec

from stepscope.diagnosis import Signals, Verdict, diagnose
from stepscope.diagnosis.traces import Trace
from stepscope.schema import JobState, JobStatus
from stepscope.views.options import DEFAULTS, ViewOptions
from stepscope.views.quality import QualityNote, notes_across

SILENT_NS = 30_000_000_000
"""A job in progress whose monitor has not been heard for this long is given up for lost."""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The job on one node."""

    node: str
    state: JobState
    reason: str | None
    exit_code: int | None
    signal: int | None
    started_ns: int
    ended_ns: int | None
    heartbeat_ns: int
    monitor_lost: bool
    """In progress by its last word, but silent since: `stepscope recover` brings in the rest."""
    gpu_busy_ratio: float | None
    """Mean over GPUs and samples; null without GPUs."""
    cpu_busy_ratio: float | None
    """Mean over samples, of the cores available to the job."""


class RecordedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """What a window of the job was opened for, and what it was to hold."""

    reason: str
    """`automatic`, `scheduled`, `requested` or `slower`."""
    depth: str
    """`light` or `full`."""
    options: list[str]
    """Of `shapes`, `stacks`, `memory`, `flops` and `modules`."""
    first_step: int
    """Number of its first step, counted from 0."""
    step_count: int


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One recording of the framework's profiler."""

    name: str
    rank: int | None
    start_ns: int
    duration_ns: int
    """From the start of its first event to the end of its last."""
    event_count: int
    clock_base_ns: int | None
    """What the file says that its times count from, since 1970; null where it says nothing: then
    they are taken for microseconds since 1970, and may not compare with those of others."""
    window: RecordedWindow | None
    """Null for an imported file."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The payload."""

    run_id: str
    command: list[str]
    working_directory: str
    created_ns: int
    git_revision: str | None
    versions: dict[str, str]
    rank_count: int
    nodes: list[NodeStatus]
    recordings: list[Recording]
    """Profiler windows of the job, or imported traces."""
    quality: list[QualityNote]
    """What is doubtful about the recordings together."""
    verdict: Verdict


def overview(signals: Signals, _options: ViewOptions = DEFAULTS) -> Overview:
    """The job, its status, and the verdict."""
    info = signals.reader.info
    versions: dict[str, str] = {"stepscope": info.stepscope_version}
    for rank in signals.ranks:
        versions |= rank.process.versions
    return Overview(
        run_id=info.run_id,
        command=info.command,
        working_directory=info.working_directory,
        created_ns=info.created_ns,
        git_revision=info.git_revision,
        versions=versions,
        rank_count=len(signals.ranks),
        nodes=[
            _node(signals, node, status)
            for node, status in sorted(signals.reader.statuses().items())
        ],
        recordings=[_recording(trace) for trace in signals.traces],
        quality=notes_across(signals, signals.traces),
        verdict=diagnose(signals),
    )


def _recording(trace: Trace) -> Recording:
    said = trace.said
    return Recording(
        name=trace.name,
        rank=trace.rank,
        start_ns=trace.start_ns,
        duration_ns=trace.end_ns - trace.start_ns,
        event_count=trace.event_count,
        clock_base_ns=trace.base_ns or None,
        window=RecordedWindow(
            reason=said.reason,
            depth=said.depth,
            options=list(said.options),
            first_step=said.first_step,
            step_count=said.step_count,
        )
        if said is not None
        else None,
    )


def _node(signals: Signals, node: str, status: JobStatus) -> NodeStatus:
    metrics = signals.metrics.get(node)
    silent = time.time_ns() - status.heartbeat_ns > SILENT_NS
    return NodeStatus(
        node=node,
        state=status.state,
        reason=status.reason,
        exit_code=status.exit_code,
        signal=status.signal,
        started_ns=status.started_ns,
        ended_ns=status.ended_ns,
        heartbeat_ns=status.heartbeat_ns,
        monitor_lost=silent and not status.state.final,
        gpu_busy_ratio=metrics.mean_over_devices("gpu_busy_ratio") if metrics else None,
        cpu_busy_ratio=metrics.mean("cpu_busy_ratio") if metrics else None,
    )
