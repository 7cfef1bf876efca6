"""Ranks that make the others wait: when, by how much, why, in chains or by a slow link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, intervals, quantities, rules, schema
from stepscope.diagnosis.causes.rank_causes import (
    MIN_EXPLAINED_RATIO,
    MIN_INPUT_RATIO,
    find_excess_work,
)
from stepscope.diagnosis.causes.rank_work import MeanWork
from stepscope.diagnosis.shares.rank_waiting import compute_input_ratio
from stepscope.run import (
    DIMENSIONS,
    NodeClocks,
    Rank,
    RankMesh,
    RecordedCollectives,
    Run,
    SharedSteps,
    align_node_clocks,
    has_stage_operations,
    measure_ranks,
    read_group_mesh,
    read_recorded_collectives,
    read_shared_steps,
)

COMPUTE_PHASES = (*analysis.COMPUTE_PHASES, "dispatch", "execution")
"""Phases of a job in which it computes, or calls compiled functions."""
MIN_CLOCK_RATIO = 0.9
"""A GPU whose clock is below this share of the others' is slowed down."""
PHASE_WORDS = {
    "data_wait": "slow data loading",
    "h2d": "slow copies to the device",
    "forward": "slow forward passes",
    "loss": "a slow loss",
    "backward": "slow backward passes",
    "optimizer": "slow optimizer steps",
    "dispatch": "slow calls of compiled functions",
    "execution": "slow execution of compiled functions",
    "checkpoint": "checkpoints",
    "compilation": "compilation",
    "garbage_collection": "garbage collection",
    "other": "other work of its training thread",
}
"""What a rank does that is slow in a phase."""
CAUSE_NOT_FOUND = "cause not found"
Persistence = Literal["persistent", "since", "transient"]


class ComparedRank(NamedTuple):
    """Rank of a job or of traces."""

    name: str
    node: str
    """Empty for a trace that does not state it."""
    number: int | None


class LateReport(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks side by side."""

    ranks: list[ComparedRank]
    step_numbers: intervals.Int
    """Numbers of the steps that all ranks have."""
    late: analysis.LateRanks
    culprits: list[int]
    """Ranks (their indices) with an episode of lateness, the most costly first."""
    causes: dict[int, str]
    """What each of these does meanwhile; without those whose cause was not found."""
    inherited: dict[int, int]
    """Late ranks that one of these made late in an earlier collective, with that rank."""
    mesh: RankMesh | None
    """Coordinates of the ranks, as given or from their process groups."""
    work: MeanWork
    sentence: str


def report_late_ranks(run: Run, mesh: RankMesh | None = None) -> LateReport | str:
    """Report the ranks that are late, or explain why that is not known.

    Args:
        run: the run.
        mesh: coordinates of the ranks; by default those of their process groups.
    """
    ranks = run.ranks
    if not ranks and has_stage_operations(run):
        return (
            "the run has operations of pipeline stages, which `stepscope diagnose RUN` replays to "
            "name a slow worker or stage"
        )
    if len(ranks) < 2:
        return "lateness is a comparison of ranks, and steps of fewer than two ranks were recorded"
    steps = read_shared_steps(ranks)
    if steps is None:
        return "the ranks have no measured step in common"
    if not steps.communication_ns.any():
        return (
            "no communication between the ranks was recorded: neither collectives that the script "
            "calls nor the gradient exchange of DistributedDataParallel"
        )
    late = analysis.find_late_ranks(steps.communication_ns, steps.wall_ns, steps.phase_ns)
    costs = [rank.episode_ns for rank in late.ranks]
    culprits = [int(i) for i in np.argsort(costs, kind="stable")[::-1] if costs[i] > 0]
    mesh = mesh or read_group_mesh(run)
    min_lateness_ns = analysis.MIN_LATE_RATIO * float(np.median(steps.wall_ns))
    inherited = find_inherited_lateness(run, ranks, culprits, min_lateness_ns)
    culprits = [index for index in culprits if index not in inherited]
    work = MeanWork.measure(steps.wall_ns, steps.phase_ns, COMPUTE_PHASES)
    causes = _find_causes(run, work, culprits, late) if culprits else {}
    compared = [ComparedRank(one.name, one.process.node, one.process.rank) for one in ranks]
    return LateReport(
        ranks=compared,
        step_numbers=steps.number,
        late=late,
        culprits=culprits,
        causes={index: cause.kind + cause.detail for index, cause in causes.items()},
        inherited=inherited,
        mesh=mesh,
        work=work,
        sentence=" ".join(
            filter(
                None,
                (
                    write_lateness(compared, steps.number, late, culprits, causes, mesh),
                    _describe_inherited(compared, culprits, inherited),
                    report_slow_link(run, steps),
                ),
            )
        ),
    )


def classify_persistence(rank: analysis.LateRank, step_count: int) -> Persistence | None:
    """Classify lateness: persistent, persistent since a step, or transient; None without."""
    if not rank.episodes:
        return None
    covered = sum(episode.last - episode.first + 1 for episode in rank.episodes)
    if covered >= analysis.PERSISTENT_RATIO * step_count:
        return "persistent"
    return "since" if rank.episodes[-1].last >= 0.95 * step_count - 1 else "transient"


# --- cause ---------------------------------------------------------------------------------------


class LateCause(NamedTuple):
    """Activity of a late rank while the others wait."""

    kind: str
    """Words that all ranks with this cause have in common."""
    detail: str = ""
    """Figures of the rank, which follow these words."""


class _Condition(msgspec.Struct, frozen=True, kw_only=True):
    """Condition of the machine under one rank; None where it was not recorded."""

    core_delay_ns: dict[str, float] | None
    """Time without a core per measured step, by phase."""
    clock_megahertz: float | None
    """Clock of its GPU."""


def _measure_condition(rank: Rank) -> _Condition:
    delays = rank.core_delays
    count = int(rank.steps.measured().sum()) if delays is not None else 0
    local_rank, metrics = rank.process.local_rank, rank.run.metrics.get(rank.process.node)
    return _Condition(
        core_delay_ns={phase: delay_ns / count for phase, delay_ns in delays.phase_ns.items()}
        if delays is not None and count
        else None,
        clock_megahertz=metrics.mean("gpu_sm_clock_megahertz", str(local_rank))
        if local_rank is not None and metrics is not None
        else None,
    )


def _find_causes(
    run: Run, work: MeanWork, culprits: Sequence[int], late: analysis.LateRanks
) -> dict[int, LateCause]:
    """Find what late ranks do while the others wait; without those of which that is not found."""
    if any(rank.facts(schema.StackSamplerFact) for rank in run.ranks):
        measure_ranks(run, ["core_delays"])
    conditions = [_measure_condition(rank) for rank in run.ranks]
    contention = [
        None
        if condition.core_delay_ns is None
        else _divide_work(
            {phase: float(times[i]) for phase, times in work.work_ns.items()},
            condition.core_delay_ns,
        )
        for i, condition in enumerate(conditions)
    ]
    return {
        index: cause
        for index in culprits
        if (cause := _find_cause(run.ranks, conditions, index, late.ranks[index], contention))
    }


def _find_cause(
    ranks: Sequence[Rank],
    conditions: Sequence[_Condition],
    index: int,
    late: analysis.LateRank,
    contention: Sequence[_Contention | None],
) -> LateCause | None:
    """Find what a late rank does while the others wait; None where nothing explains half of it."""
    enough_ns = MIN_EXPLAINED_RATIO * late.lateness_ns
    excess = late.excess_ns
    peers = [rank for number, rank in enumerate(ranks) if number != index]
    input_ratio = compute_input_ratio(ranks[index], peers)
    compute_ns = sum(excess[phase] for phase in ("forward", "loss", "backward", "execution"))
    if input_ratio is not None and input_ratio >= MIN_INPUT_RATIO and compute_ns >= enough_ns:
        return LateCause(
            "larger inputs", f", {quantities.multiple(input_ratio)} those of the other ranks"
        )
    condition = conditions[index]
    peer_conditions = [peer for number, peer in enumerate(conditions) if number != index]
    clock = condition.clock_megahertz
    peer_clocks = [peer.clock_megahertz for peer in peer_conditions if peer.clock_megahertz]
    if clock is not None and peer_clocks and compute_ns >= enough_ns:
        clock_ratio = clock / float(np.median(peer_clocks))
        if clock_ratio <= MIN_CLOCK_RATIO:
            detail = f", {quantities.percent(clock_ratio)} of that of the other ranks"
            return LateCause("a slow GPU clock", detail)
    contention_ns = _measure_contention(contention, index)
    if contention_ns is not None and contention_ns >= enough_ns:
        return LateCause("no free core", f" for {quantities.duration(contention_ns)} of a step")
    phase = max(excess, key=lambda name: excess[name])
    if excess[phase] < enough_ns:
        return None
    work = find_excess_work(ranks[index], peers, phase)
    return LateCause(PHASE_WORDS[phase], f", {work.text}" if work is not None else "")


class _Contention(NamedTuple):
    """Own work of a rank per step, in nanoseconds."""

    busy_ns: float
    """On a core."""
    delay_ns: float
    """Without a core."""


def _divide_work(work_ns: Mapping[str, float], core_delay_ns: Mapping[str, float]) -> _Contention:
    """Divide the own work of a rank per step, by phase, into times with and without a core.

    What exceeds the own work in a phase was without a core in the exchange of gradients. In
    collectives that the script calls, a rank wants none: that is a delay of work near them, since a
    sample covers both.
    """
    total_ns = sum(work_ns.values())
    delay_ns = sum(min(ns, work_ns.get(phase, ns)) for phase, ns in core_delay_ns.items())
    delay_ns = min(delay_ns, total_ns)
    return _Contention(total_ns - delay_ns, delay_ns)


def _measure_contention(contention: Sequence[_Contention | None], index: int) -> float | None:
    """Measure the time without a core per step that a rank has more of than its work explains.

    A rank with more to do waits longer for a core as well, where all ranks do. With d, the time
    without a core, and b, the own work on a core, both per step:

        d - b x median of d / b over the other ranks

    None where time without a core was not recorded.
    """
    rank = contention[index]
    rates = [
        peer.delay_ns / peer.busy_ns
        for number, peer in enumerate(contention)
        if number != index and peer is not None and peer.busy_ns > 0
    ]
    if rank is None or not rates:
        return None
    return rank.delay_ns - rank.busy_ns * float(np.median(rates))


# --- words ---------------------------------------------------------------------------------------


def write_lateness(  # noqa: PLR0917
    ranks: Sequence[ComparedRank],
    step_numbers: intervals.Int,
    late: analysis.LateRanks,
    culprits: Sequence[int],
    causes: Mapping[int, LateCause],
    mesh: RankMesh | None,
) -> str:
    """Write which ranks are late, when, by how much and why, the most costly first."""
    if not culprits:
        most_ns = max(float(np.median(np.abs(row))) for row in late.lateness_ns)
        return (
            "No rank is late: at the median of the steps each is within "
            f"{quantities.duration(most_ns)} of the others."
        )
    group = mesh and _find_group(ranks, culprits, mesh)
    if group is not None:
        lateness_ns = float(np.median([late.ranks[index].lateness_ns for index in culprits]))
        common = _find_common_cause(causes, len(culprits)) or CAUSE_NOT_FOUND
        return f"All ranks of {group} are late by {quantities.duration(lateness_ns)}: {common}."
    index = culprits[0]
    rank, title = late.ranks[index], ranks[index].name
    when = _describe_time(rank, step_numbers)
    cause = causes.get(index, LateCause(CAUSE_NOT_FOUND))
    lateness = quantities.duration(_lateness(rank))
    sentence = f"{title[:1].upper()}{title[1:]} {when} by {lateness}: {cause.kind}{cause.detail}."
    if len(culprits) > 1:
        names = ", ".join(ranks[number].name for number in culprits[1:4])
        more = f" and {len(culprits) - 4} more" if len(culprits) > 4 else ""
        sentence += f" So are, for less in total, {names}{more}."
    return sentence


def _find_common_cause(causes: Mapping[int, LateCause], rank_count: int) -> str | None:
    """Find the cause that more than half of the late ranks have; None if there is none."""
    counts = Counter(cause.kind for cause in causes.values())
    return next((kind for kind, count in counts.items() if count > rank_count / 2), None)


def _describe_inherited(
    ranks: Sequence[ComparedRank], culprits: Sequence[int], inherited: Mapping[int, int]
) -> str | None:
    """Describe whom the first late rank makes late; None if it makes none late."""
    names = [ranks[index].name for index, origin in inherited.items() if origin == culprits[0]]
    if not names:
        return None
    return f"It makes {', '.join(names)} late, too, in earlier collectives of the step."


def _lateness(rank: analysis.LateRank) -> float:
    """Median lateness, weighted by the late steps of the episodes."""
    return rank.episode_ns / sum(episode.late_count for episode in rank.episodes)


def _describe_time(rank: analysis.LateRank, step_numbers: intervals.Int) -> str:
    count = len(step_numbers)
    persistence = classify_persistence(rank, count)
    if persistence == "persistent":
        return f"is late in {quantities.percent(rank.late_count / count)} of steps"
    last = rank.episodes[-1]
    span = last.last - last.first + 1
    share = quantities.percent(last.late_count / span)
    first_number, last_number = (int(step_numbers[i]) for i in (last.first, last.last))
    if persistence == "since":
        return f"is late since step {first_number}, in {share} of steps"
    if len(rank.episodes) > 1:
        late_count = sum(episode.late_count for episode in rank.episodes)
        return f"was late in {len(rank.episodes)} episodes, {late_count} of {count} steps"
    return f"was late from step {first_number} to {last_number}, in {share} of these steps"


def _find_group(
    ranks: Sequence[ComparedRank], culprits: Sequence[int], mesh: RankMesh
) -> str | None:
    """Find the coordinate of which all ranks, and no others, are late; None if there is none."""
    coordinates = [mesh.locate(rank.number or 0) for rank in ranks]
    names = []
    for dimension, size in mesh.sizes.items():
        values = {coordinates[index][dimension] for index in culprits}
        members = [i for i, at in enumerate(coordinates) if at[dimension] in values]
        if size > 1 and len(values) == 1 and sorted(culprits) == members and len(members) > 1:
            names.append(f"{DIMENSIONS[dimension]} coordinate {values.pop()} ({dimension})")
    return names[0] if len(names) == 1 else None


MIN_INHERITED_RATIO = 0.5
"""Share of the lateness of a rank that has to start with another rank."""


def find_inherited_lateness(
    run: Run, ranks: Sequence[Rank], culprits: Sequence[int], min_lateness_ns: float
) -> dict[int, int]:
    """Find the late ranks whose lateness starts with another late rank.

    Args:
        run: the run.
        ranks: its ranks.
        culprits: indices of late ranks.
        min_lateness_ns: a collective counts whose last rank is later than this, and than the error
            of the clocks of several nodes.

    Returns:
        Index of the rank that made it late by index of a late rank.
    """
    if len(culprits) < 2:
        return {}
    recorded = read_recorded_collectives(run)
    if isinstance(recorded, str) or not _has_chains(recorded):
        return {}
    t_ns = recorded.arrivals.t_ns
    if len(set(recorded.nodes)) > 1:
        alignment = align_node_clocks(run)
        if not isinstance(alignment, NodeClocks) or alignment.difference_residual_ns is None:
            return {}
        min_lateness_ns = max(min_lateness_ns, alignment.difference_residual_ns)
        t_ns = alignment.to_reference(recorded)
    index_of = {rank.process.process: index for index, rank in enumerate(ranks)}
    indices = np.array([index_of.get(name, -1) for name in recorded.processes])
    waits = np.array(
        [analysis.classify_collective(k) in analysis.SYNCHRONIZING_KINDS for k in recorded.kinds]
    )
    rows = np.flatnonzero((indices[recorded.process] >= 0) & waits[recorded.arrivals.kind])
    keys = np.stack([recorded.arrivals.group, recorded.arrivals.number])[:, rows]
    collective = np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1).astype(np.int64)
    chains = analysis.find_late_chains(
        analysis.GroupArrivals(
            rank=indices[recorded.process[rows]], collective=collective, t_ns=t_ns[rows]
        )
    )
    counts = chains.lateness_ns > min_lateness_ns
    inherited: dict[int, int] = {}
    for index in culprits:
        is_last = counts & (chains.last_rank == index)
        weight = np.bincount(
            chains.first_rank[is_last], weights=chains.lateness_ns[is_last], minlength=len(ranks)
        )
        origin = int(weight.argmax())
        is_other = origin != index and origin in culprits and origin not in inherited
        total_ns = weight.sum()
        if is_other and total_ns > 0 and weight[origin] >= MIN_INHERITED_RATIO * total_ns:
            inherited[index] = origin
    return inherited


def _has_chains(recorded: RecordedCollectives) -> bool:
    """Return True if a process calls collectives of several groups."""
    pairs = np.unique(np.stack([recorded.process, recorded.arrivals.group]), axis=1)
    return bool((np.bincount(pairs[0]) > 1).any())


def report_slow_link(run: Run, steps: SharedSteps) -> str | None:
    """Describe the slow link that collectives wait for; None if there is none.

    What cannot be sent at once waits on the node before the link if collectives are sent by TCP: by
    a backend of the host.
    """
    transfer_ns = steps.communication_ns.min(axis=0).sum()
    transfer_ratio = float(transfer_ns / steps.wall_ns.mean(axis=0).sum())
    ranks = {rank.process.node: rank for rank in run.ranks}
    link = analysis.find_slow_link(
        transfer_ratio, {node: _count_samples(run, rank) for node, rank in ranks.items()}
    )
    if link is None:
        return None
    recorded = read_recorded_collectives(run)
    is_sent_by_host = not isinstance(recorded, str) and bool(recorded.is_on_host.all())
    return rules.describe_slow_link(link) if is_sent_by_host else None


def _count_samples(run: Run, rank: Rank) -> analysis.SendQueue:
    """Count the samples of the send queue of a rank's node during the steps of the rank."""
    metrics, times = run.metrics.get(rank.process.node), rank.table.steps.unpack()
    if metrics is None:
        return analysis.SendQueue()
    during = metrics.between(int(times.start[0]), int(times.end[-1]))
    return analysis.SendQueue.of(during.series(rules.UNSENT_METRIC))
