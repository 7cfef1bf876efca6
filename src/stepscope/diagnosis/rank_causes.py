"""What goes on between ranks: exchange, and waiting for the slowest of them."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.analysis.exchange import exchanges_per_step
from stepscope.diagnosis.finding import Case, Finding
from stepscope.diagnosis.signals import Rank
from stepscope.diagnosis.verdict import SUSPECT_NAMES, Evidence, Stage, Suspect

SEVERAL = 1.5
"""More exchanges in a step than this, and most of them could wait for the last one."""


def communication_cause(case: Case) -> Finding:
    """Explicit collectives, or the gradient exchange of DDP."""
    ranks, shares = case.signals.ranks, case.shares
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
        share=max(shares.exchange, shares.collectives),
        stages=stages,
        evidence=evidence,
    )


def exchanges_of(ranks: Sequence[Rank]) -> float:
    """Exchanges of gradients in a step, of the rank with most."""
    accounts = [rank.facts("ddp")[-1] for rank in ranks if rank.facts("ddp")]
    return max(map(exchanges_per_step, accounts), default=1.0)


def straggler(case: Case, suspect: Suspect) -> Finding:
    """The other ranks wait for one, for what it is busy with."""
    waiting, ranks = case.split.waiting, case.signals.ranks
    slow, own = ranks[waiting.slowest], waiting.own_ns
    share = case.shares.held_up[suspect]
    others = [ns for place, ns in enumerate(own) if place != waiting.slowest]
    rest = sum(others) / len(others)
    return Finding(
        cause="straggler",
        share=share,
        stages=[
            Stage(
                name=slow.name,
                detail=f"the others wait for it, and it for {SUSPECT_NAMES[suspect]}"
                if suspect == "data_pipeline"
                else "the others wait for it",
                share_ratio=share,
            )
        ],
        evidence=[
            Evidence(
                text=f"{slow.name} needs {own[waiting.slowest] / 1e6:.3g} ms a step for its own "
                f"work, the other ranks {rest / 1e6:.3g} ms on average",
                value=own[waiting.slowest] - rest,
                unit="ns",
                source="distributed",
            ),
            _largest_excess(slow, [rank for rank in ranks if rank is not slow]),
        ],
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
