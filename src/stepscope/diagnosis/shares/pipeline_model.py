"""Model of the input pipeline, and the step time that it predicts for changes.

CPU budget of a training step: the cores that the intra-op threads of the training process and the
loader's workers share. The training thread computes for B without batch creation, a fraction f of
it in parallel regions with p threads; workers want cores for G of CPU time in total. While a
workers are busy on C cores,

    serial code       takes max(1, (1 + a) / C) times as long: the scheduler is fair
    parallel regions  take 1.5 * ceil((p + a) / C) times as long if p + a > C: a region ends with
                      its slowest thread, which shares its core; the others wait for it and spin

With K the mean of both, weighted by f, a step takes

    max(B, fetch / workers) + (K - 1) * min(B, G / a), and at least all CPU time / C

The factor 1.5 was measured with OpenMP on two cores (`docs/verdict.md`). It is that of workers
that never sleep; with workers that mostly sleep, a step may take as little as its CPU time / C. CPU
time includes spinning, so it is unknown how much of it is work: with q < p threads, B becomes
something between B (the threads were of no use) and (1 - f) * B + f * B * p / q (all was work).
"""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import replace

from stepscope import quantities, rules, schema
from stepscope.diagnosis.shares.cpu_contention import measure_core_waits
from stepscope.run import Rank, Run, count_loader_workers, input_bytes

WAITING_FETCH_CPU_RATIO = 0.4
"""A fetch whose CPU time is less than this share of its duration mostly waits for I/O."""
MIN_THREAD_USE = 0.05
"""Cores that helper threads of a process use beside its intra-op threads."""
UNCERTAINTY_RATIO = 0.10
"""Uncertainty of predicted steps that depend on cores: a smaller saving is no reason for a
change."""
START_NS = 40_000_000
"""Time for starting and stopping an iterator with workers, apart from the next line. These four
constants were measured with small processes, forked workers and batches of 20 kB to 20 MB."""
WORKER_START_NS = 15_000_000
"""Time for starting one worker."""
HANDOVER_NS = 800_000
"""CPU time for sending one batch, and as much for receiving it."""
MAX_WORKER_RATIO = 2.0
"""Workers per core from which they are many more than the cores …"""
MIN_DELAYED_RATIO = 0.5
"""… and are too many where batch creation waits for a core for this share of its time."""
BYTE_NS = 1.0
"""CPU time of a worker for copying one byte of a batch to shared memory."""


class WorkerEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted step for a number of workers and intra-op threads."""

    workers: int
    threads: int
    step_ns: float
    shortest_ns: float
    """Step if the scheduler keeps all cores busy with work."""
    data_ratio: float
    """Share of that step that is waiting for batches, or in which workers have the cores that the
    training thread needs."""


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Input pipeline of one rank: mean times per measured step, in nanoseconds.

    `cpu_budget` has the step for n workers and p intra-op threads; without workers nothing
    overlaps. A change scales the waiting like that of the model. Where the model does not explain
    the waiting (single batches were late), the waiting scales like fetch / n. Where workers compete
    with the training thread for cores, a shorter fetch returns the same share of the time that the
    training thread lost to them.
    """

    workers: int
    threads: int = 1
    """Intra-op threads of the training process."""
    cores: float | None
    """Cores available to this rank, without those that processes other than the training process
    and its workers use; None where they, or their use, are not known."""
    busy_ns: float
    """Step without waiting for batches. A batch that is ready while processes other than workers
    have the cores is not waited for."""
    making_ns: float
    """Waiting for batch creation."""
    starting_ns: float
    """Waiting for workers to start."""
    handing_over_ns: float
    """Receiving batches that were ready."""
    fetch_ns: float
    fetch_cpu_ns: float
    """CPU time of fetching; time in which a worker was runnable without a core counts as such."""
    other_cpu_ns: float
    """CPU time of the training process without fetching."""
    contended_ns: float = 0.0
    """Part of `busy_ns` in which the training thread had no core because workers had them."""
    batch_count: float = 1.0
    """Batches per step."""
    batch_bytes: float = 0.0
    """Size of one batch; 0 where not known."""
    start_count: float = 0.0
    """Iterators of the loader per step."""
    core_count: float | None = None
    """Cores of the rank's node per rank; None where they are not known."""
    delayed_ratio: float = 0.0
    """Share of batch creation in which the worker has no core."""
    is_locked: bool = False
    """True if much of batch creation waits for a lock, which more workers would share."""

    @classmethod
    def measure(cls, run: Run, rank: Rank) -> Pipeline | None:
        """Measure the pipeline of a rank; None where batch creation or the number of workers is not
        known.

        Ranks of one node share its cores evenly.
        """
        making, workers = rank.making, count_loader_workers(rank)
        if making is None or workers is None:
            return None
        is_measured = rank.steps.measured()
        wall_ns = float(rank.steps.wall_ns[is_measured].mean())
        late, core_waits = rank.late_batches, measure_core_waits(run.ranks)
        parts = core_waits.correct_waiting(late)
        wait_ns = float(rank.steps.phase_ns["data_wait"][is_measured].mean())
        wait_ns *= parts.total_ns / max(1, late.total_ns)
        busy_ns = wall_ns - wait_ns
        batch_count = float(rank.steps.fetches[is_measured].clip(1).mean())
        fetch_ns = making.mean_ns * batch_count
        # Where CPU time was not recorded, fetching may need a core all the time.
        cpu_ratio = 1.0 if making.cpu_ratio is None else making.cpu_ratio
        fetch_cpu_ns = fetch_ns * min(1.0, cpu_ratio + run.workers_without_core(rank))
        budget = _Budget.measure(run, rank, busy_ns, fetch_cpu_ns, inline=not workers)
        rank_count = sum(peer.process.node == rank.process.node for peer in run.ranks)
        scale = wait_ns / parts.total_ns if parts.total_ns else 0.0
        delayed_ns = sum(
            ratio * float(rank.steps.phase_ns[phase][is_measured].mean())
            for phase, ratio in core_waits.outside.items()
            if phase != "data_wait"
        )
        return cls(
            workers=workers,
            threads=budget.threads,
            cores=budget.cores,
            busy_ns=busy_ns,
            making_ns=parts.making_ns * scale,
            starting_ns=parts.starting_ns * scale,
            handing_over_ns=parts.handing_over_ns * scale,
            fetch_ns=fetch_ns,
            fetch_cpu_ns=fetch_cpu_ns,
            other_cpu_ns=budget.cpu_ns,
            contended_ns=core_waits.outside_data_wait * (busy_ns - delayed_ns),
            batch_count=batch_count,
            batch_bytes=input_bytes(rank),
            start_count=late.start_count / int(is_measured.sum()),
            core_count=None if run.cores_available is None else run.cores_available / rank_count,
            delayed_ratio=run.workers_without_core(rank) if workers else 0.0,
            is_locked=making.is_locked,
        )

    @classmethod
    def measure_inline(cls, run: Run, rank: Rank, making_ratio: float) -> Pipeline:
        """Measure batches that the training thread prepares without a loader.

        Args:
            run: the job.
            rank: the training process.
            making_ratio: share of the step that prepares batches.
        """
        wall_ns = float(rank.steps.wall_ns[rank.steps.measured()].mean())
        making_ns = wall_ns * making_ratio
        busy_ns = wall_ns - making_ns
        budget = _Budget.measure(run, rank, busy_ns, making_ns, inline=True)
        return cls(
            workers=0,
            threads=budget.threads,
            cores=budget.cores,
            busy_ns=busy_ns,
            making_ns=making_ns,
            starting_ns=0.0,
            handing_over_ns=0.0,
            fetch_ns=making_ns,
            fetch_cpu_ns=making_ns,
            other_cpu_ns=budget.cpu_ns,
            batch_bytes=input_bytes(rank),
        )

    @property
    def is_waiting(self) -> bool:
        """True if fetching mostly waits, for storage or a network; waiting for a core is no such
        waiting."""
        return self.fetch_cpu_ns < WAITING_FETCH_CPU_RATIO * self.fetch_ns

    def predict_step_ns(
        self,
        *,
        workers: int | None = None,
        threads: int | None = None,
        fetch_ratio: float = 1.0,
        starting_ratio: float = 1.0,
        handing_over_ratio: float = 1.0,
        work_ratio: float = 0.5,
    ) -> float:
        """Predict the step for a number of workers and threads and the remaining share of each
        part; `work_ratio` as in `TrainingWork.with_threads`."""
        worker_count = self.workers if workers is None else workers
        thread_count = self.threads if threads is None else threads
        plan = self._plan(worker_count, thread_count, fetch_ratio, work_ratio)
        return (
            plan.busy_ns
            + plan.wait_ns
            + self._predict_starting_ns(worker_count) * starting_ratio
            + self._predict_handover_ns(worker_count) * handing_over_ratio
        )

    @property
    def is_handover_longer(self) -> bool:
        """True if the training process creates a batch in less time than a worker needs to hand one
        over."""
        return not self.workers and self.fetch_ns <= rules.MAX_HANDOVER_NS * self.batch_count

    @property
    def is_crowded(self) -> bool:
        """True if the workers are many more than the cores, and wait for cores most of the time."""
        is_many = self.core_count is not None and self.workers > MAX_WORKER_RATIO * self.core_count
        return is_many and self.delayed_ratio >= MIN_DELAYED_RATIO

    def predict_uncontended_ns(self, workers: int) -> float:
        """Predict the step for fewer workers that do not wait for cores."""
        busy_ns = self.busy_ns - self.contended_ns
        fetch_ns = self.fetch_ns * (1 - self.delayed_ratio)
        starting_ns = self.starting_ns * min(1.0, workers / max(1, self.workers))
        return max(busy_ns, fetch_ns / workers) + starting_ns + self.handing_over_ns

    def predict_steady_ns(self) -> float:
        """Predict the step without the waiting that the model does not explain."""
        wait_ns = self._model(self.workers, self._training, 1.0).wait_ns
        steady_ns = self.busy_ns + wait_ns + self.starting_ns + self.handing_over_ns
        return min(steady_ns, self.predict_step_ns())

    def find_better_workers(self) -> WorkerEstimate | None:
        """Find the best numbers of workers and threads; None where the cores are not known, or the
        predicted saving is within the uncertainty of the prediction."""
        best, limit_ns = self.find_best_workers(), (1 - UNCERTAINTY_RATIO) * self.predict_step_ns()
        return best if best is not None and best.step_ns < limit_ns else None

    def find_best_workers(self, min_workers: int = 1) -> WorkerEstimate | None:
        """Find the smallest number of workers with the shortest step, up to the number of cores, or
        twice that where workers mostly wait; None where the cores are not known, too few, or a lock
        is shared.

        Fewer intra-op threads are considered where the step would not get longer even if all their
        CPU time was work, and are better where they save more than the uncertainty.
        """
        if self.cores is None or self.is_handover_longer or self.is_locked:
            return None
        core_count, present_ns = max(1, round(self.cores)), self.predict_step_ns()
        estimates = []
        for workers in range(min_workers, core_count * (2 if self.is_waiting else 1) + 1):
            estimates.append(self._estimate(workers, self.threads))
            threads = max(1, core_count - workers)
            if threads < self.threads and present_ns >= self.predict_step_ns(
                workers=workers, threads=threads, work_ratio=1.0
            ):
                estimates.append(self._estimate(workers, threads))
        return min(estimates, key=self._rank_estimate, default=None)

    def _rank_estimate(self, estimate: WorkerEstimate) -> tuple[float, int]:
        is_other = estimate.threads != self.threads
        return estimate.step_ns * (1 + UNCERTAINTY_RATIO * is_other), estimate.workers

    def _estimate(self, workers: int, threads: int) -> WorkerEstimate:
        step_ns = self.predict_step_ns(workers=workers, threads=threads)
        plan = self._plan(workers, threads, 1.0, 0.5)
        return WorkerEstimate(
            workers=workers,
            threads=threads,
            step_ns=step_ns,
            shortest_ns=step_ns - plan.saved_ns,
            data_ratio=1 - plan.compute_ns / step_ns,
        )

    @property
    def _batches(self) -> BatchWork:
        return BatchWork(wall_ns=self.fetch_ns, cpu_ns=self.fetch_cpu_ns)

    @property
    def _training(self) -> TrainingWork:
        """Work of the training thread, without what it loses to the present workers."""
        busy_ns = max(1.0, self.busy_ns)
        extra_threads = max(1, self.threads - 1)
        parallel_ratio = min(1.0, max(0.0, self.other_cpu_ns / busy_ns - 1) / extra_threads)
        work = TrainingWork(
            wall_ns=busy_ns,
            parallel_ratio=parallel_ratio if self.threads > 1 else 0.0,
            threads=self.threads,
        )
        if not self.workers or self.cores is None:
            return work
        alone_ns = remove_stretch(work, self._batches, self.workers, self.cores)
        return replace(work, wall_ns=min(alone_ns, busy_ns - self.contended_ns))

    def _model(self, workers: int, training: TrainingWork, fetch_ratio: float) -> StepPlan:
        batches = self._batches
        if workers and not self.workers:
            sending_ns = self.batch_count * (HANDOVER_NS + BYTE_NS * self.batch_bytes)
            batches = batches.add(sending_ns)
        return plan_step(training, batches.scale(fetch_ratio), workers, self.cores)

    def _plan(self, workers: int, threads: int, fetch_ratio: float, work_ratio: float) -> StepPlan:
        """Plan the step, with the loss to workers and the waiting scaled to those measured."""
        present = self._training
        training = present
        if threads < self.threads:
            training = present.with_threads(threads, work_ratio=work_ratio)
        plan = self._model(workers, training, fetch_ratio)
        if (workers, threads) == (self.workers, self.threads):
            plan = replace(plan, stretch_ns=(self.busy_ns - present.wall_ns) * fetch_ratio)
        modelled_ns = self._model(self.workers, present, 1.0).wait_ns
        if plan.wait_ns > modelled_ns:
            wait_ns = self.making_ns + plan.wait_ns - modelled_ns
        elif modelled_ns > 0:
            wait_ns = self.making_ns * plan.wait_ns / modelled_ns
        else:
            wait_ns = self.making_ns * fetch_ratio * max(1, self.workers) / max(1, workers)
        return replace(plan, wait_ns=wait_ns)

    def _predict_starting_ns(self, workers: int) -> float:
        """Predict the time per step for starting workers and for waiting for the first batches."""
        if workers == self.workers:
            return self.starting_ns
        added_ns = (workers - self.workers) * WORKER_START_NS
        if not self.workers:
            added_ns += START_NS + round(self.fetch_ns / self.batch_count)
        return max(0.0, self.starting_ns + self.start_count * added_ns)

    def _predict_handover_ns(self, workers: int) -> float:
        is_new = workers > 0 and not self.workers
        return self.handing_over_ns + is_new * self.batch_count * HANDOVER_NS


def describe_workers(estimate: WorkerEstimate) -> str:
    """Describe a setting: '1 worker and 1 intra-op thread'."""
    threads = quantities.count_of(estimate.threads, "intra-op thread")
    return f"{quantities.count_of(estimate.workers, 'worker')} and {threads}"


class _Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Cores of a rank and their use by its training process."""

    cores: float | None
    threads: int
    cpu_ns: float
    """CPU time of the training process per step, without fetching."""

    @classmethod
    def measure(
        cls, run: Run, rank: Rank, busy_ns: float, fetch_cpu_ns: float, *, inline: bool
    ) -> _Budget:
        contention, is_measured = run.contention, rank.steps.measured()
        if run.cores_available is None or contention is None:
            return cls(cores=None, threads=1, cpu_ns=0.0)
        wall_ns = float(rank.steps.wall_ns[is_measured].mean())
        rank_count = sum(peer.process.node == rank.process.node for peer in run.ranks)
        process_cores = run.process_cores(rank.process)
        if process_cores is None:  # the job consists of ranks and workers
            process_cores, inline = contention.job_cores / rank_count, True
        cpu_ns = max(0.0, process_cores * wall_ns - inline * fetch_cpu_ns)
        used_cores = contention.outside_cores
        cores = max(1.0, run.cores_available - used_cores) / rank_count
        settings = rank.facts(schema.SettingsFact)
        if settings:
            threads = settings[-1].intra_op_threads
        else:
            threads = max(1, math.ceil(cpu_ns / max(1.0, busy_ns) - MIN_THREAD_USE))
        return cls(cores=cores, threads=threads, cpu_ns=min(cpu_ns, busy_ns * max(1.0, cores)))


OVERSUBSCRIPTION_FACTOR = 1.5
"""Slowdown of a parallel region beyond that of its slowest thread, when there are more busy threads
than cores."""
FREE_CORE_RATIO = 0.25
"""A core with a smaller part in use is free."""


class TrainingWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one step outside of batch creation, with all cores for itself."""

    wall_ns: float
    parallel_ratio: float
    """Fraction of the time in which all intra-op threads are busy."""
    threads: int

    @property
    def cpu_ns(self) -> float:
        """CPU time of the training process, including spinning."""
        return self.wall_ns * (1 + self.parallel_ratio * (self.threads - 1))

    def with_threads(self, threads: int, *, work_ratio: float = 0.5) -> TrainingWork:
        """Return the same work with fewer threads.

        Args:
            threads: intra-op threads, at most as many as now.
            work_ratio: part of the CPU time of the removed threads that is work. The rest is
                spinning.
        """
        parallel_ns = self.wall_ns * self.parallel_ratio
        removed_ns = parallel_ns * (self.threads / threads - 1) * work_ratio
        wall_ns = self.wall_ns + removed_ns
        ratio = (parallel_ns + removed_ns) / wall_ns if threads > 1 else 0.0
        return TrainingWork(wall_ns=wall_ns, parallel_ratio=ratio, threads=threads)


class BatchWork(msgspec.Struct, frozen=True, kw_only=True):
    """Creation of the batches of one step by one worker with a core for itself."""

    wall_ns: float
    cpu_ns: float

    def scale(self, ratio: float) -> BatchWork:
        """Return the part of the work that remains."""
        return BatchWork(wall_ns=self.wall_ns * ratio, cpu_ns=self.cpu_ns * ratio)

    def add(self, cpu_ns: float) -> BatchWork:
        """Return the work with additional CPU time."""
        return BatchWork(wall_ns=self.wall_ns + cpu_ns, cpu_ns=self.cpu_ns + cpu_ns)


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Step of the budget, in nanoseconds."""

    compute_ns: float
    """Training thread without batch creation and without workers."""
    stretch_ns: float
    """Additional time of that work because workers have its cores."""
    wait_ns: float
    """Waiting for batch creation."""
    saved_ns: float = 0.0
    """Time that is saved if the scheduler keeps all cores busy with work."""

    @property
    def busy_ns(self) -> float:
        """Step without waiting for batches."""
        return self.compute_ns + self.stretch_ns


def plan_step(
    training: TrainingWork, batches: BatchWork, workers: int, cores: float | None
) -> StepPlan:
    """Compute the step for a number of workers; None cores stand for unlimited ones."""
    compute_ns = training.wall_ns
    if not workers:
        return StepPlan(compute_ns=compute_ns, stretch_ns=0.0, wait_ns=batches.wall_ns)
    if cores is None:
        wait_ns = max(0.0, batches.wall_ns / workers - compute_ns)
        return StepPlan(compute_ns=compute_ns, stretch_ns=0.0, wait_ns=wait_ns)
    worker_ns = max(batches.wall_ns / workers, batches.cpu_ns / min(workers, cores))
    busy_workers = count_busy_workers(training.wall_ns, batches, workers)
    slowdown = compute_slowdown(training, busy_workers, cores)
    stretch_ns = (slowdown - 1) * min(training.wall_ns, batches.cpu_ns / busy_workers)
    shortest_ns = max(compute_ns, worker_ns, (training.cpu_ns + batches.cpu_ns) / cores)
    total_ns = max(max(compute_ns, worker_ns) + stretch_ns, shortest_ns)
    return StepPlan(
        compute_ns=compute_ns,
        stretch_ns=stretch_ns,
        wait_ns=max(0.0, total_ns - compute_ns - stretch_ns),
        saved_ns=total_ns - shortest_ns,
    )


def count_busy_workers(compute_ns: float, batches: BatchWork, workers: int) -> float:
    """Compute the mean number of workers that compute at the same time, at least 1. Where they are
    faster than the training thread they wait for it, and one of them creates a batch after each
    step."""
    pace_ns = max(1.0, compute_ns, batches.wall_ns / workers)
    return min(float(workers), max(1.0, batches.cpu_ns / pace_ns))


def compute_slowdown(training: TrainingWork, busy_workers: float, cores: float) -> float:
    """Compute the factor by which busy workers slow the training thread down."""
    serial = max(1.0, (1 + busy_workers) / cores)
    thread_count = training.threads + round(busy_workers)
    parallel = serial
    if training.threads > 1 and thread_count > cores + FREE_CORE_RATIO:
        slowest = math.ceil(thread_count / max(1, round(cores)))
        parallel = max(serial, OVERSUBSCRIPTION_FACTOR * slowest)
    return (1 - training.parallel_ratio) * serial + training.parallel_ratio * parallel


def remove_stretch(training: TrainingWork, batches: BatchWork, workers: int, cores: float) -> float:
    """Compute the wall time of work without workers from that beside them, by inverting
    `plan_step`: with work B, slowdown K and CPU time G of each busy worker, it was
    B + (K - 1) * min(B, G)."""
    busy_ns = training.wall_ns
    busy_workers = count_busy_workers(busy_ns, batches, workers)
    slowdown = compute_slowdown(training, busy_workers, cores)
    worker_ns = batches.cpu_ns / busy_workers
    return max(busy_ns / slowdown, busy_ns - (slowdown - 1) * worker_ns)
