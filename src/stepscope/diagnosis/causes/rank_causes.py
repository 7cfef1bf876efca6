"""Causes between ranks: gradient exchange, collectives, and waiting for the slowest rank."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope import analysis, quantities, run, schema
from stepscope.diagnosis.causes.cause import CauseFinding, CauseInputs
from stepscope.diagnosis.shares.rank_waiting import STRAGGLER_RATIO, RankWaits, compute_input_ratio
from stepscope.diagnosis.verdict import Evidence, Stage, Suspect
from stepscope.quantities import duration, multiple, number

MIN_INPUT_RATIO = 1.2
"""Inputs larger than those of the other ranks by this factor explain a slow rank."""
MIN_EXCHANGES = 1.5
"""From this number of exchanges per step on, most of them could wait for the last one."""


def find_communication_cause(inputs: CauseInputs) -> CauseFinding:
    """Find the cause of exposed communication: collectives of the script, or the gradient exchange
    of DDP."""
    ranks, shares = inputs.run.ranks, inputs.shares
    exchange_count = count_exchanges(ranks)
    cause = "gradient_exchange" if shares.exchange >= shares.collectives else "collectives"
    if cause == "gradient_exchange" and exchange_count >= MIN_EXCHANGES:
        cause = "gradient_accumulation"
    stages = [
        Stage(name=name, detail="", share_ratio=share)
        for name, share in (
            ("exposed gradient exchange", shares.exchange),
            ("communication in collectives of the script", shares.collectives),
        )
        if share >= 0.01
    ]
    evidence = [_describe_ranks(ranks)]
    stages.sort(key=lambda stage: -stage.share_ratio)
    reason = None
    if stages:
        name, share = stages[0].name, stages[0].share_ratio
        reason = f"{name[:1].upper()}{name[1:]} takes {quantities.percent(share)} of step time."
    if cause == "gradient_accumulation":
        evidence.insert(
            0,
            Evidence(
                text=f"Gradients are exchanged {number(exchange_count)} times per step; only the "
                "last exchange is needed.",
                value=exchange_count,
                unit="count",
                source="steps",
            ),
        )
        reason = evidence[0].text
    return CauseFinding(cause=cause, reason=reason, stages=stages, evidence=evidence)


def count_exchanges(ranks: Sequence[run.Rank]) -> float:
    """Count the gradient exchanges per step of the rank with the most."""
    accounts = [rank.facts(schema.DdpFact)[-1] for rank in ranks if rank.facts(schema.DdpFact)]
    return max(map(analysis.count_exchanges_per_step, accounts), default=1.0)


def find_slow_rank_cause(inputs: CauseInputs, suspect: Suspect) -> CauseFinding:
    """Find the reason why ranks wait for the slowest of them: it is always the same rank, or ranks
    with more data than the others."""
    waits, ranks = inputs.split.rank_waits, inputs.run.ranks
    slow_rank = ranks[waits.slowest_index]
    peers = [rank for rank in ranks if rank is not slow_rank]
    share = waits.add_excess(inputs.shares.rank_wait[suspect])
    slow_ns = waits.work_ns[waits.slowest_index]
    peer_ns = (sum(waits.work_ns) - slow_ns) / len(peers)
    evidence = [
        Evidence(
            text=f"{_name(slow_rank)} works {duration(slow_ns)} per step, the other ranks "
            f"{duration(peer_ns)} on average.",
            value=slow_ns - peer_ns,
            unit="ns",
            source="distributed",
        ),
        _describe_largest_excess(slow_rank, waits),
    ]
    input_ratio = compute_input_ratio(slow_rank, peers)
    name = slow_rank.name
    if input_ratio is not None and input_ratio >= MIN_INPUT_RATIO:
        cause = "uneven_ranks"
        evidence.insert(0, _describe_inputs(input_ratio, slow_rank))
    elif waits.slowest_ratio < STRAGGLER_RATIO:
        cause, name = "uneven_ranks", "ranks in turn"
        evidence.insert(0, _describe_turns(waits.slowest_ratio, slow_rank))
    else:
        cause = "straggler"
    stage = Stage(name=name, detail="the other ranks wait for it", share_ratio=share)
    return CauseFinding(cause=cause, stages=[stage], evidence=evidence)


def _describe_inputs(input_ratio: float, slow_rank: run.Rank) -> Evidence:
    return Evidence(
        text=f"The inputs of {slow_rank.name} are {multiple(input_ratio)} the size of the other "
        "ranks' inputs.",
        value=input_ratio,
        unit="ratio",
        source="distributed",
    )


def _describe_turns(slowest_ratio: float, slow_rank: run.Rank) -> Evidence:
    return Evidence(
        text=f"Ranks wait for each other in turn, for {slow_rank.name} in "
        f"{quantities.percent(slowest_ratio)} of the waiting: work per step varies between ranks.",
        value=slowest_ratio,
        unit="ratio",
        source="distributed",
    )


def _describe_largest_excess(slow_rank: run.Rank, waits: RankWaits) -> Evidence:
    """Describe the phase in which the slow rank exceeds the others most, without the waiting in
    backward passes."""
    excess_ns = waits.excess_ns
    phase = max(excess_ns, key=lambda phase: excess_ns[phase])
    return Evidence(
        text=f"{_name(slow_rank)} spends {duration(excess_ns[phase])} more per step in "
        f"{phase.replace('_', ' ')} than the other ranks.",
        value=excess_ns[phase],
        unit="ns",
        source="steps",
    )


def _describe_ranks(ranks: Sequence[run.Rank]) -> Evidence:
    is_timed = any(rank.facts(schema.DdpFact) for rank in ranks)
    source = " DistributedDataParallel timed exchange and overlap." if is_timed else ""
    return Evidence(
        text=f"The job has {quantities.count_of(len(ranks), 'rank')}.{source}",
        value=len(ranks),
        unit="count",
        source="steps",
    )


def _name(rank: run.Rank) -> str:
    return rank.name[:1].upper() + rank.name[1:]
