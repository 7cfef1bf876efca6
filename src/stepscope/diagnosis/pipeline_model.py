"""Model of the input pipeline, and the step time that it predicts for changes."""

from __future__ import annotations

from dataclasses import dataclass

from stepscope.diagnosis.cpu_contention import measure_core_waits
from stepscope.run import Rank, Run

WAITING_FETCH_CPU_RATIO = 0.4
"""A fetch whose CPU time is less than this share of its duration mostly waits for I/O."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEstimate:
    """Predicted step for a number of workers."""

    workers: int
    step_ns: float
    data_ratio: float
    """Share of that step that is waiting for batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Input pipeline of one rank: mean times per measured step, in nanoseconds.

    The slowest of three sets the pace of n workers; without workers nothing overlaps:

        pace(n) = max(busy, fetch / n, (CPU time of fetching + CPU time of the rest) / cores)
        pace(0) = busy + fetch

    A change scales the waiting like the pace beyond `busy`. Where the pace does not explain the
    waiting (single batches were late), the waiting scales like fetch / n. Where workers compete
    with the training thread for cores, a shorter fetch returns the same share of the time that the
    training thread spent without a core.
    """

    workers: int
    cores: float | None
    """Cores available to this rank; None where they, or their use, are not known."""
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
    contended_ns: float = 0.0
    """Part of `busy_ns` in which the training thread had no core because workers had them."""

    @classmethod
    def measure(cls, run: Run, rank: Rank) -> Pipeline | None:
        """Measure the pipeline of a rank; None where batch creation was not recorded.

        Ranks of one node share its cores evenly.
        """
        making, contention = rank.making, run.contention
        if making is None:
            return None
        node_rank_count = sum(peer.process.node == rank.process.node for peer in run.ranks)
        is_measured = rank.steps.measured()
        wall_ns = float(rank.steps.wall_ns[is_measured].mean())
        late, core_waits = rank.late_batches, measure_core_waits(run.ranks)
        parts = core_waits.correct_waiting(late)
        wait_ns = float(rank.steps.phase_ns["data_wait"][is_measured].mean())
        wait_ns *= parts.total_ns / max(1, late.total_ns)
        busy_ns = wall_ns - wait_ns
        fetch_count = float(rank.steps.fetches[is_measured].clip(1).mean())
        fetch_ns = making.mean_ns * fetch_count
        fetch_cpu_ns = fetch_ns * min(1.0, making.cpu_ratio + run.workers_without_core(rank))
        cores, other_cpu_ns = None, 0.0
        if run.cores_available is not None and contention is not None:
            cores = run.cores_available / node_rank_count
            used_cpu_ns = contention.job_cores / node_rank_count * wall_ns
            other_cpu_ns = min(max(0.0, used_cpu_ns - fetch_cpu_ns), busy_ns * cores)
        scale = wait_ns / parts.total_ns if parts.total_ns else 0.0
        return cls(
            workers=rank.loader.num_workers if rank.loader is not None else 0,
            cores=cores,
            busy_ns=busy_ns,
            making_ns=parts.making_ns * scale,
            starting_ns=parts.starting_ns * scale,
            handing_over_ns=parts.handing_over_ns * scale,
            fetch_ns=fetch_ns,
            fetch_cpu_ns=fetch_cpu_ns,
            other_cpu_ns=other_cpu_ns,
            contended_ns=core_waits.outside_data_wait * busy_ns,
        )

    def predict_step_ns(
        self,
        *,
        workers: int | None = None,
        fetch_ratio: float = 1.0,
        starting_ratio: float = 1.0,
        handing_over_ratio: float = 1.0,
    ) -> float:
        """Predict the step for a number of workers and the remaining share of each part."""
        worker_count = self.workers if workers is None else workers
        beyond_busy_ns = self._compute_pace_ns(self.workers, 1.0) - self.busy_ns
        if beyond_busy_ns > 0:
            new_beyond_ns = self._compute_pace_ns(worker_count, fetch_ratio) - self.busy_ns
            making_ratio = new_beyond_ns / beyond_busy_ns
        else:
            making_ratio = fetch_ratio * max(1, self.workers) / max(1, worker_count)
        return (
            self.busy_ns
            - self.contended_ns * (1 - fetch_ratio)
            + self.making_ns * min(1.0, making_ratio)
            + self.starting_ns * starting_ratio
            + self.handing_over_ns * handing_over_ratio
        )

    def predict_steady_ns(self) -> float:
        """Predict the step without the waiting that the pace does not explain."""
        pace_ns = self._compute_pace_ns(self.workers, 1.0)
        return min(pace_ns + self.starting_ns + self.handing_over_ns, self.predict_step_ns())

    def find_best_workers(self) -> WorkerEstimate | None:
        """Find the smallest number of workers with the shortest step, up to the number of cores, or
        twice that where workers mostly wait; None where the cores are not known."""
        if self.cores is None:
            return None
        estimates = []
        is_waiting = self.fetch_cpu_ns < WAITING_FETCH_CPU_RATIO * self.fetch_ns
        max_workers = max(1, int(self.cores)) * (2 if is_waiting else 1)
        for workers in range(1, max_workers + 1):
            step_ns = self.predict_step_ns(workers=workers)
            data_ratio = 1 - self.busy_ns / step_ns
            estimate = WorkerEstimate(workers=workers, step_ns=step_ns, data_ratio=data_ratio)
            estimates.append(estimate)
        return min(estimates, key=lambda estimate: (estimate.step_ns, estimate.workers))

    def _compute_pace_ns(self, workers: int, fetch_ratio: float) -> float:
        fetch_ns = self.fetch_ns * fetch_ratio
        if not workers:
            return self.busy_ns + fetch_ns
        cpu_ns = self.fetch_cpu_ns * fetch_ratio + self.other_cpu_ns
        return max(self.busy_ns, fetch_ns / workers, cpu_ns / self.cores if self.cores else 0.0)
