"""Passes of modules that are not trained, such as a frozen backbone, in the steps of a training."""

from __future__ import annotations

import numpy as np

from stepscope import intervals
from stepscope.analysis.steps.evaluation import find_predictions, mask_fetched, may_predict
from stepscope.analysis.steps.phases import WORK_KINDS, PhaseSpans
from stepscope.analysis.steps.spans import Spans
from stepscope.analysis.steps.steps import Steps


def measure_untrained_passes(spans: Spans, steps: Steps) -> dict[str, float]:
    """Measure the predictions on batches of training by modules of classes that never train.

    Args:
        spans: spans of the process.
        steps: steps of the process.

    Returns:
        Shares of the forward passes of the measured steps by class.
    """
    phases = PhaseSpans.of_thread(spans, steps.thread)
    if not may_predict(phases):
        return {}
    top = phases.select_outermost(*WORK_KINDS)
    forward, predicts = top.is_kind("forward"), find_predictions(top)
    trains = top.is_kind("backward", "optimizer") | (forward & ~predicts)
    trained = np.unique(top.name[forward & ~predicts])
    if not len(trained):
        return {}
    measured = steps.measured()
    extent = intervals.union(intervals.Intervals(steps.start[measured], steps.end[measured]))
    counted = forward & intervals.contains(extent, top.start)
    counted &= ~intervals.contains(steps.evaluation, top.start)
    total_ns = max(1, int(top.duration[counted].sum()))
    untrained = counted & predicts & mask_fetched(top, trains) & ~np.isin(top.name, trained)
    shares = {}
    for code in np.unique(top.name[untrained]).tolist():
        rows = np.flatnonzero(untrained & (top.name == code))
        shares[top.name_of(int(rows[0]))] = float(top.duration[rows].sum()) / total_ns
    return shares
