"""Causes between ranks: gradient exchange, collectives, and waiting for the slowest rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stepscope import analysis, quantities, run, schema
from stepscope.diagnosis.causes.cause import CauseFinding, CauseInputs, times
from stepscope.diagnosis.causes.data_causes import name_dataset_function
from stepscope.diagnosis.shares.rank_waiting import (
    MIN_LEAD_RATIO,
    STRAGGLER_RATIO,
    RankWaits,
    compute_input_ratio,
)
from stepscope.diagnosis.verdict import Evidence, Stage, Suspect
from stepscope.quantities import duration, multiple

MIN_INPUT_RATIO = 1.2
"""Inputs larger than those of the other ranks by this factor explain a slow rank."""
MIN_EXPLAINED_RATIO = 0.5
"""A line explains at least this share of what a rank does longer."""
TIE = (
    "Ranks wait for each other in turn, for none of them clearly more than for the next: work per "
    "step varies between ranks."
)
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
                text=f"Gradients are exchanged {times(exchange_count)} per step; only the "
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
        if waits.lead_ratio < MIN_LEAD_RATIO:
            evidence = [Evidence(text=TIE, source="distributed")]
        else:
            evidence.insert(0, _describe_turns(waits.slowest_ratio, slow_rank))
    else:
        cause = "straggler"
    excess_ns = waits.excess_ns
    work = find_excess_work(slow_rank, peers, max(excess_ns, key=lambda phase: excess_ns[phase]))
    if cause != "straggler" or work is None:
        stage = Stage(name=name, detail="the other ranks wait for it", share_ratio=share)
        return CauseFinding(cause=cause, stages=[stage], evidence=evidence)
    stage = Stage(name=name, detail=work.text, share_ratio=share)
    site = f"{_name(slow_rank)}: {work.text}."
    return CauseFinding(
        cause=cause,
        site=site,
        stages=[stage],
        fixed_line=work.location,
        evidence=[*evidence, Evidence(text=site, source="steps")],
        evidence_kind="sampled",
    )


class ExcessWork(NamedTuple):
    """Work that a rank does for longer than its peers."""

    location: str
    """Line of the script, 'train.py:24'; '' where only the function is known."""
    text: str
    """'train.py:24 preprocess, 30 ms of 43 ms per step'."""


def find_excess_work(rank: run.Rank, peers: Sequence[run.Rank], phase: str) -> ExcessWork | None:
    """Find the line of the script that a rank runs for longer than its peers in a phase.

    None where no line explains half of the difference, or stacks were not sampled.
    """
    step_ns = _measure_mean_ns(rank, None)
    excess_ns = _measure_mean_ns(rank, phase) - _average(
        [_measure_mean_ns(peer, phase) for peer in peers]
    )
    times_of_peers = [_measure_lines(peer, phase) for peer in peers]
    largest = None
    for (location, function), time_ns in _measure_lines(rank, phase).items():
        peer_ns = _average([times.get((location, function), 0.0) for times in times_of_peers])
        line_excess_ns = time_ns - peer_ns
        if largest is None or line_excess_ns > largest[0]:
            largest = (line_excess_ns, time_ns, location, function)
    if largest is None or largest[0] < MIN_EXPLAINED_RATIO * excess_ns:
        creator = name_dataset_function(rank.making) if phase == "data_wait" else None
        return None if creator is None else ExcessWork("", f"{creator}, which creates its batches")
    _, time_ns, location, function = largest
    name = f"{location} {function}".rstrip()
    return ExcessWork(location, f"{name}, {duration(time_ns)} of {duration(step_ns)} per step")


def _measure_lines(rank: run.Rank, phase: str) -> dict[tuple[str, str], float]:
    """Measure the time per step of the lines of the script in a phase, by location and function."""
    work = rank.host_work
    if work is None:
        return {}
    phase_ns = _measure_mean_ns(rank, phase)
    return {
        (_locate(line), line.function.partition(".<locals>")[0]): line.ratio * phase_ns
        for line in work.lines
        if line.phase == phase and line.line
    }


def _locate(line: analysis.HostLine) -> str:
    return f"{line.file.rpartition('/')[2]}:{line.line}"


def _measure_mean_ns(rank: run.Rank, phase: str | None) -> float:
    """Measure the mean time of a phase per measured step; of the step itself for None."""
    steps = rank.steps
    times = steps.wall_ns if phase is None else steps.phase_ns[phase]
    return float(times[steps.measured()].mean())


def _average(values: Sequence[float]) -> float:
    return sum(values) / max(1, len(values))


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
        f"{'other work' if phase == 'other' else phase.replace('_', ' ')} than the other ranks.",
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
