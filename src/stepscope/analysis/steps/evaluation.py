"""Evaluation within a training job, and steps of a process that calls functions compiled by JAX.

A prediction is a forward pass without gradients; or one with gradients and no backward pass, of a
module in evaluation mode that trains in training mode, or between the training on a batch of the
DataLoader and the next fetch. Predictions are evaluation if the training
does not use them. With a DataLoader these are

    fetches whose batches are only predicted, and
    predictions between the training on a batch and the next fetch.

Any other run of predictions, between two pieces of training, is judged by its module and its mode:

    Predictions on a batch of the DataLoader that is trained on afterwards are part of training,
    unless the trained model makes them in evaluation mode.
    Training uses what it needs from its first iteration on: a teacher, a target network, pseudo
    labels, the actions of an agent. So if such predictions begin only after the first step, they
    are evaluation. Those between a forward and its backward pass are not: the loss uses them.
    Of predictions that begin earlier, several in a row (or one in evaluation mode) in less than
    half of the steps are evaluation.
    Predictions before the training by modules of classes that never train prepare its inputs.

An agent that collects experience predicts from the start as well, and fewer elements at a time than
it trains on. These predictions are no evaluation, however rare. The exception are batches of a
DataLoader.

Of the functions that JAX compiles only those that return state train. Calls of others are
predictions where their batch is fetched for them alone; elsewhere they may be anything.

Step boundaries of a process that calls functions compiled by JAX. A compiled function may be
anything, a whole training step or the preparation of a batch. The one that trains is inferred: it
returns parameters, their gradients or the state of an optimizer, that is, arrays of the shapes and
types of its arguments. Of the functions that do so and are called regularly it is the one that
returns most, and of several the one called most often. So a micro-batch is no step if a function
that is called less often updates more.

Each of its calls ends a step, together with the waits for results that follow before any other
work: reading the loss of a step belongs to it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.steps.phases import FETCH_KINDS, WORK_KINDS, PhaseSpans
from stepscope.analysis.steps.spans import (
    FLAG_EVAL_MODE,
    FLAG_NO_GRAD,
    FLAG_NO_RESULT,
    FLAG_SIZED,
    SIZE_BITS,
    Spans,
)

TRAINING_MODES = ("TRAIN", "GLOBAL")
"""Modes of training steps in SageMaker Debugger's files. GLOBAL is that of a script that names no
modes."""
EVALUATION_MODES = ("EVAL", "PREDICT")
RECORDING_MODE = "RECORDING"
"""Mode in which stepscope computes figures of the model: work that the job does not have alone."""
_MIN_RUN_LENGTH = 2
"""Fewer predictions in a row, without evaluation mode, are part of training."""
_MAX_METRICS_RATIO = 1 / 64
"""State of a compiled function, as a share of that of the one that trains, that is no more than
sums of metrics."""
_COLLECTING_RATIO = 0.5
"""Predictions of fewer elements than this share of the training's median may collect experience."""


ModuleMode = tuple[str, int, bool]
"""Name and address of a module, and whether it is in evaluation mode."""


def find_first_predictions(spans: Spans, thread: int, first_end_ns: int) -> frozenset[ModuleMode]:
    """Find the modules that predict in the first step, which a search for later ones has to know.

    Args:
        spans: spans of the process, from its start on.
        thread: training thread.
        first_end_ns: end of the first training step.
    """
    top = PhaseSpans.of_thread(spans, thread).select_outermost(*WORK_KINDS)
    rows = np.flatnonzero(find_predictions(top) & (top.start < first_end_ns))
    return frozenset(_describe_module(top, row) for row in rows.tolist())


def _describe_module(top: Spans, row: int) -> ModuleMode:
    one = top.take(np.array([row]))
    return one.name_of(0), int(_read_addresses(one)[0]), bool(one.has_flag(FLAG_EVAL_MODE)[0])


def _read_addresses(forward: Spans) -> intervals.Int:
    return np.where(forward.has_flag(FLAG_SIZED), forward.value >> SIZE_BITS, forward.value)


class UnusedPredictions(NamedTuple):
    """Predictions that no training step uses."""

    evaluation: intervals.Intervals
    preparation: intervals.Intervals = intervals.EMPTY
    """Of inputs, before the training."""


def find_evaluation(
    spans: Spans,
    phases: PhaseSpans,
    first_end_ns: int,
    first_predictions: frozenset[ModuleMode] = frozenset(),
) -> UnusedPredictions:
    """Find the evaluation of a job: marked ranges, and batches that are only predicted; and the
    predictions that prepare its inputs.

    Args:
        spans: spans of the training thread.
        phases: the phases among them.
        first_end_ns: end of the first training step.
        first_predictions: modules that predict in the first step where that is not in the spans.
    """
    marked = _find_modes(spans, EVALUATION_MODES)
    only_marked = UnusedPredictions(intervals.unite(marked))
    if not may_predict(phases):
        return only_marked
    top = phases.select_outermost(*WORK_KINDS)
    predicts = find_predictions(top)
    trains = top.is_kind("backward", "optimizer") | (top.is_kind("forward") & ~predicts)
    if not trains.any() and top.is_kind("dispatch").any():
        return UnusedPredictions(intervals.unite(marked, *_find_evaluated_calls(top)))
    if not trains.any() or not predicts.any():
        return only_marked  # no predictions; or nothing else, and they are the job's purpose
    is_fetched = mask_fetched(top, trains)
    module = _identify_modules(top)
    work = _Work(top, trains, predicts, is_fetched, module, first_end_ns, first_predictions)
    work.predicts = predicts & ~_find_collecting(work)
    if not work.predicts.any():
        return only_marked
    runs = _find_unused_runs(work)
    inferred = [runs.evaluation]
    if top.is_kind("data_wait").any():
        inferred += [_find_evaluated_fetches(top, trains, work.predicts)]
        inferred += [_find_predictions_after_training(work)]
    return UnusedPredictions(intervals.unite(marked, *inferred), runs.preparation)


def may_predict(phases: PhaseSpans) -> bool:
    """Return False where no forward pass only predicts: a long run is told so without copies."""
    spans = phases.spans
    in_mode = any(
        group.kind == "forward" and group.flags & (FLAG_NO_GRAD | FLAG_EVAL_MODE)
        for group in spans.present
    )
    if spans.has_kind("dispatch") or in_mode:
        return True
    return bool(_find_passes_after_training(spans, phases.is_outermost(*WORK_KINDS)).any())


def find_recording(spans: Spans) -> intervals.Intervals:
    """Find the time in which stepscope computes figures of the model."""
    return intervals.unite(_find_modes(spans, (RECORDING_MODE,)))


def _find_modes(spans: Spans, names: tuple[str, ...]) -> intervals.Intervals:
    modes = spans.of("mode")
    rows = [i for i in range(len(modes)) if modes.name_of(i) in names]
    return intervals.Intervals(modes.start[rows], modes.end[rows])


class _Work(msgspec.Struct):
    """Outermost spans of the training thread."""

    top: Spans
    trains: NDArray[np.bool_]
    """Mask of the spans that train."""
    predicts: NDArray[np.bool_]
    """Mask of the predictions that may be evaluation."""
    is_fetched: NDArray[np.bool_]
    """Mask of the spans before which a batch was fetched that has not been trained on."""
    module: intervals.Int
    """Number of the module of a forward pass; 0 for other spans."""
    first_end_ns: int
    """End of the first step."""
    first_predictions: frozenset[ModuleMode]

    def find_late(self) -> NDArray[np.bool_]:
        """Mask the predictions of modules that, in the same mode, predict nothing in the first
        step."""
        rows = np.flatnonzero(self.predicts)
        group = 2 * self.module[rows] + self.top.has_flag(FLAG_EVAL_MODE)[rows]
        is_early = np.zeros(2 * len(self.top) + 2, dtype=np.bool_)
        is_early[group[self.top.start[rows] < self.first_end_ns]] = True
        if self.first_predictions:
            for code, row in zip(*np.unique(group, return_index=True), strict=True):
                is_early[code] |= _describe_module(self.top, rows[row]) in self.first_predictions
        is_late = self.predicts.copy()
        is_late[rows] = ~is_early[group]
        return is_late


def _identify_modules(top: Spans) -> intervals.Int:
    """Number the modules of forward passes from 1 on; 0 for other spans."""
    forward = top.take(top.is_kind("forward"))
    identity = _read_addresses(forward)
    # Addresses have at most 48 bits, and modules of one address one after the other differ in name.
    _, number = np.unique(identity | forward.name.astype(np.int64) << 48, return_inverse=True)
    module = np.zeros(len(top), dtype=np.int64)
    module[top.is_kind("forward")] = number + 1
    return module


def find_predictions(top: Spans) -> NDArray[np.bool_]:
    """Mask the forward passes that only predict."""
    forward = top.is_kind("forward")
    predicts = forward & top.has_flag(FLAG_NO_GRAD)
    predicts |= _find_passes_after_training(top, np.ones(len(top), dtype=np.bool_))
    differentiable = forward & ~predicts
    in_eval_mode = differentiable & top.has_flag(FLAG_EVAL_MODE)
    if not in_eval_mode.any():
        return predicts
    module = _identify_modules(top)
    in_eval_mode &= np.isin(module, module[differentiable & ~in_eval_mode])
    other_work = np.flatnonzero(
        top.is_kind("backward", "optimizer", *FETCH_KINDS) | (differentiable & ~in_eval_mode)
    )
    rows = np.flatnonzero(in_eval_mode)
    following = np.append(other_work, -1)[np.searchsorted(other_work, rows)]
    has_backward = np.append(top.is_kind("backward"), False)[following]
    predicts[rows[~has_backward]] = True
    return predicts


def _find_passes_after_training(spans: Spans, is_top: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask the forward passes between the last backward pass or optimizer step on a fetched batch
    and the next fetch; without those whose backward pass follows that fetch, because the script
    fetches the next batch in between.

    Args:
        spans: spans of the training thread.
        is_top: mask of its outermost work, to which all of this applies.
    """
    mask = is_top & spans.is_kind("forward")
    is_backward = is_top & spans.is_kind("backward")
    is_pass = mask | is_backward
    follows = np.append(is_backward[is_pass][1:], False)
    mask[is_pass] &= ~follows  # no backward pass follows
    rows = np.flatnonzero(mask)
    if not len(rows):
        return mask
    fetches = np.flatnonzero(is_top & spans.is_kind(*FETCH_KINDS))
    trains = np.flatnonzero(is_backward | (is_top & spans.is_kind("optimizer")))
    fetch = np.searchsorted(fetches, rows)
    is_between = (fetch > 0) & (fetch < len(fetches))
    rows, fetch = rows[is_between], fetch[is_between]
    first, position, last = np.searchsorted(trains, [fetches[fetch - 1], rows, fetches[fetch]])
    mask[:] = False
    mask[rows[(first < position) & (position == last)]] = True
    return mask


def _follow_last(selected: NDArray[np.bool_], group: intervals.Int) -> NDArray[np.bool_]:
    """Mask the spans after the last selected one of their group; none of groups without any."""
    last = np.full(int(group.max(initial=0)) + 1, len(group))
    last[group[selected]] = np.flatnonzero(selected)  # of several, the last is kept
    return np.arange(len(group)) > last[group]


def _find_collecting(work: _Work) -> NDArray[np.bool_]:
    """Mask the predictions by which an agent collects experience."""
    top = work.top
    size = np.where(top.has_flag(FLAG_SIZED), top.value & ((1 << SIZE_BITS) - 1), 0)
    collects = work.predicts & (size > 0) & ~work.find_late() & ~work.is_fetched
    trained = work.trains & top.is_kind("forward") & (size > 0)
    medians = {
        name: np.median(size[trained & (top.name == name)]) for name in np.unique(top.name[trained])
    }
    smallest = min(medians.values(), default=0.0)
    for name in np.unique(top.name[collects]):  # the agent may act with a copy of its module
        # One that is trained by calls of its parts only is called as a whole to act.
        limit = _COLLECTING_RATIO * medians.get(name, smallest)
        collects &= (top.name != name) | (size < limit)
    return collects


def mask_fetched(top: Spans, trains: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mask the spans before which a batch was fetched that has not been trained on."""
    is_fetch = top.is_kind(*FETCH_KINDS)
    rows = np.flatnonzero(trains | is_fetch)
    has_batch = (is_fetch & ~top.has_flag(FLAG_NO_RESULT))[rows]
    # Until the next row of these each span has the state of the one before it.
    counts = np.diff(np.concatenate([[0], rows + 1, [len(top)]]))
    is_fetched: NDArray[np.bool_] = np.repeat(np.append(False, has_batch), counts)
    return is_fetched


def _find_unused_runs(work: _Work) -> UnusedPredictions:
    """Find runs of predictions that the training does not use, between two pieces of training."""
    top, predicts = work.top, work.predicts
    separates = work.trains | top.is_kind(*FETCH_KINDS)
    run: intervals.Int = np.cumsum(separates, dtype=np.int64)  # number of the separators before
    rows = np.flatnonzero(predicts)
    separators = np.flatnonzero(separates)
    before = np.append(separators, -1)[run[rows] - 1]  # -1 without any
    after = np.append(separators, -1)[run[rows]]
    is_forward = np.append(top.is_kind("forward"), False)
    is_backward = np.append(top.is_kind("backward"), False)
    is_in_loss = is_forward[before] & is_backward[after]
    is_judged = ~work.is_fetched | _is_evaluated_model(work)
    is_unused = work.find_late() | _find_rare_predictions(work, run)
    rows = rows[(is_judged & is_unused)[rows] & ~is_in_loss]
    prepares = _find_preparing(work)[rows]
    return UnusedPredictions(
        _join_runs(top, rows[~prepares], run), _join_runs(top, rows[prepares], run)
    )


def _join_runs(top: Spans, rows: intervals.Int, run: intervals.Int) -> intervals.Intervals:
    """Join the spans of each run, of which `run` has the number by row."""
    if not len(rows):
        return intervals.EMPTY
    starts = np.flatnonzero(np.diff(run[rows], prepend=-1))
    ends = np.append(starts[1:], len(rows)) - 1
    return intervals.Intervals(top.start[rows[starts]], top.end[rows[ends]])


def _is_evaluated_model(work: _Work) -> NDArray[np.bool_]:
    """Mask the predictions in evaluation mode of modules that train as well."""
    is_trained = np.zeros(len(work.top) + 1, dtype=np.bool_)
    is_trained[work.module[work.trains]] = True
    evaluated: NDArray[np.bool_] = work.predicts & work.top.has_flag(FLAG_EVAL_MODE)
    return evaluated & is_trained[work.module]


def _find_preparing(work: _Work) -> NDArray[np.bool_]:
    """Mask the predictions before the training by modules of classes that never train: what they
    compute, such as the embeddings of a teacher, is an input of it."""
    top, trained = work.top, work.trains & work.top.is_kind("forward")
    is_early = work.predicts & (top.start < work.first_end_ns)
    is_early[int(np.argmax(work.trains)) :] = False
    prepares: NDArray[np.bool_] = is_early & ~np.isin(top.name, np.unique(top.name[trained]))
    return prepares


def _find_rare_predictions(work: _Work, run: intervals.Int) -> NDArray[np.bool_]:
    """Mask the predictions in runs of several, or in evaluation mode, in less than half of the
    steps, module by module.

    Args:
        run: number of the run of each span.
    """
    top = work.top
    is_end = top.is_kind("optimizer") if top.is_kind("optimizer").any() else top.is_kind("backward")
    rows = np.flatnonzero(work.predicts)
    run, module = run[rows], work.module[rows]
    is_long = np.bincount(run)[run] >= _MIN_RUN_LENGTH
    calls = np.unique(module * (run.max() + 1) + run)  # one of each module and run
    run_count = np.bincount(calls // (run.max() + 1))[module]
    is_rare = np.zeros(len(top), dtype=np.bool_)
    is_rare[rows] = (2 * run_count < max(1, int(is_end.sum()))) & (
        is_long | top.has_flag(FLAG_EVAL_MODE)[rows]
    )
    return is_rare


def _find_evaluated_fetches(
    top: Spans, trains: NDArray[np.bool_], predicts: NDArray[np.bool_]
) -> intervals.Intervals:
    """Find runs of fetches whose batches are only predicted."""
    is_fetch = top.is_kind(*FETCH_KINDS)
    first = np.flatnonzero(is_fetch)
    group = np.cumsum(is_fetch) - 1  # -1 for spans before the first fetch
    count = len(first)
    inside = group >= 0
    has_training = np.bincount(group[inside], weights=trains[inside], minlength=count) > 0
    has_prediction = np.bincount(group[inside], weights=predicts[inside], minlength=count) > 0
    is_last = top.has_flag(FLAG_NO_RESULT)[first]
    # The end of an older iterator is waited for after the start of the one that replaces it.
    is_last[1:] &= ~top.is_kind("loader_start")[first[:-1]]
    evaluates = _spread_to_empty(
        has_prediction & ~has_training, has_training | has_prediction, is_last=is_last
    )
    starts, stops = _find_runs(evaluates)
    # A run ends with its last prediction, or with the fetch after it that found no more batches.
    predicted = np.flatnonzero(predicts)
    limit = np.append(first, len(top))[stops]
    done = np.searchsorted(predicted, limit, side="left") - 1
    last = np.maximum(first[stops - 1], predicted[np.maximum(done, 0)])
    next_start = np.append(top.start, top.end[-1])[last + 1]
    ends = np.where(last + 1 < len(top), next_start, top.end[last])
    return intervals.Intervals(top.start[first[starts]], ends)


def _find_evaluated_calls(top: Spans) -> list[intervals.Intervals]:
    """Find the fetches whose batches are only passed to compiled functions that do not train."""
    calls, training = top.is_kind("dispatch"), find_training_calls(top)
    if not len(training) or not top.is_kind("data_wait").any():
        return []
    trains = calls & (top.value > _MAX_METRICS_RATIO * training.value.max())
    return [_find_evaluated_fetches(top, trains, calls & ~trains)]


def _find_predictions_after_training(work: _Work) -> intervals.Intervals:
    """Find predictions between the training on a batch and the next fetch: they use no loader.

    A prediction that is followed by training, such as a teacher's, belongs to the training.
    """
    top, trains, predicts = work.top, work.trains, work.predicts
    group = np.cumsum(top.is_kind(*FETCH_KINDS), dtype=np.int64)
    after = np.flatnonzero(predicts & _follow_last(trains, group))
    if not len(after):
        return intervals.EMPTY
    starts = np.flatnonzero(np.diff(group[after], prepend=-1))
    return intervals.Intervals(
        top.start[after[starts]], top.end[after[np.append(starts[1:], len(after)) - 1]]
    )


def _find_runs(mask: NDArray[np.bool_]) -> tuple[intervals.Int, intervals.Int]:
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


MIN_CALL_RATIO = 1 / 64
"""Functions that are called less often than this share of the most often called one that returns
state do not train."""


def find_training_calls(spans: Spans) -> Spans:
    """Find the calls of the function that trains; empty if no function returns state.

    Args:
        spans: spans of the training thread, or of all threads.
    """
    calls = spans.of("dispatch")
    calls = calls.take((calls.value > 0) & ~calls.unfinished)
    if not len(calls):
        return calls
    names, function, counts = np.unique(calls.name, return_inverse=True, return_counts=True)
    state_bytes = np.zeros(len(names), dtype=np.int64)
    np.maximum.at(state_bytes, function, calls.value)
    state_bytes[counts < MIN_CALL_RATIO * counts.max()] = 0
    training = np.lexsort([counts, state_bytes])[-1]
    return calls.take(function == training)


def find_call_boundaries(phases: PhaseSpans, evaluation: intervals.Intervals) -> intervals.Int:
    """Find the ends of the calls that end steps, with the waits that follow each."""
    calls = find_training_calls(phases.spans)
    calls = calls.take(~intervals.contains(evaluation, calls.start))
    return find_ends_of_waits(phases, calls)


def find_ends_of_waits(phases: PhaseSpans, calls: Spans) -> intervals.Int:
    """Find the ends of calls, each with the waits for results that follow it."""
    top = phases.spans.take(phases.parent < 0)
    row = np.searchsorted(top.start, calls.start)
    is_other = ~top.is_kind("device_wait", "garbage_collection")
    work = np.append(np.flatnonzero(is_other), len(top))
    following = work[np.minimum(np.searchsorted(work, row, side="right"), len(work) - 1)]
    # Spans that are not nested end in the order in which they start.
    return np.maximum(calls.end, top.end[following - 1]) if len(calls) else calls.end
