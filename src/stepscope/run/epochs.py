"""Passes over the training data: how long one takes and how many steps it has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepscope.analysis import FLAG_NO_RESULT
from stepscope.intervals import Int
from stepscope.run.run import Rank, Run

NO_STEPS = "no watched step, and epochs are counted by the DataLoader that feeds those"
NO_LOADER = "no torch DataLoader feeds the training steps, and epochs are counted by its passes"
NO_EPOCH = "no pass over the training data was complete: the record ends within the first"
ANEW = "the DataLoader is started anew for every batch: its passes are no epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """Complete passes of the DataLoader that feeds training, on the first rank."""

    count: int
    mean_ns: float
    """From the start of a pass to that of the next: what is evaluated or saved in between
    included. The last pass ends when the loader has no more batches."""
    steps: float
    """Training steps in one, on average."""


def find_epochs(run: Run) -> Epochs | str:
    """The epochs of a job, or one sentence that says why they are not known."""
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
        return ANEW
    return Epochs(
        count=count,
        mean_ns=float(borders[-1] - borders[0]) / count,
        steps=(last - first) / count,
    )


def _borders(rank: Rank, name: str) -> Int:
    """When passes of one loader begin, and when the last of them ends if it was complete."""
    spans = rank.spans.of("loader_start", "data_wait")
    spans = spans.take(spans.thread == rank.steps.thread)
    waits = spans.is_kind("data_wait")
    ours = waits & spans.is_named(name)
    # A start bears the name of its dataset, which others share: what it starts says whose it is.
    begun = np.flatnonzero(~waits)
    followed = begun[begun + 1 < len(spans)]
    starts = spans.start[followed[ours[followed + 1]]]
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    exhausted = ours & spans.has_flag(FLAG_NO_RESULT) & (spans.start > starts[-1])
    ends = spans.end[exhausted][:1]
    return np.append(starts, ends)
