"""How much of the step each suspect owns.

Every share is of the wall time of the measured steps of all ranks (`verdict.STEP_SHARE`), and
the four suspects together own all of it:

    data pipeline    data_wait + h2d, and what the time between phases prepares of batches
    communication    collectives of the script, and the gradient exchange that DDP reports as
                     not hidden behind its backward pass
    overhead         the rest of the time between phases, checkpoints with all that the functions
                     which write them do, compilations, garbage collections, and the part of the
                     compute phases in which no sizeable operator runs
    model            what is left of the compute phases

Time for which the training thread could run but had no core, because the loader's workers had them
all, is taken from whatever it was busy with and given to the data pipeline; and where others had
them while a batch lay ready, that is overhead (`crowding`). What ranks
wait for the slowest of them is taken from communication and given to what that rank is
busy with meanwhile (`ranks_waiting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import COMPUTE_PHASES, PHASES, HostCause
from stepscope.diagnosis.cpu_contention import Crowding, crowding
from stepscope.diagnosis.rank_waiting import RanksWaiting, exchange_ns, ranks_waiting
from stepscope.diagnosis.verdict import Suspect
from stepscope.intervals import Intervals, overlap
from stepscope.run import Rank

MOST_ROWS = 100_000
"""Of a matrix of steps and phases; more say nothing more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proportions:
    """How measured phases are split between suspects; the same for every step."""

    compute_overhead: float
    """Share of the compute phases, without waiting for the exchange of gradients, in which no
    sizeable operator runs; 0 without a window."""
    exposed_exchange: float
    """Share of the backward pass that is gradient exchange which nothing hides."""
    inline_data: float
    """Share of the time between phases that prepares batches."""
    inline_saving: float
    """Share of the time between phases that functions spend around writing checkpoints."""
    evaluation: float
    """Evaluation over evaluation and steps together, in the measured part of the run."""
    waiting: RanksWaiting
    has_window: bool
    crowding: Crowding
    late_for_others: float
    """Share of `data_wait` in which a batch lay ready, but others than workers had the cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of the step."""

    phases: dict[str, float]
    suspects: dict[Suspect, float]
    overhead_parts: dict[str, float]
    """checkpoint, compilation, garbage_collection, between_phases, inside_compute, and waiting for
    a slow rank."""
    inline_data: float
    collectives: float
    """Collectives of the script, without waiting for the slowest rank."""
    exchange: float
    """Gradient exchange that nothing hides, without waiting for the slowest rank."""
    held_up: dict[Suspect, float] = field(default_factory=dict)
    """Waiting for the slowest rank, by what that one was busy with: part of `suspects`."""
    late_for_others: float = 0.0
    """A batch lay ready, but others than workers had the cores: none of the job's doing, and no
    suspect's."""
    crowded: float = 0.0
    """Time outside of `data_wait` without a core because workers had them all: part of the data
    pipeline's."""


def proportions(ranks: Sequence[Rank]) -> Proportions:
    """From the ranks that know: a window on any rank speaks for all."""
    profiled = [rank for rank in ranks if rank.compute_profile is not None]
    without_core = crowding(ranks)
    handing = sum(rank.late_batches.handing_over_ns for rank in ranks)
    waited = sum(rank.late_batches.total_ns for rank in ranks)
    return Proportions(
        compute_overhead=_compute_overhead(profiled[0]) if profiled else 0.0,
        exposed_exchange=_exposed_exchange(ranks),
        inline_data=share_of_host_cause(ranks, "data_preparation"),
        inline_saving=share_of_host_cause(ranks, "checkpoint"),
        evaluation=evaluation_ratio(ranks),
        waiting=ranks_waiting(ranks),
        has_window=bool(profiled),
        crowding=without_core,
        late_for_others=without_core.receiving_others * handing / max(1, waited),
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
    measured = dict(zip(PHASES, (totals / totals.sum()).tolist(), strict=True))
    own = 1 - split.crowding.beside
    phase = {
        name: share if name == "data_wait" else share * own for name, share in measured.items()
    }
    crowded = (1 - measured["data_wait"]) * split.crowding.beside
    for_others = phase["data_wait"] * split.late_for_others
    exchange = phase["backward"] * split.exposed_exchange
    compute = sum(phase[name] for name in COMPUTE_PHASES)
    compute -= exchange
    inside = compute * split.compute_overhead
    inline = phase["other"] * split.inline_data
    saving = phase["other"] * split.inline_saving
    waiting = (phase["communication"] + exchange) * split.waiting.ratio
    held_up = {suspect: waiting * ratio for suspect, ratio in split.waiting.held_up_by.items()}
    left = 1 - split.waiting.ratio if held_up else 1.0
    parts = {
        "checkpoint": phase["checkpoint"] + saving,
        "compilation": phase["compilation"],
        "garbage_collection": phase["garbage_collection"],
        "between_phases": max(0.0, phase["other"] - inline - saving),
        "inside_compute": inside,
        "slow_rank": held_up.get("framework_overhead", 0.0),
    }
    return Shares(
        phases=measured,
        suspects={
            "data_pipeline": phase["data_wait"]
            - for_others
            + crowded
            + phase["h2d"]
            + inline
            + held_up.get("data_pipeline", 0.0),
            "model": compute - inside + held_up.get("model", 0.0),
            "communication": (phase["communication"] + exchange) * left
            + held_up.get("communication", 0.0),
            "framework_overhead": sum(parts.values()),
        },
        overhead_parts=parts,
        inline_data=inline,
        collectives=phase["communication"] * left,
        exchange=exchange * left,
        held_up=held_up,
        crowded=crowded,
        late_for_others=for_others,
    )


def _compute_overhead(rank: Rank) -> float:
    """Waiting for the exchange is time without operators too; it is not overhead a second time."""
    profile, measured = rank.compute_profile, rank.steps.measured()
    compute = sum(float(rank.steps.phase_ns[name][measured].mean()) for name in COMPUTE_PHASES)
    exchange = exchange_ns(rank)
    if profile is None or compute <= exchange:
        return 0.0
    return max(0.0, profile.overhead_ratio * compute - exchange) / (compute - exchange)


def _exposed_exchange(ranks: Sequence[Rank]) -> float:
    """Exposed gradient exchange over backward time, of the ranks that know it together."""
    knowing = [rank for rank in ranks if rank.facts("ddp")]
    backward = sum(
        float(rank.steps.phase_ns["backward"][rank.steps.measured()].mean()) for rank in knowing
    )
    return sum(map(exchange_ns, knowing)) / backward if backward else 0.0


def evaluation_ratio(ranks: Sequence[Rank]) -> float:
    """Evaluation over evaluation and steps together, in the measured part of the run."""
    evaluated = trained = 0
    for rank in ranks:
        measured = np.flatnonzero(rank.steps.measured())
        if len(measured):
            extent = Intervals(rank.steps.start[measured[:1]], rank.steps.end[-1:])
            evaluated += int(overlap(extent, rank.steps.evaluation).sum())
            trained += int(rank.steps.wall_ns[measured[0] :].sum())
    return evaluated / (evaluated + trained) if evaluated else 0.0
