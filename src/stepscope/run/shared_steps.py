"""Steps that all ranks of a job have, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import (
    MIN_RECORDED_RATIO,
    PHASES,
    PackedSteps,
    compute_exposed_exchange_ratio,
    estimate_backward_compute,
)
from stepscope.intervals import Int
from stepscope.run.rank_exchange import read_exchange
from stepscope.run.run import Rank
from stepscope.schema import DdpFact

Float = NDArray[np.float64]


class SharedSteps:
    """Measured steps that all ranks have; arrays have the shape (ranks, steps).

    Of thousands of ranks, one array takes a hundred megabytes: those of single phases are made on
    each access.

    Args:
        ranks: at least one.
        number: number of each step.
        recorded_ns: exposed exchange of these steps by recorded collectives; None to estimate it by
            the timing of DDP.
    """

    def __init__(
        self, ranks: Sequence[Rank], number: Int, recorded_ns: Float | None = None
    ) -> None:
        self.number = number
        self._ranks = ranks
        self._recorded_ns = recorded_ns
        self._exchange_ratios = list(map(_read_exchange_ratio, ranks))
        self.wall_ns = self._stack(lambda steps: steps.wall_ns)
        self.communication_ns = self._stack(lambda steps: steps.phase_ns("communication"))
        """Exposed communication: collectives, and the part of backward passes that is not
        compute."""
        if self._has_exchange:
            self.communication_ns += self.exchange_ns

    @property
    def phase_ns(self) -> Mapping[str, Float]:
        """Own work by phase; the compute alone of backward passes."""
        return _OwnWork(self)

    @property
    def exchange_ns(self) -> Float:
        """Part of `communication_ns` inside backward passes."""
        backward = self._stack(lambda steps: steps.phase_ns("backward"))
        return backward - self._estimate_compute(backward)

    def own_work_ns(self, phase: str) -> Float:
        """Own work of one phase."""
        if not any(rank.table.steps.has_phase(phase) for rank in self._ranks):
            return np.broadcast_to(0.0, self.wall_ns.shape)
        times = self._stack(lambda steps: steps.phase_ns(phase))
        if phase == "backward" and self._has_exchange:
            return self._estimate_compute(times)
        return times

    @property
    def _has_exchange(self) -> bool:
        return self._recorded_ns is not None or any(
            ratio is not None for ratio in self._exchange_ratios
        )

    def _estimate_compute(self, backward_ns: Float) -> Float:
        """Estimate the compute in backward passes."""
        if self._recorded_ns is None:
            return estimate_backward_compute(backward_ns, self._exchange_ratios)
        return np.maximum(backward_ns - self._recorded_ns, 0.0)

    def _stack(self, select: Callable[[PackedSteps], Int]) -> Float:
        """Stack the values of the shared steps of all ranks."""
        values = np.empty((len(self._ranks), len(self.number)))
        for row, rank in enumerate(self._ranks):
            steps = rank.table.steps
            values[row] = select(steps)[self.number - steps.frame.first]
        return values


class _OwnWork(Mapping[str, Float]):
    """Own work by phase, without communication."""

    def __init__(self, steps: SharedSteps) -> None:
        self._steps = steps
        self._phases = [phase for phase in PHASES if phase != "communication"]

    def __getitem__(self, phase: str) -> Float:
        if phase not in self._phases:
            raise KeyError(phase)
        return self._steps.own_work_ns(phase)

    def __iter__(self) -> Iterator[str]:
        return iter(self._phases)

    def __len__(self) -> int:
        return len(self._phases)


def read_shared_steps(ranks: Sequence[Rank]) -> SharedSteps | None:
    """Read the measured steps that all ranks have; None without any.

    Where the recorder of collectives has the calls of all ranks, they tell the exposed exchange of
    each step, and steps without all calls are left out. Otherwise DDP's timing estimates it.
    """
    if not ranks:
        return None
    numbers = ranks[0].steps.number[ranks[0].steps.measured()]
    for rank in ranks[1:]:
        measured = rank.steps.number[rank.steps.measured()]
        if not np.array_equal(measured, numbers):
            numbers = np.intersect1d(numbers, measured, assume_unique=True)
    if not len(numbers):
        return None
    recorded_ns = _read_recorded_exchange(ranks, numbers)
    if recorded_ns is None:
        return SharedSteps(ranks, numbers)
    is_complete = ~np.isnan(recorded_ns).any(axis=0)
    return SharedSteps(ranks, numbers[is_complete], recorded_ns[:, is_complete])


def _read_recorded_exchange(ranks: Sequence[Rank], numbers: Int) -> Float | None:
    """Read the recorded exchange of steps, shape (ranks, steps); None if too few are complete."""
    recorded = [exchange for exchange in read_exchange(ranks) if exchange is not None]
    if len(recorded) < len(ranks):
        return None
    exchange = np.stack(
        [values[numbers - rank.steps.first] for values, rank in zip(recorded, ranks, strict=True)]
    )
    is_complete = ~np.isnan(exchange).any(axis=0)
    return exchange if is_complete.mean() >= MIN_RECORDED_RATIO else None


def _read_exchange_ratio(rank: Rank) -> float | None:
    """Read DDP's timing of the exposed exchange; None where it exchanged nothing."""
    accounts = rank.facts(DdpFact)
    return compute_exposed_exchange_ratio(accounts[-1]) if accounts else None
