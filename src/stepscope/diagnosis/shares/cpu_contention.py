"""CPU contention between a training thread and the workers that load its data.

A DataLoader worker that computes needs a core. Where workers and training thread together want
more cores than there are, workers cost more than the waiting for batches: everything that the
training thread does takes longer, because it is runnable without a core.

A thread asks for a core when it wakes up, and it wakes up when a batch arrives. So handover time
beyond its median counts as time without a core first, as far as any such time was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from stepscope import analysis
from stepscope.run import Rank, Run

MIN_OUTSIDE_RATIO = 0.05
"""Delays by processes outside the job are removed from the phases from this share of the step
on."""
MAX_OUTSIDE_RATIO = 0.98
"""Maximum share of a phase that is removed."""


class CoreWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the training threads' time without a core. All are 0 where this was not recorded;
    where the job's own CPU quota was exhausted, only `outside` is not."""

    outside_data_wait: float = 0.0
    """Share of the time outside `data_wait`, caused by workers."""
    handover: float = 0.0
    """Share of batch handover, caused by workers."""
    handover_others: float = 0.0
    """Share of batch handover, caused by processes other than workers."""
    training_thread: float = 0.0
    """Share of the step in which the training thread itself had no core, as the kernel counted it,
    for any reason."""
    is_recorded: bool = False
    """True if the delays of the threads were recorded; otherwise all shares are estimated from the
    mean over the run."""
    outside: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Share of each phase without a core that is not caused by the job: by processes outside it, by
    other virtual machines, or by its CPU quota. Empty where that is too little to matter, or not
    recorded."""

    def correct_waiting(self, waiting: analysis.DataWait) -> analysis.DataWait:
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
    """Measure the time without a core of the training threads of one job, as recorded at stack
    samples, or else as the mean over the run.

    A thread that waits for an unfinished batch does not want a core; a thread that receives a
    finished batch does.
    """
    run = ranks[0].run
    delays = [rank.core_delays for rank in ranks]
    recorded = [delay for delay in delays if delay is not None]
    if len(recorded) == len(ranks) and run.contention is not None:
        return _measure_recorded_waits(ranks, recorded)
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
    stolen_ratio = min(1.0, contention.stolen_ratio / contention.waiting_ratio)
    return _share_cores_used(run).workers * (1 - stolen_ratio)


class _Competition(NamedTuple):
    """Competitors of the training threads for cores, as shares of the delays that they cause."""

    workers: float
    outside: float


def _share_cores_used(run: Run) -> _Competition:
    """Divide the delays in proportion to the cores that the competitors used on the first rank's
    node."""
    contention = run.contention
    if contention is None:
        return _Competition(0.0, 0.0)
    node = run.ranks[0].process.node  # the node that `contention` was measured on
    ranks = [rank for rank in run.ranks if rank.process.node == node]
    worker_cores = sum(_measure_worker_cores(run, rank) for rank in ranks)
    training_cores = sum(_measure_cores(run, rank, rank.process.pid) for rank in ranks)
    outside_cores = contention.outside_cores - contention.stolen_cores
    competing_cores = max(worker_cores, contention.job_cores - training_cores) + outside_cores
    if competing_cores <= 0:
        return _Competition(0.0, 0.0)
    return _Competition(worker_cores / competing_cores, outside_cores / competing_cores)


def _share_recorded_delays(run: Run) -> _Competition:
    """Divide recorded delays between the processes outside the job and the workers.

    The job and the others want more cores than there are. Without the others they would want fewer
    by those that the others use, so that is the share of the delays that the others cause. A job
    that exhausts its own quota causes none.
    """
    contention, cores = run.contention, run.cores_available
    if contention is None:
        return _Competition(0.0, 0.0)
    if contention.throttled_ratio >= MIN_OUTSIDE_RATIO:
        return _Competition(0.0, 1.0)
    by_use = _share_cores_used(run)
    node = run.ranks[0].process.node
    waiting_cores = sum(
        (contention.waiting_ratio or 0.0) + rank.waiting_threads + _measure_waiting_workers(rank)
        for rank in run.ranks
        if rank.process.node == node
    )
    outside_cores = contention.outside_cores - contention.stolen_cores
    wanted_cores = contention.job_cores + outside_cores + waiting_cores
    if cores is None or wanted_cores <= cores:  # a shortage at times only
        return by_use
    outside = min(1.0, outside_cores / (wanted_cores - cores))
    inside = by_use.workers / (1 - by_use.outside) if by_use.outside < 1 else 0.0
    return _Competition((1 - outside) * inside, outside)


def _measure_waiting_workers(rank: Rank) -> float:
    """Measure the mean number of workers that are runnable without a core."""
    making = rank.making
    if making is None or making.worker_busy_ratio is None:
        return 0.0
    return _count_workers(rank) * making.worker_busy_ratio * (making.without_core_ratio or 0.0)


def _measure_recorded_waits(
    ranks: Sequence[Rank], delays: Sequence[analysis.CoreDelays]
) -> CoreWaits:
    """Measure the waits from recorded delays, divided between the competitors."""
    run = ranks[0].run
    competition = _share_recorded_delays(run)
    stolen_ratio = run.contention.stolen_ratio if run.contention is not None else 0.0
    wall_ns, delay_ns, outside_ns = {}, {}, {}
    for phase in analysis.PHASES:
        wall_ns[phase] = sum(
            float(rank.steps.phase_ns[phase][rank.steps.measured()].sum()) for rank in ranks
        )
        recorded_ns = min(sum(delay.phase_ns.get(phase, 0.0) for delay in delays), wall_ns[phase])
        delay_ns[phase] = recorded_ns
    outside_ratio = min(
        competition.outside, _bound_outside_ratio(ranks, sum(wall_ns.values()), delay_ns)
    )
    competition = competition._replace(outside=outside_ratio)
    for phase in analysis.PHASES:
        stolen_ns = 0.0 if phase == "data_wait" else stolen_ratio * wall_ns[phase]
        outside_ns[phase] = competition.outside * delay_ns[phase] + stolen_ns
    compute = [phase for phase in analysis.PHASES if phase != "data_wait"]
    delayed_ratio = sum(delay_ns[phase] for phase in compute) / max(
        1.0, sum(wall_ns[phase] for phase in compute)
    )
    # The thread that sends a batch is delayed like the one that receives it.
    handover_ns = sum(rank.late_batches.handing_over_ns for rank in ranks)
    sending_ns = delayed_ratio * max(0.0, handover_ns - delay_ns["data_wait"])
    receiving = (delay_ns["data_wait"] + sending_ns) / max(1, handover_ns, delay_ns["data_wait"])
    outside_ns["data_wait"] += competition.outside * sending_ns
    outside_ns["data_wait"] += sum(
        _measure_late_creation(rank, competition.outside) for rank in ranks
    )
    is_sizeable = sum(outside_ns.values()) >= MIN_OUTSIDE_RATIO * sum(wall_ns.values())
    if not is_sizeable:
        outside_ns = dict.fromkeys(analysis.PHASES, 0.0)
    outside = {
        phase: min(MAX_OUTSIDE_RATIO, outside_ns[phase] / max(1.0, wall_ns[phase]))
        for phase in analysis.PHASES
    }
    rest_ns = sum(wall_ns[phase] * (1 - outside[phase]) for phase in compute)
    worker_ns = competition.workers * sum(delay_ns[phase] for phase in compute)
    return CoreWaits(
        outside_data_wait=min(1.0, worker_ns / max(1.0, rest_ns)),
        handover=competition.workers * receiving,
        handover_others=competition.outside * receiving,
        training_thread=sum(delay.own_ns for delay in delays) / max(1.0, sum(wall_ns.values())),
        is_recorded=True,
        outside=outside if is_sizeable else {},
    )


def _bound_outside_ratio(
    ranks: Sequence[Rank], wall_ns: float, delay_ns: Mapping[str, float]
) -> float:
    """Compute the largest share of the recorded delays that processes outside the job can cause:
    using a core for a second, they delay one thread by a second at most. A quota has no such bound.
    """
    contention = ranks[0].run.contention
    if contention is None or contention.throttled_ratio >= MIN_OUTSIDE_RATIO:
        return 1.0
    node = ranks[0].process.node
    rank_count = sum(rank.process.node == node for rank in ranks)
    used_ns = (contention.outside_cores - contention.stolen_cores) * wall_ns / rank_count
    return max(0.0, used_ns) / max(1.0, sum(delay_ns.values()))


def _measure_late_creation(rank: Rank, outside: float) -> float:
    """Measure the nanoseconds of waiting for unfinished batches that processes outside the job
    cause, because they delay the workers.

    With n workers, the training thread waits for fetch / n beyond its own work. Both are shorter
    without the delays, and the waiting shrinks like the excess of the first over the second.
    """
    making, workers = rank.making, _count_workers(rank)
    if making is None or not workers or making.without_core_ratio is None:
        return 0.0
    waiting = rank.late_batches
    fetch_ratio = 1 - making.without_core_ratio * outside
    is_measured = rank.steps.measured()
    busy_ns = float(rank.steps.wall_ns[is_measured].sum()) - waiting.total_ns
    delays = {} if rank.core_delays is None else rank.core_delays.phase_ns
    delay_ns = sum(ns for phase, ns in delays.items() if phase != "data_wait")
    fetch_ns = making.mean_ns * float(rank.steps.fetches[is_measured].sum()) / workers
    excess_ns = fetch_ns - busy_ns
    if excess_ns <= 0:  # single batches were late
        return waiting.making_ns * (1 - fetch_ratio)
    remaining_ns = max(0.0, fetch_ns * fetch_ratio - (busy_ns - outside * delay_ns))
    return waiting.making_ns * max(0.0, 1 - remaining_ns / excess_ns)


def _measure_worker_cores(run: Run, rank: Rank) -> float:
    """Measure the cores that the DataLoader workers of a rank keep busy."""
    cores = [_measure_cores(run, rank, worker.pid) for worker in run.workers_of(rank.process)]
    return _count_workers(rank) * sum(cores) / max(1, len(cores))


def _count_workers(rank: Rank) -> int:
    """Count the workers that create batches at the same time: those of one epoch, where each epoch
    starts its own."""
    workers = len(rank.run.workers_of(rank.process))
    return min(workers, rank.loader.num_workers) if rank.loader is not None else workers


def _measure_cores(run: Run, rank: Rank, pid: int) -> float:
    metrics = run.metrics.get(rank.process.node)
    if metrics is None:
        return 0.0
    during = metrics.between(int(rank.steps.start[0]), int(rank.steps.end[-1]))
    return during.mean("process_cpu_cores", str(pid)) or 0.0
