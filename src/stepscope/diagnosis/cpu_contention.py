"""CPU contention between a training thread and the workers that load its data.

A DataLoader worker that computes needs a core. Where workers and training thread together want
more cores than there are, workers cost more than the waiting for batches: everything that the
training thread does takes longer, because it is runnable without a core.

A thread asks for a core when it wakes up, and it wakes up when a batch arrives. So handover time
beyond its median counts as time without a core first, as far as any such time was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stepscope.analysis import DataWait
from stepscope.run import Rank, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreWaits:
    """Shares of the training threads' time without a core. All are 0 where this was not recorded
    and where the job's own CPU quota was exhausted."""

    outside_data_wait: float = 0.0
    """Share of the time outside `data_wait`, caused by workers."""
    handover: float = 0.0
    """Share of batch handover, caused by workers."""
    handover_others: float = 0.0
    """Share of batch handover, caused by processes other than workers."""

    def correct_waiting(self, waiting: DataWait) -> DataWait:
        """Remove contention by other processes from the waiting for batches, and move contention
        by workers from handover to batch creation."""
        worker_ns = round(self.handover * waiting.handing_over_ns)
        other_ns = round(self.handover_others * waiting.handing_over_ns)
        return replace(
            waiting,
            total_ns=waiting.total_ns - other_ns,
            making_ns=waiting.making_ns + worker_ns,
            handing_over_ns=waiting.handing_over_ns - worker_ns - other_ns,
        )


def measure_core_waits(ranks: Sequence[Rank]) -> CoreWaits:
    """Measure the time without a core of the training threads of one job.

    A thread that waits for an unfinished batch does not want a core; a thread that receives a
    finished batch does.
    """
    run = ranks[0].run
    contention, worker_share = run.contention, compute_worker_share(run)
    if contention is None or contention.waiting_ratio is None or contention.throttled_ratio:
        return CoreWaits()
    waits = [rank.late_batches for rank in ranks]
    wall_ns = sum(int(rank.steps.wall_ns[rank.steps.measured()].sum()) for rank in ranks)
    wait_ns = sum(wait.total_ns for wait in waits)
    handover_ns = sum(wait.handing_over_ns for wait in waits)
    without_core_ns = min(1.0, contention.waiting_ratio) * wall_ns
    proportional_ns = without_core_ns * handover_ns / max(1, wall_ns - wait_ns + handover_ns)
    irregular_ns = sum(wait.irregular_ns for wait in waits)
    receiving_ns = min(without_core_ns, handover_ns, max(proportional_ns, irregular_ns))
    remaining_ns = without_core_ns - receiving_ns
    return CoreWaits(
        outside_data_wait=min(1.0, worker_share * remaining_ns / max(1, wall_ns - wait_ns)),
        handover=worker_share * receiving_ns / max(1, handover_ns),
        handover_others=(1 - worker_share) * receiving_ns / max(1, handover_ns),
    )


def compute_worker_share(run: Run) -> float:
    """Compute the workers' share of the CPU contention, between 0 and 1.

    Contention is shared in proportion to the cores kept busy outside the training processes: by
    workers, by other processes of the job, and by processes outside it. Time stolen by a
    hypervisor belongs to none of them; with an exhausted quota the share is 0.
    """
    contention = run.contention
    if contention is None or contention.throttled_ratio or not contention.waiting_ratio:
        return 0.0
    node = run.ranks[0].process.node  # the node that `contention` was measured on
    ranks = [rank for rank in run.ranks if rank.process.node == node]
    worker_cores = sum(_measure_worker_cores(run, rank) for rank in ranks)
    if not worker_cores:
        return 0.0
    training_cores = sum(_measure_cores(run, rank, rank.process.pid) for rank in ranks)
    outside_cores = contention.outside_cores - contention.stolen_cores
    competing_cores = max(worker_cores, contention.job_cores - training_cores) + outside_cores
    stolen_ratio = min(1.0, contention.stolen_ratio / contention.waiting_ratio)
    return worker_cores / competing_cores * (1 - stolen_ratio)


def _measure_worker_cores(run: Run, rank: Rank) -> float:
    """Measure the cores that the DataLoader workers of a rank keep busy."""
    return sum(_measure_cores(run, rank, worker.pid) for worker in run.workers_of(rank.process))


def _measure_cores(run: Run, rank: Rank, pid: int) -> float:
    metrics = run.metrics.get(rank.process.node)
    if metrics is None:
        return 0.0
    during = metrics.between(int(rank.steps.start[0]), int(rank.steps.end[-1]))
    return during.mean("process_cpu_cores", str(pid)) or 0.0
