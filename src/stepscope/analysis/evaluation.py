"""Evaluation within a training job: marked by the script, or inferred from forward passes.

Inferred evaluation is batches that are only predicted: forward passes without gradients, no
training. With a DataLoader these are

    fetches whose batches are only predicted, and
    predictions between the training on a batch and the next fetch;

without one they are runs of predictions in less than half of the steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.phases import FETCH_KINDS, WORK_KINDS, PhaseSpans
from stepscope.analysis.spans import FLAG_NO_GRAD, FLAG_NO_RESULT, Spans
from stepscope.intervals import EMPTY, Int, Intervals, unite

EVALUATION_MODES = ("EVAL", "PREDICT")
_MIN_RUN_LENGTH = 2
"""Fewer predictions in a row, without a DataLoader, are part of training."""


def find_evaluation(spans: Spans, phases: PhaseSpans) -> Intervals:
    """Find the evaluation of a job: marked ranges, and batches that are only predicted.

    Args:
        spans: spans of the training thread.
        phases: the phases among them.
    """
    modes = spans.of("mode")
    rows = [i for i in range(len(modes)) if modes.name_of(i) in EVALUATION_MODES]
    marked = Intervals(modes.start[rows], modes.end[rows])
    top = phases.select_outermost(*WORK_KINDS)
    trains, predicts = _classify_work(top)
    if not trains.any() or not predicts.any():
        inferred = EMPTY  # no predictions; or nothing else, and they are the purpose of the job
    elif top.is_kind("data_wait").any():
        inferred = unite(_find_evaluated_fetches(top), _find_predictions_after_training(top))
    else:
        inferred = _find_prediction_runs(top)
    return unite(marked, inferred)


def _classify_work(top: Spans) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mask the outermost spans that train, and those that only predict."""
    forward = top.is_kind("forward")
    predicts = forward & top.has_flag(FLAG_NO_GRAD)
    trains = top.is_kind("backward", "optimizer") | (forward & ~predicts)
    return trains, predicts


def _find_evaluated_fetches(top: Spans) -> Intervals:
    """Find runs of fetches whose batches are only predicted."""
    trains, predicts = _classify_work(top)
    is_fetch = top.is_kind(*FETCH_KINDS)
    first = np.flatnonzero(is_fetch)
    group = np.cumsum(is_fetch) - 1  # -1 for spans before the first fetch
    count = len(first)
    inside = group >= 0
    has_training = np.bincount(group[inside], weights=trains[inside], minlength=count) > 0
    has_prediction = np.bincount(group[inside], weights=predicts[inside], minlength=count) > 0
    evaluates = _spread_to_empty(
        has_prediction & ~has_training,
        has_training | has_prediction,
        is_last=top.has_flag(FLAG_NO_RESULT)[first],
    )
    starts, stops = _find_runs(evaluates)
    # A run ends with its last prediction, or with the fetch after it that found no more batches.
    predicted = np.flatnonzero(predicts)
    limit = np.append(first, len(top))[stops]
    done = np.searchsorted(predicted, limit, side="left") - 1
    last = np.maximum(first[stops - 1], predicted[np.maximum(done, 0)])
    next_start = np.append(top.start, top.end[-1])[last + 1]
    ends = np.where(last + 1 < len(top), next_start, top.end[last])
    return Intervals(top.start[first[starts]], ends)


def _find_predictions_after_training(top: Spans) -> Intervals:
    """Find predictions between the training on a batch and the next fetch: they use no loader.

    A prediction that is followed by training, such as a teacher's, belongs to the training.
    """
    trains, predicts = _classify_work(top)
    group = np.cumsum(top.is_kind(*FETCH_KINDS))
    work = np.flatnonzero(trains | predicts)
    last_training = np.full(int(group[-1]) + 1, len(top))  # of groups without any: past all work
    last_training[group[trains]] = np.flatnonzero(trains)  # of several, the last is kept
    after = work[predicts[work] & (work > last_training[group[work]])]
    if not len(after):
        return EMPTY
    starts = np.flatnonzero(np.diff(group[after], prepend=-1))
    return Intervals(
        top.start[after[starts]], top.end[after[np.append(starts[1:], len(after)) - 1]]
    )


def _find_runs(mask: NDArray[np.bool_]) -> tuple[Int, Int]:
    """Find the runs of True: their first indices, and the indices after their last."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return changes[::2].astype(np.int64), changes[1::2].astype(np.int64)


def _spread_to_empty(
    value: NDArray[np.bool_], has_work: NDArray[np.bool_], *, is_last: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Give fetches without work the class of a neighbour.

    A fetch that only found its iterator exhausted belongs to the work before it, any other (the
    start of an iterator) to the work after it.
    """
    spread = value.copy()
    for i in np.flatnonzero(~has_work[:-1] & ~is_last[:-1])[::-1]:
        spread[i] = spread[i + 1]
    for i in 1 + np.flatnonzero(~has_work[1:] & is_last[1:]):
        spread[i] = spread[i - 1]
    return spread


def _find_prediction_runs(top: Spans) -> Intervals:
    """Find two or more predictions in a row, in less than half of the steps.

    Predictions in most steps (a teacher model, a target network) are part of training. Copies of
    batches to the device may be between predictions and do not end a run.
    """
    trains, predicts = _classify_work(top)
    top = top.take(trains | predicts)
    starts, stops = _find_runs(predicts[trains | predicts])
    long_enough = stops - starts >= _MIN_RUN_LENGTH
    optimizer_count = max(1, int(top.is_kind("optimizer").sum()))
    if 2 * len(starts) >= optimizer_count:
        return EMPTY
    starts, stops = starts[long_enough], stops[long_enough]
    return Intervals(top.start[starts], top.end[stops - 1])
