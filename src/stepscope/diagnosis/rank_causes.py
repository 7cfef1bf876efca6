"""What goes on between ranks: exchange, and waiting for the slowest of them."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.analysis import count_exchanges_per_step
from stepscope.diagnosis.cause import Case, Finding
from stepscope.diagnosis.rank_waiting import larger_inputs
from stepscope.diagnosis.verdict import Evidence, Stage, Suspect
from stepscope.run import Rank

ALWAYS_RATIO = 0.75
"""A rank that is the last in fewer of the steps than this is not slow itself."""
LARGER_RATIO = 1.2
"""Inputs of the slowest rank that are larger by this explain that it is the slowest."""
SEVERAL = 1.5
"""More exchanges in a step than this, and most of them could wait for the last one."""


def communication_cause(case: Case) -> Finding:
    """Explicit collectives, or the gradient exchange of DDP."""
    ranks, shares = case.run.ranks, case.shares
    several = exchanges_of(ranks)
    cause = "gradient_exchange" if shares.exchange >= shares.collectives else "collectives"
    if cause == "gradient_exchange" and several >= SEVERAL:
        cause = "gradient_accumulation"
    stages = [
        Stage(name=name, detail="", share_ratio=share)
        for name, share in (
            ("gradient exchange that nothing hides", shares.exchange),
            ("collectives called by the script", shares.collectives),
        )
        if share >= 0.01
    ]
    evidence = [_exchange_evidence(ranks)]
    if cause == "gradient_accumulation":
        evidence.insert(
            0,
            Evidence(
                text=f"gradients are exchanged {several:.3g} times a step, and only the last time "
                "is needed",
                value=several,
                unit="count",
                source="steps",
            ),
        )
    return Finding(
        cause=cause,
        stages=stages,
        evidence=evidence,
    )


def exchanges_of(ranks: Sequence[Rank]) -> float:
    """Exchanges of gradients in a step, of the rank with most."""
    accounts = [rank.facts("ddp")[-1] for rank in ranks if rank.facts("ddp")]
    return max(map(count_exchanges_per_step, accounts), default=1.0)


def slow_rank(case: Case, suspect: Suspect) -> Finding:
    """The ranks wait for the slowest of them: always the same one, or one that gets more data."""
    waiting, ranks = case.split.waiting, case.run.ranks
    slow = ranks[waiting.slowest]
    others = [rank for rank in ranks if rank is not slow]
    share = case.shares.held_up[suspect]
    its = waiting.own_ns[waiting.slowest]
    rest = (sum(waiting.own_ns) - its) / len(others)
    evidence = [
        Evidence(
            text=f"{slow.name} needs {its / 1e6:.3g} ms a step for its own work, the other ranks "
            f"{rest / 1e6:.3g} ms on average",
            value=its - rest,
            unit="ns",
            source="distributed",
        ),
        _largest_excess(slow, others),
    ]
    detail = "the others wait for it"
    larger = larger_inputs(slow, others)
    if larger is not None and larger >= LARGER_RATIO:
        evidence.insert(0, _larger(larger, slow))
        return _found("uneven_ranks", share, slow.name, detail, evidence)
    if waiting.slowest_ratio < ALWAYS_RATIO:
        evidence.insert(0, _in_turn(waiting.slowest_ratio, slow))
        return _found("uneven_ranks", share, "the ranks in turn", detail, evidence)
    return _found("straggler", share, slow.name, detail, evidence)


def _found(cause: str, share: float, name: str, detail: str, evidence: list[Evidence]) -> Finding:
    stage = Stage(name=name, detail=detail, share_ratio=share)
    return Finding(cause=cause, stages=[stage], evidence=evidence)


def _larger(ratio: float, slow: Rank) -> Evidence:
    return Evidence(
        text=f"the inputs of {slow.name} are {ratio:.2g} times as large as those of the others",
        value=ratio,
        unit="ratio",
        source="distributed",
    )


def _in_turn(ratio: float, slow: Rank) -> Evidence:
    return Evidence(
        text=f"the ranks are the last in turn, {slow.name} in {ratio:.0%} of the steps: their "
        "steps have unlike work",
        value=ratio,
        unit="ratio",
        source="distributed",
    )


def _largest_excess(slow: Rank, others: Sequence[Rank]) -> Evidence:
    """The phase that the slow rank spends most beyond the others in; what it waits in for others
    is none of them."""
    excess = {
        name: _mean_ns(slow, name) - sum(_mean_ns(rank, name) for rank in others) / len(others)
        for name in slow.steps.phase_ns
        if name not in {"communication", "backward"}
    }
    largest = max(excess, key=lambda name: excess[name])
    return Evidence(
        text=f"it spends {excess[largest] / 1e6:.3g} ms a step more than they in "
        f"{largest.replace('_', ' ')}",
        value=excess[largest],
        unit="ns",
        source="steps",
    )


def _mean_ns(rank: Rank, phase: str) -> float:
    return float(rank.steps.phase_ns[phase][rank.steps.measured()].mean())


def _exchange_evidence(ranks: Sequence[Rank]) -> Evidence:
    measured = any(rank.facts("ddp") for rank in ranks)
    said = "; DistributedDataParallel itself measured the exchange and what hides it"
    return Evidence(
        text=f"{len(ranks)} ranks{said if measured else ''}",
        value=len(ranks),
        unit="count",
        source="steps",
    )
