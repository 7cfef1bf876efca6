"""Time for which a training thread was ready to run and had no core, and who had it.

A worker that computes needs a core. Where there are fewer cores than the workers and the training
thread want together, it is not only waiting for batches that they cost: whatever the training
thread does takes longer, because it is ready to run and has no core.

A thread asks for a core when it wakes, and it wakes when a batch has come: what handing over takes
beyond the usual is such waiting, as far as the thread was seen to wait at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepscope.analysis import DataWait
from stepscope.run import Rank, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowding:
    """Shares of the time of the training threads for which they had no core. All are 0 where that
    is not known, and where the job's own quota was in the way."""

    beside: float = 0.0
    """Of the time outside `data_wait`, because workers had them."""
    receiving: float = 0.0
    """Of handing over batches, because workers had them."""
    receiving_others: float = 0.0
    """Of handing over batches, because others than the workers had them."""

    def of_waiting(self, waiting: DataWait) -> DataWait:
        """Waiting for batches without what others than the workers cost; what the workers cost is
        for making batches."""
        workers = round(self.receiving * waiting.handing_over_ns)
        others = round(self.receiving_others * waiting.handing_over_ns)
        return replace(
            waiting,
            total_ns=waiting.total_ns - others,
            making_ns=waiting.making_ns + workers,
            handing_over_ns=waiting.handing_over_ns - workers - others,
        )


def crowding(ranks: Sequence[Rank]) -> Crowding:
    """Of the ranks of one job.

    A thread that waits for a batch in the making does not want a core; one that takes over a
    batch which lies ready does.
    """
    run = ranks[0].run
    seen, workers = run.contention, workers_part(run)
    if seen is None or seen.waiting_ratio is None or seen.throttled_ratio:
        return Crowding()
    waits = [rank.late_batches for rank in ranks]
    wall = sum(int(rank.steps.wall_ns[rank.steps.measured()].sum()) for rank in ranks)
    waited, handing = sum(w.total_ns for w in waits), sum(w.handing_over_ns for w in waits)
    without_core = min(1.0, seen.waiting_ratio) * wall
    evenly = without_core * handing / max(1, wall - waited + handing)
    irregular = sum(each.irregular_ns for each in waits)
    receiving = min(without_core, handing, max(evenly, irregular))
    return Crowding(
        beside=min(1.0, workers * (without_core - receiving) / max(1, wall - waited)),
        receiving=workers * receiving / max(1, handing),
        receiving_others=(1 - workers) * receiving / max(1, handing),
    )


def workers_part(run: Run) -> float:
    """The workers' part in the lack of cores, between 0 and 1.

    Whoever keeps cores busy beside the training processes has a part in it in proportion: the
    workers, other processes of the job, and those outside it. What a hypervisor steals is none of
    theirs, and a quota that is used up is nobody's.
    """
    seen = run.contention
    if seen is None or seen.throttled_ratio or not seen.waiting_ratio:
        return 0.0
    node = run.ranks[0].process.node  # of which `contention` speaks
    ranks = [rank for rank in run.ranks if rank.process.node == node]
    workers = sum(_worker_cores(run, rank) for rank in ranks)
    if not workers:
        return 0.0
    training = sum(_cores(run, rank, rank.process.pid) for rank in ranks)
    outside = seen.outside_cores - seen.stolen_cores
    of_the_queue = workers / (max(workers, seen.job_cores - training) + outside)
    return of_the_queue * (1 - min(1.0, seen.stolen_ratio / seen.waiting_ratio))


def _worker_cores(run: Run, rank: Rank) -> float:
    """Cores that the rank's DataLoader workers keep busy."""
    return sum(
        _cores(run, rank, process.pid)
        for process in run.processes
        if process.parent_pid == rank.process.pid and process.role == "dataloader_worker"
    )


def _cores(run: Run, rank: Rank, pid: int) -> float:
    metrics = run.metrics.get(rank.process.node)
    if metrics is None:
        return 0.0
    during = metrics.between(int(rank.steps.start[0]), int(rank.steps.end[-1]))
    return during.mean("process_cpu_cores", str(pid)) or 0.0
