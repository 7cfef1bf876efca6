"""Times of a job that its account adds up, means over ranks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepscope import intervals
from stepscope.analysis import Spans
from stepscope.run import JobTime, Run

SAVE_GAP_NS = 1_000_000_000
"""Saves that follow each other within this time are of one checkpoint."""


def measure_compilation(run: Run, time: JobTime, *, again: bool = False) -> float:
    """Measure the compilation in the first steps, the mean over ranks.

    Args:
        run: the run.
        time: time of the job.
        again: count only what was compiled before, for other shapes.
    """

    def select(spans: Spans) -> Spans:
        compilations = spans.of("compile")
        return compilations.take(compilations.value > 0) if again else compilations

    return _measure_spans(run, time, "warm_up", select)


def measure_fetches(run: Run, time: JobTime, key: str) -> float:
    """Measure the waits for batches, and the starts of loaders, in the time of a class, the mean
    over ranks."""
    return _measure_spans(run, time, key, lambda spans: spans.of("data_wait", "loader_start"))


def _measure_spans(run: Run, time: JobTime, key: str, select: Callable[[Spans], Spans]) -> float:
    total_ns = 0
    divided = {rank.rank: rank for rank in time.ranks}
    for rank in run.ranks:
        entry = divided.get(rank.process.rank)
        if entry is not None:
            spans = intervals.union(select(rank.spans).intervals)
            total_ns += int(intervals.overlap(entry.division.select(key), spans).sum())
    return total_ns / max(1, time.rank_count)


def measure_before_steps(time: JobTime, key: str) -> float:
    """Measure the time of a class before the first step, the mean over ranks: a load of weights,
    or an evaluation of the untrained model, happens once."""
    if time.first_step_ns is None:
        return 0.0
    first_ns, total_ns = time.start_ns + time.first_step_ns, 0
    for rank in time.ranks:
        pieces = rank.division.select(key)
        total_ns += int((np.minimum(pieces.end, first_ns) - pieces.start).clip(0).sum())
    return total_ns / max(1, time.rank_count)


def measure_between_steps(time: JobTime, key: str) -> float:
    """Measure the time of a class from the first step to the last, the mean over ranks."""
    total_ns = 0
    for rank in time.ranks:
        steps, pieces = rank.division.select("steps"), rank.division.select(key)
        if len(steps.start):
            edges = int(steps.start[0]), int(steps.end[-1])
            total_ns += int((np.clip(pieces.end, *edges) - np.clip(pieces.start, *edges)).sum())
    return total_ns / max(1, time.rank_count)


def measure_saves(run: Run) -> tuple[int, int]:
    """Measure the checkpoints of the rank that spent most on them, over all starts of the job:
    number and time. Files that are written one right after the other are one checkpoint."""
    measured: dict[int | None, tuple[int, int]] = {}
    for rank in run.all_ranks:
        spans = intervals.union(rank.spans.of("checkpoint").intervals)
        gaps = spans.start[1:] - spans.end[:-1]
        count = len(spans.start[:1]) + int((gaps > SAVE_GAP_NS).sum())
        before = measured.get(rank.process.rank, (0, 0))
        measured[rank.process.rank] = before[0] + count, before[1] + spans.total_ns
    return max(measured.values(), key=lambda counted: counted[1], default=(0, 0))
