"""`overview`: the job, its status, and the verdict."""

from __future__ import annotations

import time

import msgspec

from stepscope.diagnosis import Signals, Verdict, diagnose
from stepscope.schema import JobState, JobStatus

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
    verdict: Verdict


def overview(signals: Signals) -> Overview:
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
        verdict=diagnose(signals),
    )


def _node(signals: Signals, node: str, status: JobStatus) -> NodeStatus:
    metrics = signals.metrics.get(node)
    gpus = metrics.devices_of("gpu_busy_ratio") if metrics else []
    busy = [metrics.mean("gpu_busy_ratio", gpu) for gpu in gpus] if metrics else []
    known = [ratio for ratio in busy if ratio is not None]
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
        gpu_busy_ratio=sum(known) / len(known) if known else None,
        cpu_busy_ratio=metrics.mean("cpu_busy_ratio") if metrics else None,
    )
