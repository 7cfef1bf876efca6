"""Share of step time of each suspect, from traces.

Shares are of the time of all steps of the traces. The parts of a step (`analysis.step_parts`)
belong to

    data pipeline    fetches of batches and copies to the device, while it has no other work
    communication    collectives that computation does not hide
    overhead         all other time in which the device does not compute
    model            computation

Where ranks were recorded together, the shortest exposed communication of a step is the transfer;
the rest of the communication of the other ranks is waiting for the slowest of them. It counts for
the parts on which the slowest rank spends more time than the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import CATEGORIES, DATA_PARTS, OVERHEAD_PARTS, STEP_PARTS
from stepscope.diagnosis.rank_waiting import STRAGGLER_RATIO, measure_slowest_rank
from stepscope.diagnosis.verdict import SUSPECTS, Suspect
from stepscope.run import DividedTrace

SUSPECT_OF_PART: Mapping[str, Suspect] = {
    "compute": "model",
    "communication": "communication",
    **dict.fromkeys(DATA_PARTS, "data_pipeline"),
    **dict.fromkeys(OVERHEAD_PARTS, "framework_overhead"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWaits:
    """Waiting of ranks for the slowest of them."""

    ratio: float = 0.0
    """Share of all exposed communication."""
    by_suspect: Mapping[Suspect, float] = field(default_factory=dict)
    """Split of the waiting by the work of the slowest rank; sums to 1."""
    slowest: str = ""
    """Name of the rank that the others wait for most."""
    slowest_ratio: float = 0.0
    """Share of the waiting that is for that rank."""
    rank_count: int = 1
    slowest_part: str = ""
    """Part of the step in which it exceeds the others most."""
    excess_ns: float = 0.0
    """By this much per step."""

    @property
    def is_one_rank(self) -> bool:
        """True if it is always the same rank."""
        return self.slowest_ratio >= STRAGGLER_RATIO

    def add_excess(self, waiting: float) -> float:
        """Add the slow rank's own excess to the mean waiting of all ranks for it; see
        `rank_waiting`."""
        if self.rank_count < 2 or not self.is_one_rank:
            return waiting
        return waiting * self.rank_count / (self.rank_count - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceShares:
    """Shares of the time of all steps."""

    parts: Mapping[str, float]
    """By part of `STEP_PARTS`; sum to 1."""
    suspects: Mapping[Suspect, float]
    rank_wait: Mapping[Suspect, float]
    """Waiting for the slowest rank, by the work of that rank; included in `suspects`."""


def measure_waits(traces: Sequence[DividedTrace]) -> TraceWaits:
    """Measure the waiting of ranks in the steps that all of their traces have.

    Ranks without a number, or with several traces each, are not compared.
    """
    ranks = [trace.trace.rank for trace in traces]
    names = [set(trace.steps.names) for trace in traces]
    shared = sorted(set.intersection(*names)) if names else []
    if len(traces) < 2 or None in ranks or len(set(ranks)) < len(ranks) or not shared:
        return TraceWaits()
    rows = [[trace.steps.names.index(name) for name in shared] for trace in traces]
    parts = {
        part: np.stack(
            [trace.part_ns[part][steps] for trace, steps in zip(traces, rows, strict=True)]
        ).astype(float)
        for part in STEP_PARTS
    }
    communication = parts.pop("communication")
    waiting = communication - communication.min(axis=0)
    if not waiting.any():
        return TraceWaits()
    slowest_ns, peer_ns = measure_slowest_rank(parts, communication)
    excess = {part: max(0.0, slowest_ns[part] - peer_ns[part]) for part in parts}
    total = sum(excess.values())
    by_suspect: dict[Suspect, float] = {}
    for part, excess_ns in excess.items():
        if excess_ns:
            suspect = SUSPECT_OF_PART[part]
            by_suspect[suspect] = by_suspect.get(suspect, 0.0) + excess_ns / total
    last = communication.argmin(axis=0)
    waited_for = np.bincount(last, weights=waiting.sum(axis=0), minlength=len(traces))
    slowest, largest = int(waited_for.argmax()), max(excess, key=lambda part: excess[part])
    return TraceWaits(
        ratio=float(waiting.sum() / communication.sum()) if total else 0.0,
        by_suspect=by_suspect,
        slowest=traces[slowest].name,
        slowest_ratio=float(waited_for[slowest] / waited_for.sum()),
        rank_count=len(traces),
        slowest_part=largest,
        excess_ns=excess[largest] / len(shared),
    )


def build_part_matrix(traces: Sequence[DividedTrace]) -> NDArray[np.int64]:
    """Build the matrix of nanoseconds by step and part: the steps of all traces, one after
    another."""
    return np.concatenate(
        [np.stack([trace.part_ns[part] for part in STEP_PARTS], axis=1) for trace in traces]
    )


def compute_trace_shares(part_ns: NDArray[np.int64], waits: TraceWaits) -> TraceShares:
    """Compute the shares over some steps.

    Args:
        part_ns: rows of `build_part_matrix`.
        waits: waiting of ranks, a property of the run.
    """
    totals = part_ns.sum(axis=0).astype(float)
    parts = dict(zip(STEP_PARTS, (totals / totals.sum()).tolist(), strict=True))
    suspects: dict[Suspect, float] = dict.fromkeys(SUSPECTS, 0.0)
    for part, share in parts.items():
        suspects[SUSPECT_OF_PART[part]] += share
    waiting = parts["communication"] * waits.ratio
    rank_wait = {suspect: waiting * ratio for suspect, ratio in waits.by_suspect.items()}
    suspects["communication"] -= waiting
    for suspect, share in rank_wait.items():
        suspects[suspect] += share
    return TraceShares(parts=parts, suspects=suspects, rank_wait=rank_wait)


def measure_categories(traces: Sequence[DividedTrace]) -> dict[str, float]:
    """Measure the shares of the categories that the view of steps shows; without unused ones."""
    totals = {
        name: sum(int(trace.category_ns[name].sum()) for trace in traces) for name in CATEGORIES
    }
    total = sum(totals.values())
    return {name: time_ns / total for name, time_ns in totals.items() if time_ns}
