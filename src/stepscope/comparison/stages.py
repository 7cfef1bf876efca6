"""Parts of the waiting for data and of the time between phases, in nanoseconds of the whole run.

Only the proportions count: callers scale them to the part's time per step.
"""

from __future__ import annotations

from stepscope.analysis import HOST_CAUSE_LABELS
from stepscope.run import Rank, Run

Amounts = dict[str, float]
"""Nanoseconds by name."""
MAKING = "making batches"
STARTING = "starting the loader"
HANDING_OVER = "handing over"
UNSAMPLED = "not sampled"


def split_data_wait(run: Run) -> Amounts | None:
    """Split the waiting for batches by the stages of the input pipeline, over all ranks; None where
    a rank waited for data without a DataLoader."""
    amounts: Amounts = {}
    for rank in run.ranks:
        waiting, making = rank.late_batches, rank.making
        if not waiting.total_ns and _sum_phase_ns(rank, "data_wait"):
            return None
        stages = making.stages if making is not None else []
        for stage in stages:
            _add_amount(amounts, stage.name, waiting.making_ns * stage.ratio)
        unsampled_ratio = max(0.0, 1 - sum(stage.ratio for stage in stages))
        _add_amount(amounts, MAKING, waiting.making_ns * unsampled_ratio)
        _add_amount(amounts, STARTING, waiting.starting_ns)
        _add_amount(amounts, HANDING_OVER, waiting.handing_over_ns)
    return amounts


def split_host_time(run: Run) -> Amounts | None:
    """Split the time between phases by its causes, over all ranks; None where no rank was
    sampled."""
    if not any(work.sample_count for rank in run.ranks if (work := rank.host_work) is not None):
        return None
    amounts: Amounts = {}
    for rank in run.ranks:
        between_ns = _sum_phase_ns(rank, "other")
        work = rank.host_work
        causes = work.causes if work is not None else {}
        for cause, ratio in causes.items():
            _add_amount(amounts, HOST_CAUSE_LABELS[cause], between_ns * ratio)
        unsampled_ratio = max(0.0, 1 - sum(causes.values()))
        _add_amount(amounts, UNSAMPLED, between_ns * unsampled_ratio)
    return amounts


def _sum_phase_ns(rank: Rank, phase: str) -> float:
    return float(rank.steps.phase_ns[phase][rank.steps.measured()].sum())


def _add_amount(amounts: Amounts, name: str, ns: float) -> None:
    """Add an amount that is more than a rounding error."""
    if ns >= 1:
        amounts[name] = amounts.get(name, 0.0) + ns
