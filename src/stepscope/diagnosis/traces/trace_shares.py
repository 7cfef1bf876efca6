"""Share of step time of each suspect, from traces.

Shares are of the time of all steps of the traces. The parts of a step (`analysis.step_parts`)
belong to

    data pipeline    fetches of batches and copies to the device, while it has no other work
    communication    collectives that computation does not hide
    overhead         all other time in which the device does not compute
    model            computation, and idle time of the device between queued work
    none, `healthy`  time in which the process has no work

Where ranks were recorded together, the shortest exposed communication of a step is the transfer;
the rest of the communication of the other ranks is waiting for the slowest of them. It counts for
the suspects on which the slowest rank spends more time than the others, for each of the R - 1 ranks
that wait at most by that excess; the rest remains communication.

Late ranks are found as in a job, from the exposed communication of the steps that the traces of all
ranks have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope import analysis, run
from stepscope.diagnosis.causes.cause import CauseFinding
from stepscope.diagnosis.causes.late_ranks import (
    CAUSE_NOT_FOUND,
    ComparedRank,
    LateCause,
    LateReport,
    write_lateness,
)
from stepscope.diagnosis.causes.rank_causes import MIN_EXPLAINED_RATIO
from stepscope.diagnosis.shares import rank_waiting
from stepscope.diagnosis.shares.rank_waiting import add_excess
from stepscope.diagnosis.verdict import SUSPECTS, Evidence, Stage, Suspect
from stepscope.quantities import count_of, duration, percent

SUSPECT_OF_PART: Mapping[str, Suspect] = {
    "compute": "model",
    "communication": "communication",
    "queued": "model",
    "waiting": "healthy",
    **dict.fromkeys(analysis.DATA_PARTS, "data_pipeline"),
    **dict.fromkeys(analysis.OVERHEAD_PARTS, "framework_overhead"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWaits:
    """Waiting of ranks for the slowest of them."""

    ratios: Mapping[Suspect, float] = field(default_factory=dict)
    """Shares of all exposed communication, by the work of the slowest rank."""
    slowest: str = ""
    """Name of the rank that the others wait for most."""
    slowest_ratio: float = 0.0
    """Share of the waiting that is for that rank."""
    rank_count: int = 1
    excess_ns: Mapping[str, float] = field(default_factory=dict)
    """Time per step by which the slowest rank of a step exceeds the mean of the others, by part."""

    @property
    def is_one_rank(self) -> bool:
        """True if it is always the same rank."""
        return self.slowest_ratio >= rank_waiting.STRAGGLER_RATIO

    def add_excess(self, waiting: float) -> float:
        """Add the slow rank's own excess to the mean waiting of all ranks for it."""
        return add_excess(waiting, self.rank_count, self.slowest_ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceShares:
    """Shares of the time of all steps."""

    parts: Mapping[str, float]
    """By part of `STEP_PARTS`; sum to 1."""
    suspects: Mapping[Suspect, float]
    """`healthy` is the time in which the process has no work."""
    rank_wait: Mapping[Suspect, float]
    """Waiting for the slowest rank, by the work of that rank; included in `suspects`."""


def measure_waits(traces: Sequence[run.DividedTrace]) -> TraceWaits:
    """Measure the waiting of ranks in the steps that all of them have.

    Steps are told by window and name. Traces without a rank are not compared.
    """
    steps_by_rank: dict[int, dict[tuple[int, str], tuple[run.DividedTrace, int]]] = {}
    for trace in traces:
        if trace.trace.rank is None:
            return TraceWaits()
        steps = steps_by_rank.setdefault(trace.trace.rank, {})
        for row, name in enumerate(trace.steps.names):
            steps.setdefault((trace.trace.window or 0, name), (trace, row))
    shared = sorted(set.intersection(*map(set, steps_by_rank.values())))
    ranks = sorted(steps_by_rank)
    if len(ranks) < 2 or not shared:
        return TraceWaits()
    rows = [[steps_by_rank[rank][step] for step in shared] for rank in ranks]
    parts = {
        part: np.array(
            [[trace.part_ns[part][step] for trace, step in row] for row in rows], dtype=np.float64
        )
        for part in analysis.STEP_PARTS
    }
    communication = parts.pop("communication")
    waiting = communication - communication.min(axis=0)
    if not waiting.any():
        return TraceWaits()
    slowest_ns, peer_ns = rank_waiting.measure_slowest_rank(parts, communication)
    excess = {part: slowest_ns[part] - peer_ns[part] for part in parts}
    waited_for = rank_waiting.divide_waiting(communication)
    slowest = int(waited_for.argmax())
    return TraceWaits(
        ratios=_split_waiting(
            excess, float(waiting.sum()), len(ranks) - 1, float(communication.sum())
        ),
        slowest=f"rank {ranks[slowest]}",
        slowest_ratio=float(waited_for[slowest] / waited_for.sum()),
        rank_count=len(ranks),
        excess_ns={part: time_ns / len(shared) for part, time_ns in excess.items()},
    )


def _split_waiting(
    excess_ns: Mapping[str, float], waiting_ns: float, peer_count: int, communication_ns: float
) -> dict[Suspect, float]:
    """Split the waiting by the suspects in which the slowest rank exceeds the others, as shares of
    all communication."""
    by_suspect: dict[Suspect, float] = {}
    for part, time_ns in excess_ns.items():
        suspect = SUSPECT_OF_PART[part]
        by_suspect[suspect] = by_suspect.get(suspect, 0.0) + time_ns
    positive = {suspect: time_ns for suspect, time_ns in by_suspect.items() if time_ns > 0}
    total_ns = sum(positive.values())
    return {
        suspect: float(
            min(waiting_ns * time_ns / total_ns, peer_count * time_ns) / communication_ns
        )
        for suspect, time_ns in positive.items()
    }


def build_part_matrix(traces: Sequence[run.DividedTrace]) -> NDArray[np.int64]:
    """Build the matrix of nanoseconds by step and part: the steps of all traces, one after
    another."""
    return np.concatenate(
        [
            np.stack([trace.part_ns[part] for part in analysis.STEP_PARTS], axis=1)
            for trace in traces
        ]
    )


def compute_trace_shares(part_ns: NDArray[np.int64], waits: TraceWaits) -> TraceShares:
    """Compute the shares over some steps.

    Args:
        part_ns: rows of `build_part_matrix`.
        waits: waiting of ranks, a property of the run.
    """
    totals = part_ns.sum(axis=0).astype(float)
    parts = dict(zip(analysis.STEP_PARTS, (totals / totals.sum()).tolist(), strict=True))
    suspects: dict[Suspect, float] = dict.fromkeys((*SUSPECTS, "healthy"), 0.0)
    for part, share in parts.items():
        suspects[SUSPECT_OF_PART[part]] += share
    rank_wait = {suspect: parts["communication"] * ratio for suspect, ratio in waits.ratios.items()}
    suspects["communication"] -= sum(rank_wait.values())
    for suspect, share in rank_wait.items():
        suspects[suspect] += share
    return TraceShares(parts=parts, suspects=suspects, rank_wait=rank_wait)


def measure_categories(traces: Sequence[run.DividedTrace]) -> dict[str, float]:
    """Measure the shares of the categories that the view of steps shows; without unused ones."""
    totals = {
        name: sum(int(trace.category_ns[name].sum()) for trace in traces)
        for name in analysis.CATEGORIES
    }
    total = sum(totals.values())
    return {name: time_ns / total for name, time_ns in totals.items() if time_ns}


MIN_LATE_STEPS_RATIO = 0.75
"""Share of the steps in which a rank is late, where there are too few to exclude chance."""


def report_late_traces(of_run: run.Run, mesh: run.RankMesh | None = None) -> LateReport | str:
    """Report the ranks that are late in imported traces, or explain why that is not known."""
    by_rank: dict[int, list[run.DividedTrace]] = {}
    for one in run.divide_traces(of_run):
        if one.trace.rank is not None:
            by_rank.setdefault(one.trace.rank, []).append(one)
    traces = [by_rank[rank] for rank in sorted(by_rank)]
    unknown = next((t.unknown_devices for t in of_run.traces if t.unknown_devices), None)
    if unknown is not None:
        return f"lateness shows in the communication of devices, and {unknown}"
    if len(run.find_time_groups(of_run)) > 1:
        return "the ranks were recorded at different times"
    if not traces:
        return "lateness is a comparison of ranks, and the traces do not state their ranks"
    if len(traces) < 2:
        return "lateness is a comparison of ranks, and the run has traces of one rank"
    steps = [_read_parts(of_rank) for of_rank in traces]
    shared = sorted(set(steps[0]).intersection(*steps[1:]))
    if not shared:
        return "the traces of the ranks have no steps in common"
    part_ns = np.array([[of_rank[number] for number in shared] for of_rank in steps], dtype=float)
    own_ns = dict(zip(analysis.STEP_PARTS, np.moveaxis(part_ns, 2, 0), strict=True))
    communication_ns = own_ns.pop("communication")
    if not communication_ns.any():
        return "the traces have no exposed communication in the steps that their ranks share"
    late = analysis.find_late_ranks(communication_ns, part_ns.sum(axis=2), own_ns)
    costs = [rank.episode_ns for rank in late.ranks]
    culprits = [int(i) for i in np.argsort(costs, kind="stable")[::-1] if costs[i] > 0]
    candidates = [] if culprits else _find_late_in_few_steps(late)
    causes = {
        index: cause
        for index in culprits or candidates
        if (cause := _find_late_part(index, late, own_ns)) is not None
    }
    ranks = [
        ComparedRank(one.trace.label, one.trace.node or "", one.trace.rank) for one, *_ in traces
    ]
    numbers = np.array(shared, dtype=np.int64)
    return LateReport(
        ranks=ranks,
        step_numbers=numbers,
        late=late,
        culprits=culprits,
        causes={index: cause.kind for index, cause in causes.items()},
        inherited={},
        mesh=mesh,
        sentence=_write_few_steps(ranks, late, candidates[0], causes)
        if candidates
        else write_lateness(ranks, numbers, late, culprits, causes, mesh),
    )


def _read_parts(traces: Sequence[run.DividedTrace]) -> dict[int, NDArray[np.int64]]:
    """Read the time by part of each marked step of one rank, by its number; the first counts."""
    steps: dict[int, NDArray[np.int64]] = {}
    for one in [trace.without_start() for trace in traces if trace.marked]:
        for name, row in zip(one.steps.names, build_part_matrix([one]), strict=True):
            steps.setdefault(int(name), row)
    return steps


def _find_late_in_few_steps(late: analysis.LateRanks) -> list[int]:
    """Find the ranks that are late in most steps, the latest first."""
    step_count = late.lateness_ns.shape[1]
    ranks = [
        index
        for index, rank in enumerate(late.ranks)
        if rank.late_count >= MIN_LATE_STEPS_RATIO * step_count
    ]
    return sorted(ranks, key=lambda index: -late.ranks[index].lateness_ns)


def _find_late_part(
    index: int, late: analysis.LateRanks, own_ns: Mapping[str, NDArray[np.float64]]
) -> LateCause | None:
    """Find the part that a late rank spends more time on than the others; None where none explains
    half of its lateness."""
    is_late = late.lateness_ns[index] > 0
    excess_ns = {
        part: float(analysis.compare_with_others(times, [index])[0][is_late].mean())
        for part, times in own_ns.items()
    }
    part = max(excess_ns, key=lambda name: excess_ns[name])
    if excess_ns[part] < MIN_EXPLAINED_RATIO * late.ranks[index].lateness_ns:
        return None
    return LateCause(f"more {analysis.PART_NAMES[part]}")


def _write_few_steps(
    ranks: Sequence[ComparedRank],
    late: analysis.LateRanks,
    index: int,
    causes: Mapping[int, LateCause],
) -> str:
    rank, title = late.ranks[index], ranks[index].name
    cause = causes[index].kind if index in causes else CAUSE_NOT_FOUND
    return (
        f"{title[:1].upper()}{title[1:]} is late in {rank.late_count} of "
        f"{count_of(late.lateness_ns.shape[1], 'step')} by {duration(rank.lateness_ns)}: {cause}. "
        "These are too few steps to exclude chance."
    )


def find_slow_rank(waits: TraceWaits, shares: TraceShares, suspect: Suspect) -> CauseFinding:
    """Find the rank that the others wait for, or that they do so in turn, with its evidence."""
    parts = [part for part in waits.excess_ns if SUSPECT_OF_PART[part] == suspect]
    part = max(parts, key=lambda name: waits.excess_ns[name])
    excess_ns = waits.excess_ns[part]
    subject = waits.slowest if waits.is_one_rank else "the last rank of a step"
    excess = make_evidence(
        f"{subject[:1].upper()}{subject[1:]} spends {duration(excess_ns)} more per step on "
        f"{analysis.PART_NAMES[part]} than the other ranks.",
        excess_ns,
        "ns",
        "distributed",
    )
    turns = make_evidence(
        f"The other ranks wait for {waits.slowest} in {percent(waits.slowest_ratio)} of the "
        "waiting.",
        waits.slowest_ratio,
        "ratio",
        "distributed",
    )
    is_one = waits.is_one_rank
    stage = Stage(
        name=waits.slowest if is_one else "ranks in turn",
        detail="the other ranks wait for it" if is_one else "",
        share_ratio=waits.add_excess(shares.rank_wait[suspect]),
    )
    return CauseFinding(
        cause="straggler" if is_one else "uneven_ranks", stages=[stage], evidence=[excess, turns]
    )


def make_evidence(text: str, value: float | None, unit: str, source: str) -> Evidence:
    """Make evidence with its figure and the view that shows it."""
    return Evidence(text=text, value=value, unit=unit, source=source)
