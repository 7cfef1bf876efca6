"""What makes the training thread stand still: checkpoints, compilations, garbage collections."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import Spans, summarize
from stepscope.diagnosis.verdict import Evidence
from stepscope.intervals import Intervals, contains, union
from stepscope.run import Rank, Run


def checkpoint_evidence(run: Run) -> list[Evidence]:
    """How many saves, how large and how long."""
    saves = [rank.spans.of("checkpoint") for rank in run.ranks]
    durations = np.concatenate([save.duration for save in saves])
    summary = summarize(durations)
    if summary is None:
        return []
    sizes = np.concatenate([save.value for save in saves])
    return [
        Evidence(
            text=f"{summary.count} saves of {sizes.mean() / 1e6:.0f} MB took "
            f"{summary.mean / 1e6:.0f} ms each",
            value=summary.mean,
            unit="ns",
            source="steps",
        )
    ]


def compilation_evidence(run: Run) -> list[Evidence]:
    """How many compilations in the measured steps, and how many of them were not the first."""
    durations, again = [], 0
    for rank in run.ranks:
        spans, _ = _in_measured_steps(rank, "compile")
        durations.append(spans.duration)
        again += int((spans.value > 0).sum())
    summary = summarize(np.concatenate(durations))
    if summary is None:
        return []
    return [
        Evidence(
            text=f"torch.compile compiled {summary.count} times in the measured steps, "
            f"{summary.mean / 1e6:.3g} ms each; {again} times what it had compiled before, for "
            "inputs that it had not seen",
            value=summary.count,
            unit="count",
            source="steps",
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collected:
    """Garbage collections in the measured steps of all ranks."""

    durations: NDArray[np.int64]
    """Nanoseconds."""
    step_count: int
    place: str
    """The line that was running in most of that time; '' where none of the user's was."""
    place_ratio: float
    """Share of the time at that line."""


def _collected(run: Run) -> _Collected:
    durations, by_place, step_count = [np.empty(0, dtype=np.int64)], Counter[str](), 0
    for rank in run.ranks:
        spans, steps = _in_measured_steps(rank, "garbage_collection")
        spans = spans.take(spans.thread == rank.steps.thread)
        durations.append(spans.duration)
        step_count += steps
        for name, duration in zip(spans.name.tolist(), spans.duration.tolist(), strict=True):
            by_place[spans.names[name]] += duration
    place, longest = max(by_place.items(), key=lambda item: item[1], default=("", 0))
    return _Collected(
        durations=np.concatenate(durations),
        step_count=step_count,
        place=place,
        place_ratio=longest / max(1, by_place.total()),
    )


def collecting(run: Run) -> str:
    """Collecting garbage in words, with the line where most of it happens."""
    found = _collected(run)
    mostly = "" if found.place_ratio >= 0.995 else "mostly "
    return f"collecting garbage ({mostly}at {found.place})" if found.place else "collecting garbage"


def collection_evidence(run: Run) -> list[Evidence]:
    """How often and how long Python collected garbage, and where."""
    found = _collected(run)
    summary = summarize(found.durations)
    if summary is None:
        return []
    where = f", {found.place_ratio:.0%} of the time at {found.place}" if found.place else ""
    return [
        Evidence(
            text=f"Python collected garbage {summary.count} times in {found.step_count} steps, "
            f"{summary.mean / 1e6:.3g} ms each{where}",
            value=summary.mean,
            unit="ns",
            source="steps",
        )
    ]


def _in_measured_steps(rank: Rank, kind: str) -> tuple[Spans, int]:
    """What of one kind began in a rank's measured steps, and how many those are."""
    rows = rank.steps.measured()
    steps = Intervals(rank.steps.start[rows], rank.steps.end[rows])
    spans = rank.spans.of(kind)
    return spans.take(contains(union(steps), spans.start)), int(rows.sum())
