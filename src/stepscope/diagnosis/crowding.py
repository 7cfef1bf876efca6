"""Workers that take the cores which the training thread wants.

A worker that computes needs a core. Where there are fewer cores than the workers and the training
thread want together, it is not only waiting for batches that they cost: whatever the training
thread does takes longer, because it is ready to run and has no core.
"""

from __future__ import annotations

from stepscope.diagnosis.signals import Rank, Signals


def crowded_by_workers(signals: Signals) -> float:
    """Share of the time for which training threads had no core because workers had them; 0 where
    that is not known, or where the job's own quota was in the way.

    Whoever keeps cores busy beside the training processes has a part in it in proportion: the
    workers, other processes of the job, and those outside it.
    """
    seen = signals.contention
    if seen is None or seen.waiting_ratio is None or seen.throttled_ratio:
        return 0.0
    node = signals.ranks[0].process.node  # of which `contention` speaks
    ranks = [rank for rank in signals.ranks if rank.process.node == node]
    workers = sum(_worker_cores(signals, rank) for rank in ranks)
    if not workers:
        return 0.0
    training = sum(_cores(signals, rank, rank.process.pid) for rank in ranks)
    others = max(workers, seen.job_cores - training) + seen.outside_cores
    return min(1.0, seen.waiting_ratio) * workers / others


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
