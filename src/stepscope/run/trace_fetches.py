"""Fetches of batches in one trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis import (
    TIME_COLUMNS,
    Columns,
    TraceSteps,
    is_data_loader,
    is_step,
    make_intervals,
    match_rows,
)
from stepscope.intervals import EMPTY, Int, Intervals, contains, union, unite
from stepscope.run.trace_steps import read_marks
from stepscope.run.traces import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFetches:
    """Fetches of batches in one trace, by the training thread; arrays have one entry per fetch."""

    start_ns: Int
    duration_ns: Int
    has_workers: bool
    """True if DataLoader workers prepare the batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetches:
    """Fetches of batches by the training thread."""

    has_workers: bool
    """True if workers prepare the batches."""
    ns_per_step: float
    count_per_step: float


def measure_fetches(trace: Trace, steps: TraceSteps) -> Fetches | None:
    """Measure the fetches inside the steps; None without any."""
    fetches = read_fetches(trace)
    inside = contains(union(steps.extent), fetches.start_ns)
    if not inside.any():
        return None
    return Fetches(
        has_workers=fetches.has_workers,
        ns_per_step=float(fetches.duration_ns[inside].sum()) / len(steps.names),
        count_per_step=int(inside.sum()) / len(steps.names),
    )


def read_fetches(trace: Trace) -> TracedFetches:
    """Read the fetches of batches in a trace; of nested fetches the outermost."""
    ranges = [read_marks(trace), trace.columns("operators", ("name", "track", *TIME_COLUMNS))]
    fetches = find_fetches(ranges)
    return TracedFetches(
        start_ns=fetches.start,
        duration_ns=fetches.end - fetches.start,
        has_workers=any(bool(match_rows(part["name"], _has_workers).any()) for part in ranges),
    )


def _has_workers(name: str) -> bool:
    return "MultiProcessing" in name


def find_fetches(ranges: Sequence[Columns]) -> Intervals:
    """Find the fetches of batches by the training thread: the one with the steps and optimizer
    steps, where these are marked. Other threads may fetch ahead.

    Args:
        ranges: operators and annotations of the host, with `name`, `track` and times.
    """
    tracks = [part["track"][match_rows(part["name"], _is_of_training)] for part in ranges]
    training = np.unique(np.concatenate(tracks))
    fetches = []
    for part in ranges:
        rows = match_rows(part["name"], is_data_loader)
        if len(training):
            rows &= np.isin(part["track"], training)
        fetches.append(make_intervals(part, rows))
    return unite(EMPTY, *fetches)


def _is_of_training(name: str) -> bool:
    return is_step(name) or name.startswith("Optimizer.")
