"""How batches are made beside the training thread, and what the step would be if that changed."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.diagnosis.cpu_contention import crowding
from stepscope.run import Rank, Run

WAITING_FETCH_CPU_RATIO = 0.4
"""A fetch that uses less CPU than this of its time waits for something outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEstimate:
    """What another number of workers would do."""

    workers: int
    step_ns: float
    data_ratio: float
    """Share of that step that is waiting for batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """How one rank is fed: times per measured step, in nanoseconds.

    The slowest of three sets the pace of n workers, and without workers nothing overlaps:

        pace(n) = max(busy, fetch / n, (CPU time of fetching + CPU time of all else) / cores)
        pace(0) = busy + fetch

    A change leaves as much of the waiting as it leaves of the pace beyond `busy`. Where the pace
    does not account for the waiting (single batches came late), it leaves as much as it leaves of
    fetch / n. Where workers crowd the training thread out, less to fetch gives it back as much of
    the time in which it had no core.
    """

    workers: int
    cores: float | None
    """That this rank may use; None where that, or who uses them, is not known."""
    busy_ns: float
    """All but waiting for batches; batches that lie ready while others than the workers have the
    cores are not waited for."""
    making_ns: float
    """Waiting for batches to be made."""
    starting_ns: float
    """Waiting for workers to start."""
    handing_over_ns: float
    """Receiving batches that lay ready."""
    fetch_ns: float
    fetch_cpu_ns: float
    """CPU time of fetching; time that a worker was ready to run without a core counts as such."""
    other_cpu_ns: float
    crowded_ns: float = 0.0
    """Part of `busy_ns` in which the training thread had no core because workers had them."""

    @classmethod
    def of(cls, run: Run, rank: Rank) -> Pipeline | None:
        """The pipeline of a rank; None where nobody saw how batches are made.

        Ranks of one node share its cores evenly.
        """
        making, contention = rank.making, run.contention
        if making is None:
            return None
        sharing = sum(other.process.node == rank.process.node for other in run.ranks)
        measured = rank.steps.measured()
        wall = float(rank.steps.wall_ns[measured].mean())
        late, without_core = rank.late_batches, crowding(run.ranks)
        parts = without_core.of_waiting(late)
        waited = float(rank.steps.phase_ns["data_wait"][measured].mean())
        waited *= parts.total_ns / max(1, late.total_ns)
        busy = wall - waited
        fetches = float(rank.steps.fetches[measured].clip(1).mean())
        fetch = making.mean_ns * fetches
        fetch_cpu = fetch * min(1.0, making.cpu_ratio + run.workers_without_core(rank))
        cores, other_cpu = None, 0.0
        if run.cores_available is not None and contention is not None:
            cores = run.cores_available / sharing
            used = contention.job_cores / sharing * wall
            other_cpu = min(max(0.0, used - fetch_cpu), busy * cores)
        workers = int(rank.loader["num_workers"]) if rank.loader is not None else 0
        scale = waited / parts.total_ns if parts.total_ns else 0.0
        return cls(
            workers=workers,
            cores=cores,
            busy_ns=busy,
            making_ns=parts.making_ns * scale,
            starting_ns=parts.starting_ns * scale,
            handing_over_ns=parts.handing_over_ns * scale,
            fetch_ns=fetch,
            fetch_cpu_ns=fetch_cpu,
            other_cpu_ns=other_cpu,
            crowded_ns=without_core.beside * busy,
        )

    def step_ns(
        self,
        *,
        workers: int | None = None,
        fetch_ratio: float = 1.0,
        starting_ratio: float = 1.0,
        handing_over_ratio: float = 1.0,
    ) -> float:
        """The step with so many workers, and so much left of each part."""
        count = self.workers if workers is None else workers
        beyond = self._pace(self.workers, 1.0) - self.busy_ns
        if beyond > 0:
            left = (self._pace(count, fetch_ratio) - self.busy_ns) / beyond
        else:
            left = fetch_ratio * max(1, self.workers) / max(1, count)
        return (
            self.busy_ns
            - self.crowded_ns * (1 - fetch_ratio)
            + self.making_ns * min(1.0, left)
            + self.starting_ns * starting_ratio
            + self.handing_over_ns * handing_over_ratio
        )

    def steady_ns(self) -> float:
        """The step without the waiting that the pace does not account for."""
        pace = self._pace(self.workers, 1.0) + self.starting_ns + self.handing_over_ns
        return min(pace, self.step_ns())

    def best_workers(self) -> WorkerEstimate | None:
        """The fewest workers that make the step shortest, up to the number of cores, or twice as
        many where they mostly wait; None where the cores are not known."""
        if self.cores is None:
            return None
        estimates = []
        waits = self.fetch_cpu_ns < WAITING_FETCH_CPU_RATIO * self.fetch_ns
        for count in range(1, max(1, int(self.cores)) * (2 if waits else 1) + 1):
            step = self.step_ns(workers=count)
            ratio = 1 - self.busy_ns / step
            estimates.append(WorkerEstimate(workers=count, step_ns=step, data_ratio=ratio))
        return min(estimates, key=lambda estimate: (estimate.step_ns, estimate.workers))

    def _pace(self, workers: int, fetch_ratio: float) -> float:
        fetch = self.fetch_ns * fetch_ratio
        if not workers:
            return self.busy_ns + fetch
        cpu = self.fetch_cpu_ns * fetch_ratio + self.other_cpu_ns
        return max(self.busy_ns, fetch / workers, cpu / self.cores if self.cores else 0.0)
