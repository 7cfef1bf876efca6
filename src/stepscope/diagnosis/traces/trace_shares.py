"""Share of step time of each suspect, from traces.

Shares are of the time of all steps of the traces. The parts of a step (`analysis.step_parts`)
belong to

    data pipeline    fetches of batches and copies to the device, while it has no other work
    communication    collectives that computation does not hide
    overhead         all other time in which the device does not compute
    model            computation, and idle time of the device between queued work
    none, `healthy`  time in which the process has no work
    no suspect       waits for what is not in the traces

Where ranks were recorded together, the shortest exposed communication of a step is the transfer;
the rest of the communication of the other ranks is waiting for the slowest of them. It counts for
the suspects on which the slowest rank spends more time than the others, for each of the R - 1 ranks
that wait at most by that excess; the rest remains communication.

Late ranks are found as in a job, from the exposed communication of the steps that the traces of all
ranks have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
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
from stepscope.diagnosis.causes.rank_work import MeanWork
from stepscope.diagnosis.shares import rank_waiting
from stepscope.diagnosis.shares.rank_waiting import add_excess
from stepscope.diagnosis.verdict import SUSPECTS, Evidence, Stage, Suspect
from stepscope.quantities import count_of, duration, percent

MIN_MATCHED = 3
MIN_MATCHED_RATIO = 0.5
"""Steps that match by time, as a share of those of the rank with most."""
SUSPECT_OF_PART: Mapping[str, Suspect] = {
    "compute": "model",
    "communication": "communication",
    "queued": "model",
    "waiting": "healthy",
    **dict.fromkeys(analysis.DATA_PARTS, "data_pipeline"),
    **dict.fromkeys(analysis.OVERHEAD_PARTS, "framework_overhead"),
}
"""Without `blocked`: what is waited for is not known."""


class TraceWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Waiting of ranks for the slowest of them."""

    ratios: Mapping[Suspect, float] = msgspec.field(default_factory=dict)
    """Shares of all exposed communication, by the work of the slowest rank."""
    slowest: str = ""
    """Name of the rank that the others wait for most."""
    slowest_ratio: float = 0.0
    """Share of the waiting that is for that rank."""
    rank_count: int = 1
    excess_ns: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Time per step by which the slowest rank of a step exceeds the mean of the others, by part."""
    note: str = ""
    """Sentence on how the steps of ranks were matched, where not by their numbers."""

    @property
    def is_one_rank(self) -> bool:
        """True if it is always the same rank."""
        return self.slowest_ratio >= rank_waiting.STRAGGLER_RATIO

    def add_excess(self, waiting: float) -> float:
        """Add the slow rank's own excess to the mean waiting of all ranks for it."""
        return add_excess(waiting, self.rank_count, self.slowest_ratio)


class TraceShares(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the time of all steps."""

    parts: Mapping[str, float]
    """By part of `STEP_PARTS`; sum to 1."""
    suspects: Mapping[Suspect, float]
    """`healthy` is the time in which the process has no work."""
    rank_wait: Mapping[Suspect, float]
    """Waiting for the slowest rank, by the work of that rank; included in `suspects`."""


class MatchedSteps(NamedTuple):
    """Steps that the traces of all ranks have."""

    ranks: list[str]
    rows: list[list[tuple[run.DividedTrace, int]]]
    """Trace and position of each step, by rank."""
    note: str = ""
    """Sentence where not the numbers of steps tell which belong together."""

    def read(self, part: str) -> NDArray[np.float64]:
        """Read the time of a part by rank and step, in nanoseconds."""
        return np.array(
            [[trace.part_ns[part][step] for trace, step in row] for row in self.rows],
            dtype=np.float64,
        )

    def read_overlap(self) -> NDArray[np.float64]:
        """Read the computation that hides communication, as `read`."""
        return np.array(
            [[trace.overlap_ns[step] for trace, step in row] for row in self.rows], dtype=np.float64
        )


def match_steps(of_run: run.Run, traces: Sequence[run.DividedTrace]) -> MatchedSteps:
    """Match the steps of ranks in the recordings that they made together: by name, or by time where
    ranks are not stated or number their steps differently. There are none where neither tells."""
    recordings = run.number_recordings(of_run, [one.trace for one in traces])
    by_rank: dict[str, dict[tuple[int, str], tuple[run.DividedTrace, int]]] = {}
    for one, recording in zip(traces, recordings, strict=True):
        steps = by_rank.setdefault(one.trace.label, {})
        for row, name in enumerate(one.steps.names):
            steps.setdefault((recording, name), (one, row))
    has_ranks = all(one.trace.rank is not None for one in traces)
    numbers = {one.trace.label: one.trace.rank or 0 for one in traces}
    ranks = sorted(by_rank, key=lambda label: (numbers[label], label))
    shared = sorted(set.intersection(*(set(steps) for steps in by_rank.values())))
    if len(ranks) < 2 or (has_ranks and shared):
        return MatchedSteps(ranks, [[by_rank[rank][step] for step in shared] for rank in ranks])
    rows: list[list[tuple[run.DividedTrace, int]]] = [[] for _ in ranks]
    for recording in sorted(set(recordings)):
        together = {
            one.trace.label: one
            for one, number in zip(traces, recordings, strict=True)
            if number == recording
        }
        if len(together) == len(ranks):
            matched = _match_by_time([together[rank] for rank in ranks])
            rows = [[*before, *more] for before, more in zip(rows, matched, strict=True)]
    reason = "number their steps differently" if has_ranks else "do not state their ranks"
    note = f"The traces {reason}: their steps are compared by time." if rows[0] else ""
    return MatchedSteps(ranks, rows, note)


def _match_by_time(traces: Sequence[run.DividedTrace]) -> list[list[tuple[run.DividedTrace, int]]]:
    """Match the steps of one recording by time: those in which the middle of a step of the first
    rank is. None match unless most steps of all ranks do, one by one."""
    none: list[list[tuple[run.DividedTrace, int]]] = [[] for _ in traces]
    if not all(one.marked and run.has_clock(one.trace) for one in traces):
        return none
    start, end = traces[0].steps.extent
    middle = start + (end - start) // 2
    positions = []
    for one in traces:
        row = np.searchsorted(one.steps.extent.start, middle, side="right") - 1
        is_inside = (row >= 0) & (middle < one.steps.extent.end[row])
        positions.append(np.where(is_inside, row, -1))
    position = np.array(positions)
    position = position[:, (position >= 0).all(axis=0)]
    longest = max(len(one.steps.names) for one in traces)
    is_single = all(len(np.unique(row)) == len(row) for row in position)
    if not is_single or position.shape[1] < max(MIN_MATCHED, MIN_MATCHED_RATIO * longest):
        return none
    return [
        [(one, row) for row in rows] for one, rows in zip(traces, position.tolist(), strict=True)
    ]


def measure_waits(of_run: run.Run, traces: Sequence[run.DividedTrace]) -> TraceWaits:
    """Measure the waiting of ranks in the steps that all of them have."""
    matched = match_steps(of_run, traces)
    ranks, count = matched.ranks, len(matched.rows[0])
    if len(ranks) < 2 or not count:
        return TraceWaits()
    parts = {part: matched.read(part) for part in analysis.STEP_PARTS}
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
        slowest=ranks[slowest],
        slowest_ratio=float(waited_for[slowest] / waited_for.sum()),
        rank_count=len(ranks),
        excess_ns={part: time_ns / count for part, time_ns in excess.items()},
        note=matched.note,
    )


def _split_waiting(
    excess_ns: Mapping[str, float], waiting_ns: float, peer_count: int, communication_ns: float
) -> dict[Suspect, float]:
    """Split the waiting by the suspects in which the slowest rank exceeds the others, as shares of
    all communication."""
    by_suspect: dict[Suspect, float] = {}
    for part, suspect in SUSPECT_OF_PART.items():
        by_suspect[suspect] = by_suspect.get(suspect, 0.0) + excess_ns.get(part, 0.0)
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
    for part, suspect in SUSPECT_OF_PART.items():
        suspects[suspect] += parts[part]
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
    if shared:
        part_ns = np.array([[of_rank[step] for step in shared] for of_rank in steps], dtype=float)
        *parts_ns, overlap_ns = np.moveaxis(part_ns, 2, 0)
        own_ns = dict(zip(analysis.STEP_PARTS, parts_ns, strict=True))
    else:
        matched = match_steps(of_run, [one for of_rank in traces for one in of_rank])
        if not matched.rows[0]:
            return "the traces of the ranks have no steps in common"
        shared = [int(one.steps.names[row]) for one, row in matched.rows[0]]
        own_ns = {part: matched.read(part) for part in analysis.STEP_PARTS}
        overlap_ns = matched.read_overlap()
    wall_ns = sum(own_ns.values(), start=np.zeros_like(overlap_ns))
    communication_ns = own_ns.pop("communication")
    if not communication_ns.any():
        return "the traces have no exposed communication in the steps that their ranks share"
    late = analysis.find_late_ranks(communication_ns, wall_ns, own_ns)
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
        work=MeanWork.measure(wall_ns, own_ns, ("compute",), overlap_ns),
        sentence=_write_few_steps(ranks, late, candidates[0], causes)
        if candidates
        else write_lateness(ranks, numbers, late, culprits, causes, mesh),
    )


def _read_parts(traces: Sequence[run.DividedTrace]) -> dict[int, NDArray[np.int64]]:
    """Read the time by part, and its overlap, of each marked step of one rank, by its number; the
    first counts."""
    steps: dict[int, NDArray[np.int64]] = {}
    for one in [trace.without_start() for trace in traces if trace.marked]:
        times = np.column_stack([build_part_matrix([one]), one.overlap_ns])
        for name, row in zip(one.steps.names, times, strict=True):
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
    parts = [part for part in waits.excess_ns if SUSPECT_OF_PART.get(part) == suspect]
    part = max(parts, key=lambda name: waits.excess_ns[name])
    excess_ns = waits.excess_ns[part]
    subject = waits.slowest if waits.is_one_rank else "the last rank of a step"
    excess = make_evidence(
        f"{_begin_sentence(subject)} spends {duration(excess_ns)} more per step on "
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


def _begin_sentence(subject: str) -> str:
    """Begin a sentence with a rank; the names of files stay as they are."""
    is_word = subject.partition(" ")[0] in {"rank", "the"}
    return subject[:1].upper() + subject[1:] if is_word else subject


def make_evidence(text: str, value: float | None, unit: str, source: str) -> Evidence:
    """Make evidence with its figure and the view that shows it."""
    return Evidence(text=text, value=value, unit=unit, source=source)
