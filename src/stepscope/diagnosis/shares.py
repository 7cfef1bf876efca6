"""How much of the step each suspect owns.

Every share is of the wall time of the measured steps of all ranks (`verdict.STEP_SHARE`), and
the four suspects together own all of it:

    data pipeline    data_wait + h2d, and what the time between phases prepares of batches
    communication    collectives of the script, and the gradient exchange that DDP reports as
                     not hidden behind its backward pass
    overhead         the rest of the time between phases, checkpoints with all that the functions
                     which write them do, and the part of the compute phases in which no sizeable
                     operator runs
    model            what is left of the compute phases
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.host_work import HostCause
from stepscope.analysis.steps import COMPUTE_PHASES, PHASES
from stepscope.diagnosis.signals import Rank
from stepscope.diagnosis.verdict import Suspect

MOST_ROWS = 100_000
"""Of a matrix of steps and phases; more say nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportions:
    """How measured phases are split between suspects; the same for every step."""

    compute_overhead: float
    """Share of the compute phases in which no sizeable operator runs; 0 without a window."""
    exposed_exchange: float
    """Share of the backward pass that is gradient exchange which nothing hides."""
    inline_data: float
    """Share of the time between phases that prepares batches."""
    inline_saving: float
    """Share of the time between phases that functions spend around writing checkpoints."""
    has_window: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of the step."""

    phases: dict[str, float]
    suspects: dict[Suspect, float]
    overhead_parts: dict[str, float]
    """checkpoint, between_phases, inside_compute."""
    inline_data: float


def proportions(ranks: Sequence[Rank]) -> Proportions:
    """From the ranks that know: a window on any rank speaks for all."""
    profiles = [p for rank in ranks if (p := rank.compute_profile) is not None]
    return Proportions(
        compute_overhead=profiles[0].overhead_ratio if profiles else 0.0,
        exposed_exchange=_exposed_exchange(ranks),
        inline_data=share_of_host_cause(ranks, "data_preparation"),
        inline_saving=share_of_host_cause(ranks, "checkpoint"),
        has_window=bool(profiles),
    )


def share_of_host_cause(ranks: Sequence[Rank], cause: HostCause) -> float:
    """Share of the time between phases that goes to one cause, over all ranks that were sampled."""
    works = [w for rank in ranks if (w := rank.host_work) is not None]
    samples = max(1, sum(work.sample_count for work in works))
    return sum(work.causes.get(cause, 0.0) * work.sample_count for work in works) / samples


def phase_matrix(ranks: Sequence[Rank]) -> NDArray[np.int64]:
    """Nanoseconds by step and phase, measured steps of all ranks one after another.

    Where there are more than `MOST_ROWS`, each row is the sum of as many consecutive steps as
    it takes.
    """
    measured = [np.flatnonzero(rank.steps.measured()) for rank in ranks]
    together = -(-sum(map(len, measured)) // MOST_ROWS)
    rows = [np.empty((0, len(PHASES)), dtype=np.int64)]
    for rank, steps in zip(ranks, measured, strict=True):
        if len(steps):
            first = np.arange(0, len(steps), together)
            columns = [rank.steps.phase_ns[phase][steps] for phase in PHASES]
            rows.append(np.stack([np.add.reduceat(each, first) for each in columns], axis=1))
    return np.concatenate(rows)


def shares_of(phase_ns: NDArray[np.int64], split: Proportions) -> Shares:
    """Shares over the given steps (rows of `phase_matrix`)."""
    totals = phase_ns.sum(axis=0).astype(np.float64)
    phase = dict(zip(PHASES, (totals / totals.sum()).tolist(), strict=True))
    exchange = phase["backward"] * split.exposed_exchange
    compute = sum(phase[name] for name in COMPUTE_PHASES)
    # Waiting for the exchange is time without operators too; it is not overhead a second time.
    inside = max(0.0, compute * split.compute_overhead - exchange)
    compute -= exchange
    inline = phase["other"] * split.inline_data
    saving = phase["other"] * split.inline_saving
    between = max(0.0, phase["other"] - inline - saving)
    parts = {
        "checkpoint": phase["checkpoint"] + saving,
        "between_phases": between,
        "inside_compute": inside,
    }
    return Shares(
        phases=phase,
        suspects={
            "data_pipeline": phase["data_wait"] + phase["h2d"] + inline,
            "model": compute - inside,
            "communication": phase["communication"] + exchange,
            "framework_overhead": sum(parts.values()),
        },
        overhead_parts=parts,
        inline_data=inline,
    )


def _exposed_exchange(ranks: Sequence[Rank]) -> float:
    """Exposed gradient exchange over backward time, from DDP's account; the mean over ranks.

    DDP's exchange time minus its overlap with the backward computation is what the backward
    pass waited for. The account is of the iterations that DDP samples.
    """
    ratios = []
    for rank in ranks:
        accounts = rank.facts("ddp")
        backward = rank.steps.phase_ns["backward"][rank.steps.measured()]
        if not accounts or not len(backward) or not backward.sum():
            continue
        last = accounts[-1]
        exposed = max(0, last["backward_comm_ns"] - last["backward_overlap_ns"])
        ratios.append(min(1.0, exposed / float(backward.mean())))
    return float(np.mean(ratios)) if ratios else 0.0
