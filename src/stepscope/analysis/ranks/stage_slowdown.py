"""Slowdown of a job with pipeline and data parallelism by its stragglers, by replaying its steps.

    time of an operation   its duration; of one that waits for others, the transfer: end - latest
                           start in its group
    ideal time             mean over the operations of its kind: all data ranks, stages and steps;
                           of communication the median, because transfers have long tails
    replay                 every operation starts when those that it depends on have ended, without
                           the delays of launching it (`stage_graph`)

    S      mean replayed step / ideal step (all operations take their ideal times)
    S_x    the same with the recorded times of x alone, the other operations ideal
    M      (T - T_x) / (T - ideal step): what replacing times gains, as a share of what replacing
           all of them by ideal ones does. T is the mean replayed step
    M_W    the slowest 3 % of the workers, at least one, ideal; by min(S_data rank, S_stage)
    M_S    the last stage ideal

"Understanding Stragglers in Large Model Training Using What-if Analysis", sections 3 to 5
(https://arxiv.org/abs/2505.05713). M_S of a job whose microbatches differ contains what even
microbatches gain, so three more gains tell the two apart:

    even stage           computations of the slowest stage scaled to the mean of all stages
    even inputs          computations at the mean of their worker and kind, over microbatches, steps
    communication        transfers ideal
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.ranks import stage_operations
from stepscope.analysis.ranks.stage_graph import StageGraph, build_graph

COMPUTATIONS = (stage_operations.FORWARD, stage_operations.BACKWARD)
SLOWEST_PERCENT = 3
"""Percentage of the workers that M_W replaces, rounded up to whole workers."""
MIN_EXCESS_RATIO = 1e-9
"""Replayed steps that exceed the ideal step by less have nothing to gain."""
MIN_KNOWN_RATIO = 0.9
"""The latest start of a group is unknown if the starts of more of its members are."""
MAX_FILLED_RATIO = 0.2
"""Above this share of missing times there is no result."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """One worker and its slowdown."""

    data_rank: int
    stage: int
    rank: int
    """Global rank."""
    slowdown: float
    """min(S_data rank, S_stage)."""


class StageSlowdown(msgspec.Struct, frozen=True, kw_only=True):
    """Slowdown of a job, and whose it is; durations have one entry per step, nanoseconds."""

    step_ns: stage_operations.Float
    """Recorded steps."""
    replayed_ns: stage_operations.Float
    ideal_ns: float
    """Ideal step."""
    by_stage: list[float]
    """S by stage."""
    by_data_rank: list[float]
    """S by data rank, in their order."""
    by_kind: Mapping[str, float]
    """S by kind of operation."""
    workers: list[Worker]
    """The slowest first."""
    slowest_count: int
    """Workers that M_W replaces."""
    without_workers_ns: stage_operations.Float
    """Replayed steps with the slowest workers ideal."""
    without_last_stage_ns: stage_operations.Float
    even_stage: int
    """The slowest stage: the one with the largest S."""
    even_stage_ns: stage_operations.Float
    even_inputs_ns: stage_operations.Float
    without_communication_ns: stage_operations.Float
    correlation: float | None
    """Correlation of the forward and backward times of the same microbatch and worker, over
    microbatches and steps: inputs of different sizes vary both alike."""
    filled_ratio: float
    """Share of the times that the trace does not have; the average of the worker's other
    operations of the kind stands for them."""
    unpaired_count: int
    """Transfers of a step without a counterpart in the trace."""

    @property
    def slowdown(self) -> float:
        """S."""
        return float(self.replayed_ns.mean()) / self.ideal_ns

    @property
    def worker_gain(self) -> float | None:
        """M_W; None where there is nothing to gain."""
        return self.gain(self.without_workers_ns)

    @property
    def stage_gain(self) -> float | None:
        """M_S; None where there is nothing to gain."""
        return self.gain(self.without_last_stage_ns)

    def gain(
        self, changed_ns: stage_operations.Float, steps: intervals.Int | None = None
    ) -> float | None:
        """Compute what a change gains; None where there is nothing to gain.

        Args:
            changed_ns: replayed steps with the change.
            steps: indices of the steps to use; all by default.
        """
        rows = np.arange(len(self.replayed_ns)) if steps is None else steps
        replayed = float(self.replayed_ns[rows].mean())
        excess = replayed - self.ideal_ns
        if excess <= MIN_EXCESS_RATIO * self.ideal_ns:
            return None
        return (replayed - float(changed_ns[rows].mean())) / excess


def measure_slowdown(operations: stage_operations.AlignedOperations) -> StageSlowdown:
    """Measure the slowdown of a job by its stragglers.

    Raises:
        StageOperationsError: dependencies form a circle, or too many times are missing.
    """
    graph = build_graph(operations)
    times, filled_ratio = measure_times(operations, graph)
    if filled_ratio > MAX_FILLED_RATIO:
        raise stage_operations.StageOperationsError(
            "more than a fifth of the times of its operations are missing"
        )
    ideal = compute_ideal_times(operations, graph, times)
    ideal_ns = float(replay(graph, ideal[:, :1, :1])[0])
    if ideal_ns <= 0:
        raise stage_operations.StageOperationsError("its operations take no time")
    kinds = np.array(operations.kind)

    def slow_down(rows: NDArray[np.bool_]) -> float:
        return float(replay(graph, _mix(rows, times, ideal)).mean()) / ideal_ns

    stages = [slow_down(operations.stage == stage) for stage in range(operations.stage_count)]
    data_ranks = [
        _replay_data_rank(graph, times, ideal, index) / ideal_ns
        for index in range(len(operations.data_ranks))
    ]
    workers = _rank_workers(operations, stages, data_ranks)
    slowest_count = -(-len(workers) * SLOWEST_PERCENT // 100)
    without_workers = times.copy()
    for worker in workers[:slowest_count]:
        rows = operations.stage == worker.stage
        column = int(np.searchsorted(operations.data_ranks, worker.data_rank))
        without_workers[rows, :, column] = ideal[rows, :, column]
    last = operations.stage == operations.stage_count - 1
    slowest_stage = int(np.argmax(stages))
    return StageSlowdown(
        step_ns=np.nanmax(operations.end, axis=(0, 2)) - np.nanmin(operations.start, axis=(0, 2)),
        replayed_ns=replay(graph, times),
        ideal_ns=ideal_ns,
        by_stage=stages,
        by_data_rank=data_ranks,
        by_kind={kind: slow_down(kinds == kind) for kind in sorted(set(operations.kind))},
        workers=workers,
        slowest_count=slowest_count,
        without_workers_ns=replay(graph, without_workers),
        without_last_stage_ns=replay(graph, _mix(last, ideal, times)),
        even_stage=slowest_stage,
        even_stage_ns=replay(graph, _even_stage(operations, times, slowest_stage)),
        even_inputs_ns=replay(graph, _even_inputs(operations, times)),
        without_communication_ns=replay(
            graph, _mix(np.isin(kinds, list(stage_operations.COMMUNICATION)), ideal, times)
        ),
        correlation=_correlate_passes(operations, times),
        filled_ratio=filled_ratio,
        unpaired_count=graph.unpaired_count,
    )


def _mix(
    rows: NDArray[np.bool_], times: stage_operations.Float, other_times: stage_operations.Float
) -> stage_operations.Float:
    """Take the times of some operations from one array and the rest from another."""
    return np.where(rows[:, None, None], times, other_times)


def _even_stage(
    operations: stage_operations.AlignedOperations, times: stage_operations.Float, stage: int
) -> stage_operations.Float:
    """Scale the computations of a stage to the mean of all stages."""
    kinds, scaled = np.array(operations.kind), times.copy()
    for kind in COMPUTATIONS:
        rows = (kinds == kind) & (operations.stage == stage)
        mean = times[rows].mean()
        if mean > 0:
            scaled[rows] *= times[kinds == kind].mean() / mean
    return scaled


def _even_inputs(
    operations: stage_operations.AlignedOperations, times: stage_operations.Float
) -> stage_operations.Float:
    """Replace computations by the mean of their worker and kind."""
    kinds, evened = np.array(operations.kind), times.copy()
    for kind in COMPUTATIONS:
        for stage in range(operations.stage_count):
            rows = (kinds == kind) & (operations.stage == stage)
            evened[rows] = times[rows].mean(axis=(0, 1))
    return evened


def replay(graph: StageGraph, times: stage_operations.Float) -> stage_operations.Float:
    """Replay steps.

    Args:
        graph: dependencies.
        times: time of each operation, shape (operations, steps, data ranks).

    Returns:
        Duration of each step.
    """
    end = np.zeros_like(times)
    for group in graph.groups:
        latest = np.zeros(times.shape[1:])
        for member in group.members:
            for source in graph.dependencies[member]:
                np.maximum(latest, end[source], out=latest)
        if group.synced:
            latest[:] = latest.max(axis=1, keepdims=True)
        for member in group.members:
            end[member] = latest + times[member]
    duration: stage_operations.Float = end.max(axis=(0, 2))
    return duration


def measure_times(
    operations: stage_operations.AlignedOperations, graph: StageGraph
) -> tuple[stage_operations.Float, float]:
    """Measure the time of each operation: duration or transfer.

    Returns:
        Times of the shape (operations, steps, data ranks), and the share that was filled in.
    """
    times = operations.end - operations.start
    start = _estimate_missing_starts(operations, graph)
    for group in graph.groups:
        if not group.communicates:
            continue
        members = list(group.members)
        axes = (0, 2) if group.synced else (0,)
        known_ratio = (~np.isnan(start[members])).mean(axis=axes, keepdims=True)
        latest = np.fmax.reduce(start[members], axis=axes, keepdims=True)
        latest = np.where(known_ratio > MIN_KNOWN_RATIO, latest, np.nan)
        if members[0] in graph.ready:
            latest = np.maximum(latest, operations.end[graph.ready[members[0]]])
        times[members] = np.maximum(operations.end[members] - latest, 0.0)
    missing = np.isnan(times)
    if missing.any():
        _fill(operations, times)
    return times, float(missing.mean())


def _estimate_missing_starts(
    operations: stage_operations.AlignedOperations, graph: StageGraph
) -> stage_operations.Float:
    """Return the starts; the end of all that an operation follows stands for a missing one."""
    start = operations.start.copy()
    for index in np.flatnonzero(np.isnan(start).any(axis=(1, 2))).tolist():
        sources = graph.dependencies[index]
        if sources:
            after = operations.end[sources].max(axis=0)
            start[index] = np.where(np.isnan(start[index]), after, start[index])
    return start


def _fill(operations: stage_operations.AlignedOperations, times: stage_operations.Float) -> None:
    """Fill missing times with the center of the worker's other operations of the kind, else with
    that of its stage, else with that of the kind."""
    kinds = np.array(operations.kind)
    recorded = times.copy()
    for kind in dict.fromkeys(operations.kind):
        of_kind = recorded[kinds == kind]
        for stage in range(operations.stage_count):
            rows = np.flatnonzero((kinds == kind) & (operations.stage == stage))
            block = recorded[rows]
            if np.isnan(block).any():
                for axes, values in (((0, 1), block), ((0, 1, 2), block), ((0, 1, 2), of_kind)):
                    times[rows] = np.where(
                        np.isnan(times[rows]), _center(kind, values, axes), times[rows]
                    )
    np.nan_to_num(times, copy=False, nan=0.0)


def _center(
    kind: str, times: stage_operations.Float, axes: tuple[int, ...] | None = None
) -> stage_operations.Float:
    """Compute the median of communication, the mean of other kinds; NaN where none is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # an empty slice is NaN
        average = np.nanmedian if kind in stage_operations.COMMUNICATION else np.nanmean
        return np.asarray(average(times, axis=axes))


def compute_ideal_times(
    operations: stage_operations.AlignedOperations, graph: StageGraph, times: stage_operations.Float
) -> stage_operations.Float:
    """Compute the ideal time of each operation, same shape as `times`."""
    ideal = times.copy()
    kinds = np.array(operations.kind)
    used = np.array([index not in graph.unused for index in range(len(kinds))])
    for kind in set(operations.kind):
        rows = (kinds == kind) & used
        if rows.any():
            ideal[rows] = _center(kind, times[rows])
    # A transfer of nothing stays as short as it is.
    for index in graph.unused:
        ideal[index] = times[index].mean()
    return ideal


def _replay_data_rank(
    graph: StageGraph, times: stage_operations.Float, ideal: stage_operations.Float, index: int
) -> float:
    """Replay with the recorded times of one data rank; the others are alike, so one stands for
    them."""
    pair = np.stack([times[:, :, index], ideal[:, :, index]], axis=2)
    return float(replay(graph, pair if times.shape[2] > 1 else pair[:, :, :1]).mean())


def _rank_workers(
    operations: stage_operations.AlignedOperations, stages: list[float], data_ranks: list[float]
) -> list[Worker]:
    workers = [
        Worker(
            data_rank=int(operations.data_ranks[data]),
            stage=stage,
            rank=int(operations.rank[data, stage]),
            slowdown=min(data_ranks[data], stages[stage]),
        )
        for data, stage in np.argwhere(operations.rank >= -1).tolist()
    ]
    return sorted(workers, key=lambda worker: (-worker.slowdown, worker.rank))


def _correlate_passes(
    operations: stage_operations.AlignedOperations, times: stage_operations.Float
) -> float | None:
    """Correlate forward and backward times of the same microbatch around their worker's means."""
    partners: dict[tuple[int, int], dict[str, int]] = {}
    for index in operations.find(stage_operations.FORWARD, stage_operations.BACKWARD):
        key = (int(operations.model_chunk[index]), int(operations.microbatch[index]))
        partners.setdefault(key, {})[operations.kind[index]] = index
    pairs = [
        (both[stage_operations.FORWARD], both[stage_operations.BACKWARD])
        for (_, microbatch), both in partners.items()
        if microbatch >= 0 and len(both) == 2
    ]
    if not pairs:
        return None
    deviations = []
    for column in range(2):
        rows = [pair[column] for pair in pairs]
        values = times[rows]
        stage = operations.stage[rows]
        for number in range(operations.stage_count):
            same = stage == number
            if same.any():
                values[same] -= values[same].mean(axis=(0, 1))
        deviations.append(values.ravel())
    forward, backward = deviations
    scale = float(np.sqrt((forward**2).sum() * (backward**2).sum()))
    return float((forward * backward).sum() / scale) if scale > 0 else None
