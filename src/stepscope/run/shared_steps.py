"""Steps that all ranks of a job have, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    MIN_RECORDED_RATIO,
    PHASES,
    compute_exposed_exchange_ratio,
    estimate_backward_compute,
)
from stepscope.intervals import Int
from stepscope.run.rank_exchange import read_exchange
from stepscope.run.run import Rank
from stepscope.schema import DdpFact

Float = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSteps:
    """Measured steps that all ranks have; arrays have the shape (ranks, steps)."""

    number: Int
    """Number of each step."""
    wall_ns: Float
    communication_ns: Float
    """Exposed communication: collectives, and the part of backward passes that is not compute."""
    phase_ns: dict[str, Float]
    """Own work by phase; the compute alone of backward passes."""
    exchange_ns: Float
    """Part of `communication_ns` inside backward passes."""


def read_shared_steps(ranks: Sequence[Rank]) -> SharedSteps | None:
    """Read the measured steps that all ranks have; None without any.

    Where the recorder of collectives has the calls of all ranks, they tell the exposed exchange of
    each step, and steps without all calls are left out. Otherwise DDP's timing estimates it.
    """
    if not ranks:
        return None
    numbers = ranks[0].steps.number
    for rank in ranks[1:]:
        numbers = np.intersect1d(numbers, rank.steps.number, assume_unique=True)
    rows = [numbers - rank.steps.first for rank in ranks]
    is_measured = np.logical_and.reduce(
        [rank.steps.measured()[row] for rank, row in zip(ranks, rows, strict=True)]
    )
    if not len(numbers) or not is_measured.any():
        return None
    numbers, rows = numbers[is_measured], [row[is_measured] for row in rows]
    recorded = _read_recorded_exchange(ranks, rows)
    if recorded is not None:
        is_complete = ~np.isnan(recorded).any(axis=0)
        numbers, rows = numbers[is_complete], [row[is_complete] for row in rows]
        recorded = recorded[:, is_complete]
    phases = {
        name: np.stack(
            [rank.steps.phase_ns[name][row] for rank, row in zip(ranks, rows, strict=True)]
        ).astype(float)
        for name in PHASES
    }
    backward = phases["backward"]
    if recorded is None:
        compute = estimate_backward_compute(backward, list(map(_read_exchange_ratio, ranks)))
    else:
        compute = np.maximum(backward - recorded, 0.0)
    exchange = backward - compute
    communication = phases.pop("communication") + exchange
    phases["backward"] = compute
    return SharedSteps(
        number=numbers,
        wall_ns=np.stack(
            [rank.steps.wall_ns[row] for rank, row in zip(ranks, rows, strict=True)]
        ).astype(float),
        communication_ns=communication,
        phase_ns=phases,
        exchange_ns=exchange,
    )


def _read_recorded_exchange(ranks: Sequence[Rank], rows: Sequence[Int]) -> Float | None:
    """Read the recorded exchange of steps, shape (ranks, steps); None if too few are complete."""
    recorded = [exchange for exchange in read_exchange(ranks) if exchange is not None]
    if len(recorded) < len(ranks):
        return None
    exchange = np.stack([values[row] for values, row in zip(recorded, rows, strict=True)])
    is_complete = ~np.isnan(exchange).any(axis=0)
    return exchange if is_complete.mean() >= MIN_RECORDED_RATIO else None


def _read_exchange_ratio(rank: Rank) -> float | None:
    """Read DDP's timing of the exposed exchange; None where it exchanged nothing."""
    accounts = rank.facts(DdpFact)
    return compute_exposed_exchange_ratio(accounts[-1]) if accounts else None
