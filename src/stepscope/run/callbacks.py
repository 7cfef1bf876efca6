"""Calls of a trainer's callbacks and loggers in the steps of a training process."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from stepscope.intervals import Intervals, overlap, subtract, union
from stepscope.run.span_table import read_spans, spans_of
from stepscope.spool import CALLBACK_PREFIX

if TYPE_CHECKING:
    from stepscope.run.run import Rank


def measure_callbacks(rank: Rank) -> dict[str, int]:
    """Measure the calls on the training thread in the measured steps, without evaluation.

    Returns:
        Nanoseconds by class and method, such as `ProgressBar.on_train_batch_end`.
    """
    steps, process = rank.steps, rank.process.process
    condition = f"starts_with(name, '{CALLBACK_PREFIX}')"
    rows = read_spans(rank.run.reader, [process], ["annotation"], condition=condition)
    spans = spans_of(rows.get(process))
    spans = spans.take(spans.thread == steps.thread)
    is_measured = steps.measured()
    measured = union(Intervals(steps.start[is_measured], steps.end[is_measured]))
    inside = overlap(spans.intervals, subtract(measured, steps.evaluation))
    totals = Counter[str]()
    for name in np.unique(spans.name).tolist():
        label = str(spans.names[name]).removeprefix(CALLBACK_PREFIX)
        totals[label] += int(inside[spans.name == name].sum())
    return dict(totals)
