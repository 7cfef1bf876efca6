"""CPU budget of a training step: the cores that the intra-op threads of the training process and
the loader's workers share.

The training thread computes for B without batch creation, a fraction f of it in parallel regions
with p threads; workers want cores for G of CPU time in total. While a workers are busy on C cores,

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
from dataclasses import dataclass

OVERSUBSCRIPTION_FACTOR = 1.5
"""Slowdown of a parallel region beyond that of its slowest thread, when there are more busy threads
than cores."""
FREE_CORE_RATIO = 0.25
"""A core with a smaller part in use is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWork:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWork:
    """Creation of the batches of one step by one worker with a core for itself."""

    wall_ns: float
    cpu_ns: float

    def scale(self, ratio: float) -> BatchWork:
        """Return the part of the work that remains."""
        return BatchWork(wall_ns=self.wall_ns * ratio, cpu_ns=self.cpu_ns * ratio)

    def add(self, cpu_ns: float) -> BatchWork:
        """Return the work with additional CPU time."""
        return BatchWork(wall_ns=self.wall_ns + cpu_ns, cpu_ns=self.cpu_ns + cpu_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
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
