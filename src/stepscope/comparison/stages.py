"""What waiting for data and the time between phases consist of, in nanoseconds of the whole run.

Only the proportions count: whoever shows them scales them to what the part takes per step.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.analysis import HOST_CAUSE_LABELS
from stepscope.run import Rank, Run

Amounts = dict[str, float]
"""By name."""
MAKING = "making batches"
STARTING = "starting the loader"
HANDING_OVER = "handing over"
UNSAMPLED = "not sampled"


def data_stages(run: Run) -> Amounts | None:
    """Waiting for batches by the stages of the input pipeline (`analysis.input_pipeline`), over all
    ranks; None where there was waiting that no loader accounts for."""
    amounts: Amounts = {}
    for rank in run.ranks:
        waiting, making = rank.late_batches, rank.making
        if not waiting.total_ns and _phase_ns(rank, "data_wait"):
            return None
        stages = making.stages if making is not None else []
        for stage in stages:
            _add(amounts, stage.name, waiting.making_ns * stage.ratio)
        _add(amounts, MAKING, waiting.making_ns * max(0.0, 1 - sum(s.ratio for s in stages)))
        _add(amounts, STARTING, waiting.starting_ns)
        _add(amounts, HANDING_OVER, waiting.handing_over_ns)
    return amounts


def host_causes(run: Run) -> Amounts | None:
    """The time between phases by its causes (`analysis.host_work`), over all ranks; None where no
    rank was sampled in it."""
    if not _any_sampled(run.ranks):
        return None
    amounts: Amounts = {}
    for rank in run.ranks:
        between_ns = _phase_ns(rank, "other")
        work = rank.host_work
        causes = work.causes if work is not None else {}
        for cause, ratio in causes.items():
            _add(amounts, HOST_CAUSE_LABELS[cause], between_ns * ratio)
        _add(amounts, UNSAMPLED, between_ns * max(0.0, 1 - sum(causes.values())))
    return amounts


def _any_sampled(ranks: Sequence[Rank]) -> bool:
    return any(rank.host_work is not None for rank in ranks)


def _phase_ns(rank: Rank, phase: str) -> float:
    return float(rank.steps.phase_ns[phase][rank.steps.measured()].sum())


def _add(amounts: Amounts, name: str, ns: float) -> None:
    """Add what is more than rounding."""
    if ns >= 1:
        amounts[name] = amounts.get(name, 0.0) + ns
