"""Incarnations of a job that was restarted, each with its own steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import Annotated

import msgspec

from stepscope.quantities import count_of
from stepscope.run.run import Rank, Run
from stepscope.schema import field_label


class IncarnationSteps(msgspec.Struct, frozen=True, kw_only=True):
    """One start of the training processes of a job."""

    number: Annotated[int, field_label(display="identifier")]
    """Counted from 1."""
    started_ns: Annotated[int, field_label(unit="epoch_ns")]
    """Start of its first process."""
    nodes: list[str]
    rank_count: int
    """Training processes with steps."""
    step_count: int
    """Steps of the rank that has completed the most."""


def list_incarnations(run: Run) -> list[IncarnationSteps]:
    """List the incarnations with processes, by number, also those outside of the range of a run."""
    run = run.whole_run
    ranks: dict[int, list[Rank]] = defaultdict(list)
    for rank in run.all_ranks:
        ranks[rank.process.incarnation].append(rank)
    numbers = sorted({process.incarnation for process in run.processes})
    members = {n: [p for p in run.processes if p.incarnation == n] for n in numbers}
    return [
        IncarnationSteps(
            number=number,
            started_ns=min(process.started_ns for process in members[number]),
            nodes=sorted({process.node for process in members[number]}),
            rank_count=len(ranks[number]),
            step_count=_max_steps(ranks[number]),
        )
        for number in numbers
    ]


def find_current_processes(run: Run) -> set[str]:
    """Find the processes of the incarnation whose ranks a run shows."""
    numbers = {process.incarnation for process in run.processes}
    if len(numbers) > 1:  # else the steps are not needed
        numbers = {rank.process.incarnation for rank in run.ranks} or {max(numbers)}
    return {process.process for process in run.processes if process.incarnation in numbers}


def explain_incarnations(run: Run) -> str | None:
    """Say which start of the job the figures are of; None for a job that was started once."""
    incarnations = list_incarnations(run)
    if len(incarnations) < 2 or not run.ranks:
        return None
    current = run.ranks[0].process.incarnation
    earlier = ", ".join(
        f"{one.number}: {count_of(one.step_count, 'step')}"
        for one in incarnations
        if one.number != current
    )
    figures = (
        f"figures are of incarnation {current}, with {count_of(_max_steps(run.ranks), 'step')}, "
        f"without those of others ({earlier})."
    )
    twins = _find_simultaneous_ranks(run)
    if not twins:
        return f"The job was restarted: {figures}"
    return (
        f"Rank {twins[0].process.rank} ran at the same time on {_list_places(twins)}, which counts "
        f"as a restart: {figures} Give each process a rank of its own."
    )


def _find_simultaneous_ranks(run: Run) -> list[Rank]:
    """Find two processes on different nodes that had one rank of one world size for most of their
    time, by the clocks of the nodes; empty if there are none.

    The monitors cannot tell: a process that takes the rank of one on another node looks like one
    after a restart.
    """
    by_rank: dict[tuple[int, int | None], list[Rank]] = defaultdict(list)
    for rank in run.whole_run.all_ranks:
        if rank.process.rank is not None:
            by_rank[rank.process.rank, rank.process.world_size].append(rank)
    pairs = (pair for _, ranks in sorted(by_rank.items()) for pair in combinations(ranks, 2))
    return next((list(pair) for pair in pairs if _are_simultaneous(*pair)), [])


def _are_simultaneous(first: Rank, second: Rank) -> bool:
    if first.process.node == second.process.node:
        return False
    both = (first.steps, second.steps)
    shared_ns = min(steps.end[-1] for steps in both) - max(steps.start[0] for steps in both)
    return bool(2 * shared_ns > min(steps.end[-1] - steps.start[0] for steps in both))


def find_repeated_ranks(run: Run) -> list[str]:
    """Name the ranks of one incarnation that two processes with steps have, a sentence each."""
    by_rank: dict[int, list[Rank]] = defaultdict(list)
    for rank in run.ranks:
        if rank.process.rank is not None:
            by_rank[rank.process.rank].append(rank)
    return [
        f"Rank {number} was recorded {len(ranks)} times, on {_list_places(ranks)}: figures of all "
        "ranks count each of them."
        for number, ranks in sorted(by_rank.items())
        if len(ranks) > 1
    ]


def _list_places(ranks: Iterable[Rank]) -> str:
    return " and ".join(f"{r.process.node} (process {r.process.pid})" for r in ranks)


def _max_steps(ranks: Iterable[Rank]) -> int:
    return max((len(rank.steps) for rank in ranks), default=0)
