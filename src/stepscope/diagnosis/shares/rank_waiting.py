"""Communication between ranks, split into transfer and waiting for the slowest rank.

Ranks that exchange gradients run at the pace of the slowest: the others spend its extra work time
in the exchange. The last rank to arrive waits for no other, so in every step

    transfer = minimum over ranks of the exposed communication (`measure_exposed_communication`)
    wait     = exposed communication of a rank beyond the transfer

Waiting does not belong to the network: it belongs to the work on which the slowest rank spends more
time than the others.

If R ranks wait w on average for the same one, its own excess over them is w R / (R - 1): it makes
the steps of all ranks that much longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, intervals, run, schema
from stepscope.diagnosis.verdict import Suspect

Float = NDArray[np.float64]

SUSPECT_OF_PHASE: dict[str, Suspect] = {
    "data_wait": "data_pipeline",
    "h2d": "data_pipeline",
    "forward": "model",
    "loss": "model",
    "backward": "model",
    "optimizer": "model",
    "dispatch": "framework_overhead",
    "execution": "model",
    "checkpoint": "framework_overhead",
    "compilation": "framework_overhead",
    "garbage_collection": "framework_overhead",
    "other": "framework_overhead",
}
"""Suspect of each phase except communication."""
MIN_LEAD_RATIO = 0.1
"""Ranks that are waited for about alike, within this share of the waiting, are a tie: none of them
is named."""
TIE_RATIO = 0.05
"""Ranks that come last within this share of the longest waiting of a step come last together."""
STRAGGLER_RATIO = 0.75
"""The rank that this share of the waiting is for is the slow one."""


class RankWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting of ranks for each other; shares of all communication, DDP's exchange included."""

    ratio: float = 0.0
    """Share that is waiting for the slowest rank of each step."""
    by_suspect: dict[Suspect, float] = msgspec.field(default_factory=dict)
    """Split of the waiting by the work of the slowest rank; sums to 1."""
    slowest_index: int = 0
    """Position of the rank that the others wait for most."""
    slowest_ratio: float = 1.0
    """Share of the waiting that is for that rank."""
    lead_ratio: float = 1.0
    """By how much that exceeds the share of the next rank."""
    work_ns: tuple[float, ...] = ()
    """Work of each rank in the mean step: everything but communication."""
    excess_ns: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Time by which the slowest rank exceeds the mean of the others in the mean step, by phase
    without communication."""
    exchange_ns: tuple[float, ...] = ()
    """Exposed gradient exchange of each rank in the mean step; empty without shared steps."""

    def add_excess(self, waiting: float) -> float:
        """Add the slow rank's own excess to the mean waiting of all ranks for it.

        Where ranks are late in turn, none has an excess over the run.
        """
        return add_excess(waiting, len(self.work_ns), self.slowest_ratio)


def add_excess(waiting: float, rank_count: int, slowest_ratio: float) -> float:
    """Add the excess of the slowest rank, if it is always the same one, to the mean waiting of all
    ranks for it.

    Args:
        waiting: mean of all ranks.
        rank_count: number of ranks.
        slowest_ratio: share of the waiting that is for that rank.
    """
    if rank_count < 2 or slowest_ratio < STRAGGLER_RATIO:
        return waiting
    return waiting * rank_count / (rank_count - 1)


def measure_rank_waits(ranks: Sequence[run.Rank]) -> RankWaits:
    """Measure the exposed communication of the ranks, and the waiting for each other in it, in the
    measured steps that all of them have."""
    steps = run.read_shared_steps(ranks)
    if steps is None:
        return RankWaits()
    phases, communication = steps.phase_ns, steps.communication_ns
    exchange_ns = tuple(steps.exchange_ns.mean(axis=1).tolist())
    total, waiting = communication.sum(), communication - communication.min(axis=0)
    work_ns = tuple(sum(phases.values(), np.zeros_like(communication)).mean(axis=1).tolist())
    if len(ranks) < 2 or total <= 0 or not waiting.any():
        return RankWaits(work_ns=work_ns, exchange_ns=exchange_ns)
    waited_for = divide_waiting(communication)
    slowest = int(waited_for.argmax())
    next_ratio = float(np.sort(waited_for)[-2] / waited_for.sum())
    peers = [rank for rank in ranks if rank is not ranks[slowest]]
    input_ratio = compute_input_ratio(ranks[slowest], peers)
    return RankWaits(
        ratio=min(1.0, float(waiting.sum() / total)),
        by_suspect=_split_waiting(phases, communication, input_ratio or 1.0),
        slowest_index=slowest,
        slowest_ratio=float(waited_for[slowest] / waited_for.sum()),
        lead_ratio=float(waited_for[slowest] / waited_for.sum()) - next_ratio,
        work_ns=work_ns,
        excess_ns={
            name: float(times[slowest].mean() - np.delete(times, slowest, axis=0).mean())
            for name, times in phases.items()
        },
        exchange_ns=exchange_ns,
    )


def divide_waiting(communication: Float) -> Float:
    """Divide the waiting of all ranks in each step evenly between those that come last, and sum it
    over the steps.

    Args:
        communication: times by rank and step.
    """
    waiting = communication - communication.min(axis=0)
    is_last = waiting <= TIE_RATIO * waiting.max(axis=0)
    waited_for: Float = (is_last / is_last.sum(axis=0) * waiting.sum(axis=0)).sum(axis=1)
    return waited_for


def compute_input_ratio(slow_rank: run.Rank, peers: Sequence[run.Rank]) -> float | None:
    """Compute the size of a rank's model inputs relative to the mean of its peers; None where
    inputs were not recorded."""
    size = _measure_input_size(slow_rank)
    peer_sizes = [peer_size for rank in peers if (peer_size := _measure_input_size(rank))]
    return size * len(peer_sizes) / sum(peer_sizes) if size and peer_sizes else None


def _measure_input_size(rank: run.Rank) -> float:
    """Measure the mean number of elements in the inputs of a rank's models, over the forward passes
    of its steps, or else over the distinct inputs of their first calls; 0 where inputs were not
    recorded."""
    passes = rank.spans.of("forward")
    extents = intervals.Intervals(rank.steps.start, rank.steps.end)
    in_steps = intervals.contains(extents, passes.start)
    passes = passes.take(passes.has_flag(analysis.FLAG_SIZED) & in_steps)
    if len(passes):
        return float((passes.value & ((1 << analysis.SIZE_BITS) - 1)).mean())
    sizes = [
        sum(math.prod(tensor.shape) for tensor in fact.inputs)
        for fact in rank.facts(schema.ModelInputsFact)
    ]
    return sum(sizes) / len(sizes) if sizes else 0.0


def measure_slowest_rank(
    parts: Mapping[str, Float], communication: Float
) -> tuple[dict[str, float], dict[str, float]]:
    """Measure the parts of the slowest rank of each step and the mean of the other ranks, summed
    over steps.

    Args:
        parts: times by rank and step, of each part of the step.
        communication: times by rank and step.
    """
    slowest = communication.argmin(axis=0)[None]
    peer_count = len(communication) - 1
    slowest_ns, peer_ns = {}, {}
    for name, times in parts.items():
        slowest_times = np.take_along_axis(times, slowest, axis=0)[0]
        slowest_ns[name] = float(slowest_times.sum())
        peer_ns[name] = float((times.sum(axis=0) - slowest_times).sum()) / peer_count
    return slowest_ns, peer_ns


def _split_waiting(
    phases: Mapping[str, Float], communication: Float, input_ratio: float
) -> dict[Suspect, float]:
    """Split the waiting by the phases in which the slowest rank of each step exceeds the mean of
    the others.

    A rank that computes more slowly, or more, does so in its forward passes too, or its inputs are
    larger. Forward passes grow less than the inputs, because a larger part of them is cost per
    operator that does not depend on size. Backward time beyond that growth is not compute: the rank
    sends its gradients in it.

    Args:
        phases: times by rank and step.
        communication: times by rank and step.
        input_ratio: size of the inputs of the slowest rank relative to the others.
    """
    slowest_ns, peer_ns = measure_slowest_rank(phases, communication)
    excess: dict[Suspect, float] = {}
    for name, suspect in SUSPECT_OF_PHASE.items():
        excess[suspect] = excess.get(suspect, 0.0) + slowest_ns[name] - peer_ns[name]
    if peer_ns["forward"] > 0:
        slowdown = max(1.0, input_ratio, slowest_ns["forward"] / peer_ns["forward"])
        sending_ns = max(0.0, slowest_ns["backward"] - slowdown * peer_ns["backward"])
        excess["model"] -= sending_ns
        excess["communication"] = sending_ns
    positive = {suspect: max(0.0, ns) for suspect, ns in excess.items()}
    total = sum(positive.values())
    return {suspect: ns / total for suspect, ns in positive.items() if ns} if total else {}
