"""What the ranks of a job exchange, and how much of that is waiting for the slowest of them.

Ranks that exchange gradients go at the pace of the slowest: the others spend in the exchange what
it needs longer for its own work. The last to arrive waits for nobody, so that in every step

    transfer = the least time that any rank spends in communication
    waiting  = what a rank spends there beyond that

Waiting is no fault of the network: it belongs to what the slowest rank is busy with meanwhile,
beyond what the others need for the same.
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
"""Whose work a phase is, but for communication."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksWaiting:
    """How ranks wait for each other; shares of all communication, exchange by DDP included."""

    ratio: float = 0.0
    """Share that is waiting for the slowest rank."""
    held_up_by: dict[Suspect, float] = field(default_factory=dict)
    """What the slowest rank did meanwhile; sums to 1."""
    slowest: int = 0
    """Position of the rank that the others wait for most."""
    slowest_ratio: float = 1.0
    """Share of the steps in which it is the last."""
    own_ns: tuple[float, ...] = ()
    """By rank, its own work in the mean step: all but communication."""


def exchange_ns(rank: Rank) -> float:
    """Gradient exchange per step that nothing hides, from DDP's account; 0 without one."""
    accounts, backward = rank.facts("ddp"), rank.steps.phase_ns["backward"]
    backward = backward[rank.steps.measured()]
    if not accounts or not len(backward):
        return 0.0
    return compute_exposed_exchange_ratio(accounts[-1]) * float(backward.mean())


def ranks_waiting(ranks: Sequence[Rank]) -> RanksWaiting:
    """How the ranks wait for each other in the measured steps that all of them have."""
    if len(ranks) < 2:
        return RanksWaiting()
    count = min(len(rank.steps) for rank in ranks)
    shared = np.logical_and.reduce([rank.steps.measured()[:count] for rank in ranks])
    if not shared.any():
        return RanksWaiting()
    phases = {
        name: np.stack([rank.steps.phase_ns[name][:count][shared] for rank in ranks]).astype(float)
        for name in PHASES
    }
    exchange = np.array([[exchange_ns(rank)] for rank in ranks])
    communication = phases.pop("communication") + exchange
    phases["backward"] = phases["backward"] - exchange
    total, waiting = communication.sum(), communication - communication.min(axis=0)
    own = sum(phases.values(), np.zeros_like(communication)).mean(axis=1)
    if not total or not waiting.any():
        return RanksWaiting(own_ns=tuple(own.tolist()))
    slowest = int(waiting.sum(axis=1).argmin())
    larger = larger_inputs(ranks[slowest], [rank for rank in ranks if rank is not ranks[slowest]])
    return RanksWaiting(
        ratio=float(waiting.sum() / total),
        held_up_by=_held_up_by(phases, communication, larger or 1.0),
        slowest=slowest,
        slowest_ratio=float((communication.argmin(axis=0) == slowest).mean()),
        own_ns=tuple(own.tolist()),
    )


def larger_inputs(slow: Rank, others: Sequence[Rank]) -> float | None:
    """How many times as large the inputs of a rank's models are as those of the others on average;
    None where they were not recorded."""
    its, theirs = _elements(slow), [n for rank in others if (n := _elements(rank))]
    return its * len(theirs) / sum(theirs) if its and theirs else None


def _elements(rank: Rank) -> float:
    """Mean number of elements that went into the models of a rank, over the unlike inputs of
    their first calls; 0 where that was not recorded."""
    sizes = [
        sum(math.prod(each["shape"]) for each in fact["inputs"])
        for fact in rank.facts("model_inputs")
    ]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _held_up_by(
    phases: dict[str, Float], communication: Float, larger: float
) -> dict[Suspect, float]:
    """What the slowest rank of each step does longer than the mean of the others.

    A rank that computes more slowly, or more, does so in its forward passes as well, or its inputs
    are larger: forward passes grow less than those, because what each operator costs whatever its
    size is a larger part of them. What its backward passes take beyond that is no computing:
    there it sends its gradients.

    Args:
        phases: by rank and step.
        communication: by rank and step.
        larger: how many times as large the inputs of the slowest rank are.
    """
    slowest = communication.argmin(axis=0)[None]
    others = len(communication) - 1
    its_ns, their_ns = {}, {}
    for name, times in phases.items():
        its = np.take_along_axis(times, slowest, axis=0)[0]
        its_ns[name] = float(its.sum())
        their_ns[name] = float((times.sum(axis=0) - its).sum()) / others
    excess: dict[Suspect, float] = {}
    for name, suspect in SUSPECT_OF_PHASE.items():
        excess[suspect] = excess.get(suspect, 0.0) + its_ns[name] - their_ns[name]
    if their_ns["forward"] > 0:
        slower = max(1.0, larger, its_ns["forward"] / their_ns["forward"])
        sending = max(0.0, its_ns["backward"] - slower * their_ns["backward"])
        excess["model"] -= sending
        excess["communication"] = sending
    positive = {suspect: max(0.0, ns) for suspect, ns in excess.items()}
    total = sum(positive.values())
    return {s: ns / total for s, ns in positive.items() if ns} if total else {}
