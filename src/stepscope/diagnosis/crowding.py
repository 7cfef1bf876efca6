"""Workers that take the cores which the training thread wants.

A worker that computes needs a core. Where there are fewer cores than the workers and the training
thread want together, it is not only waiting for batches that they cost: whatever the training
thread does takes longer, because it is ready to run and has no core.
"""

from __future__ import annotations

from stepscope.diagnosis.signals import Rank, Signals

FEW_CORES = 0.1
"""Others than the job that use no more than this crowd nobody out."""


def crowded_ratio(signals: Signals) -> float:
    """Share of the time for which training threads had no core because others of the job had them
    all; 0 where that is not known, or where a quota or somebody outside the job was in the way."""
    seen = signals.contention
    if seen is None or seen.waiting_ratio is None:
        return 0.0
    if seen.outside_cores >= FEW_CORES or seen.throttled_ratio:
        return 0.0
    return min(1.0, seen.waiting_ratio)


def crowded_by_workers(signals: Signals) -> float:
    """The part of it that is the workers': what they use of the cores that the job keeps busy
    outside the training processes."""
    ratio = crowded_ratio(signals)
    workers = sum(_worker_cores(signals, rank) for rank in signals.ranks)
    if not ratio or not workers:
        return 0.0
    seen = signals.contention
    assert seen is not None  # noqa: S101 - or the ratio were 0
    others = seen.job_cores - sum(_cores(signals, rank, rank.process.pid) for rank in signals.ranks)
    return ratio * min(1.0, workers / others) if others > 0 else ratio


def _worker_cores(signals: Signals, rank: Rank) -> float:
    """Cores that the rank's DataLoader workers keep busy."""
    return sum(
        _cores(signals, rank, process.pid)
        for process in signals.processes
        if process.parent_pid == rank.process.pid and process.role == "dataloader_worker"
    )


def _cores(signals: Signals, rank: Rank, pid: int) -> float:
    metrics = signals.metrics.get(rank.process.node)
    if metrics is None:
        return 0.0
    during = metrics.between(int(rank.steps.start[0]), int(rank.steps.end[-1]))
    return during.mean("process_cpu_cores", str(pid)) or 0.0
