"""Steps that all ranks of a job have, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    PHASES,
    compute_exposed_exchange_ratio,
    estimate_backward_compute,
)
from stepscope.intervals import Int
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
    """Read the measured steps that all ranks have; None without any."""
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
    rows = [row[is_measured] for row in rows]
    phases = {
        name: np.stack(
            [rank.steps.phase_ns[name][row] for rank, row in zip(ranks, rows, strict=True)]
        ).astype(float)
        for name in PHASES
    }
    compute = estimate_backward_compute(phases["backward"], list(map(_read_exchange_ratio, ranks)))
    exchange = phases["backward"] - compute
    communication = phases.pop("communication") + exchange
    phases["backward"] = compute
    return SharedSteps(
        number=numbers[is_measured],
        wall_ns=np.stack(
            [rank.steps.wall_ns[row] for rank, row in zip(ranks, rows, strict=True)]
        ).astype(float),
        communication_ns=communication,
        phase_ns=phases,
        exchange_ns=exchange,
    )


def _read_exchange_ratio(rank: Rank) -> float | None:
    """Read DDP's timing of the exposed exchange; None where it exchanged nothing."""
    accounts = rank.facts(DdpFact)
    return compute_exposed_exchange_ratio(accounts[-1]) if accounts else None
