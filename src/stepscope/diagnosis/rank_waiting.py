"""Communication between ranks, split into transfer and waiting for the slowest rank.

Ranks that exchange gradients run at the pace of the slowest: the others spend its extra work time
in the exchange. The last rank to arrive waits for no other, so in every step

    transfer = minimum over ranks of the time spent in communication
    wait     = time that a rank spends in communication beyond the transfer

Waiting does not belong to the network: it belongs to the work on which the slowest rank spends more
time than the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import PHASES, compute_exposed_exchange_ratio
from stepscope.diagnosis.verdict import Suspect
from stepscope.run import Rank
from stepscope.schema import DdpFact, ModelInputsFact

Float = NDArray[np.float64]

SUSPECT_OF_PHASE: dict[str, Suspect] = {
    "data_wait": "data_pipeline",
    "h2d": "data_pipeline",
    "forward": "model",
    "loss": "model",
    "backward": "model",
    "optimizer": "model",
    "checkpoint": "framework_overhead",
    "compilation": "framework_overhead",
    "garbage_collection": "framework_overhead",
    "other": "framework_overhead",
}
"""Suspect of each phase except communication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWaits:
    """Waiting of ranks for each other; shares of all communication, DDP's exchange included."""

    ratio: float = 0.0
    """Share that is waiting for the slowest rank."""
    by_suspect: dict[Suspect, float] = field(default_factory=dict)
    """Split of the waiting by the work of the slowest rank; sums to 1."""
    slowest_index: int = 0
    """Position of the rank that the others wait for most."""
    slowest_ratio: float = 1.0
    """Share of the steps in which that rank arrives last."""
    work_ns: tuple[float, ...] = ()
    """Work of each rank in the mean step: everything but communication."""


def measure_exchange_ns(rank: Rank) -> float:
    """Measure the exposed gradient exchange per step by DDP's timing; 0 without one."""
    accounts, backward = rank.facts(DdpFact), rank.steps.phase_ns["backward"]
    backward = backward[rank.steps.measured()]
    if not accounts or not len(backward):
        return 0.0
    return compute_exposed_exchange_ratio(accounts[-1]) * float(backward.mean())


def measure_rank_waits(ranks: Sequence[Rank]) -> RankWaits:
    """Measure the waiting of ranks for each other in the measured steps that all of them have."""
    if len(ranks) < 2:
        return RankWaits()
    step_count = min(len(rank.steps) for rank in ranks)
    is_shared = np.logical_and.reduce([rank.steps.measured()[:step_count] for rank in ranks])
    if not is_shared.any():
        return RankWaits()
    phases = {
        name: np.stack(
            [rank.steps.phase_ns[name][:step_count][is_shared] for rank in ranks]
        ).astype(float)
        for name in PHASES
    }
    exchange = np.array([[measure_exchange_ns(rank)] for rank in ranks])
    communication = phases.pop("communication") + exchange
    phases["backward"] = phases["backward"] - exchange
    total, waiting = communication.sum(), communication - communication.min(axis=0)
    work = sum(phases.values(), np.zeros_like(communication)).mean(axis=1)
    if not total or not waiting.any():
        return RankWaits(work_ns=tuple(work.tolist()))
    slowest = int(waiting.sum(axis=1).argmin())
    peers = [rank for rank in ranks if rank is not ranks[slowest]]
    input_ratio = compute_input_ratio(ranks[slowest], peers)
    return RankWaits(
        ratio=float(waiting.sum() / total),
        by_suspect=_split_waiting(phases, communication, input_ratio or 1.0),
        slowest_index=slowest,
        slowest_ratio=float((communication.argmin(axis=0) == slowest).mean()),
        work_ns=tuple(work.tolist()),
    )


def compute_input_ratio(slow_rank: Rank, peers: Sequence[Rank]) -> float | None:
    """Compute the size of a rank's model inputs relative to the mean of its peers; None where
    inputs were not recorded."""
    size = _measure_input_size(slow_rank)
    peer_sizes = [peer_size for rank in peers if (peer_size := _measure_input_size(rank))]
    return size * len(peer_sizes) / sum(peer_sizes) if size and peer_sizes else None


def _measure_input_size(rank: Rank) -> float:
    """Measure the mean number of elements in the inputs of a rank's models, over the distinct
    inputs of their first calls; 0 where inputs were not recorded."""
    sizes = [
        sum(math.prod(tensor.shape) for tensor in fact.inputs)
        for fact in rank.facts(ModelInputsFact)
    ]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _split_waiting(
    phases: dict[str, Float], communication: Float, input_ratio: float
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
    slowest = communication.argmin(axis=0)[None]
    peer_count = len(communication) - 1
    slowest_ns, peer_ns = {}, {}
    for name, times in phases.items():
        slowest_times = np.take_along_axis(times, slowest, axis=0)[0]
        slowest_ns[name] = float(slowest_times.sum())
        peer_ns[name] = float((times.sum(axis=0) - slowest_times).sum()) / peer_count
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
