"""Epochs: duration and step count of passes over the training data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import FLAG_NO_RESULT
from stepscope.intervals import Int
from stepscope.run.run import Rank, Run

NO_STEPS = "no training steps were recorded, and epochs are counted by their DataLoader"
NO_LOADER = "the training steps use no torch DataLoader, and epochs are counted by its passes"
NO_EPOCH = "no pass over the training data was complete: the record ends within the first one"
RESTARTED_LOADER = "the DataLoader is restarted for every batch, so its passes are not epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """Complete passes of the DataLoader that feeds training, on the first rank."""

    count: int
    mean_ns: float
    """From the start of a pass to the start of the next, evaluation and checkpoints in between
    included. The last pass ends when the loader is exhausted."""
    steps: float
    """Mean training steps per epoch."""


def find_epochs(run: Run) -> Epochs | str:
    """Find the epochs of a job, or return one sentence on why they are unknown."""
    if not run.ranks:
        return NO_STEPS
    rank = run.ranks[0]
    if rank.loader is None:
        return NO_LOADER
    borders = _borders(rank, rank.loader.name)
    if len(borders) < 2:
        return NO_EPOCH
    first, last = np.searchsorted(rank.steps.start, [borders[0], borders[-1]]).tolist()
    count = len(borders) - 1
    if last - first < 2 * count:
        return RESTARTED_LOADER
    return Epochs(
        count=count,
        mean_ns=float(borders[-1] - borders[0]) / count,
        steps=(last - first) / count,
    )


def _borders(rank: Rank, name: str) -> Int:
    """Find the starts of passes of one loader, and the end of the last one if it was complete."""
    spans = rank.spans.of("loader_start", "data_wait")
    spans = spans.take(spans.thread == rank.steps.thread)
    waits = spans.is_kind("data_wait")
    is_loader = waits & spans.is_named(name)
    # A start span names the dataset, which loaders share: the span after it tells them apart.
    start_rows = np.flatnonzero(~waits)
    followed_rows = start_rows[start_rows + 1 < len(spans)]
    starts = spans.start[followed_rows[is_loader[followed_rows + 1]]]
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    exhausted = is_loader & spans.has_flag(FLAG_NO_RESULT) & (spans.start > starts[-1])
    ends = spans.end[exhausted][:1]
    return np.append(starts, ends)
