"""Training steps: their boundaries, with and without optimizer steps, and the time by phase.

A step is the time between two boundaries. If the script marks steps, the marks are the
boundaries. Otherwise a boundary is the end of an optimizer step that is followed by new work: a
fetch of training data, or another step of the same optimizer (so that two optimizers stepping in
turn make one step, as in a GAN). In a process without optimizer steps it is the end of the last
backward pass of an iteration (below), in one that uses JAX the end of each call
of one compiled function (`steps.evaluation`), and in one that only predicts the end of the last
forward pass of a batch (below). The first step starts with the first recorded work, and the first
of a further model of XGBoost with its first round: the time between two trainings is in no step.

SageMaker Debugger records a step as a range, which ends before the next batch is fetched. There a
boundary is the end of a range, so that phases include the time between two ranges, and the duration
of a step is that of its range.

Evaluation inside a step (`steps.evaluation`) is excluded. The remaining time is the wall time of
the step, and the phases (`steps.phases`) including `other` sum to it.

Ends of training steps in a process without optimizer steps: updates by hand, own optimizer classes,
functional training. Every iteration has a backward pass, and ends with its last one; the update is
then the first work of the next step. Several passes of one iteration (gradient accumulation, two
losses) are told from iterations by what was recorded before each pass:

    if parameters were seen to be updated between passes, an iteration ends before each update,
    else if gradients were seen to be cleared, likewise,
    else an iteration ends before the next forward pass or fetch of data; without any, with each
    pass.

Passes that only compute gradients (`torch.autograd.grad`) are part of an iteration if others
accumulate gradients in parameters.

Steps of a process that only predicts, in a job in which nothing trains. A step is a batch of the
DataLoader, and ends with the last outermost forward pass, or call of a function that JAX compiles,
before the next fetch, and the waits for its result. Passes that follow
no fetch, the one that found no more batches or that of the only batch are steps themselves: each
call of the outermost module, and of modules of several classes that are called in turn one call of
each. So `generate()` on a batch of a loader is one step, and elsewhere each call of the model in it
is one. A process whose
first passes have gradients in training mode may be about to train: only many of them without a
backward pass tell that it does not.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope.analysis.steps.evaluation import (
    TRAINING_MODES,
    ModuleMode,
    UnusedPredictions,
    find_call_boundaries,
    find_ends_of_waits,
    find_evaluation,
    find_recording,
    find_training_calls,
)
from stepscope.analysis.steps.phases import (
    FETCH_KINDS,
    PHASES,
    WORK_KINDS,
    PhaseSpans,
    find_device_phases,
)
from stepscope.analysis.steps.spans import (
    FLAG_EVAL_MODE,
    FLAG_NEW_MODEL,
    FLAG_NO_GRAD,
    FLAG_NO_RESULT,
    Spans,
)
from stepscope.intervals import EMPTY, Int, Intervals, contains, overlap, union, unite

PREDICTION_KINDS = ("forward", "dispatch")
"""Kinds of spans that predict, where no function compiled by JAX trains."""
MIN_UNTRAINED_PASSES = 100
"""Fewer forward passes in training mode, with gradients and without a backward pass, may be the
start of a training. An agent plays that many moves before it learns from them."""
VALUED_KINDS = ("optimizer", "backward", "dispatch", "forward")
"""Kinds of spans whose values matter for finding steps."""
STEP_END_KINDS = ("step", "optimizer")
"""Kinds of spans that end steps: marks, or else optimizer steps."""
STEP_SOURCES = (STEP_END_KINDS, ("backward",), ("dispatch",), ("forward",))
"""The same for a job, by precedence: those of a row count where no process has any before it. So
forward passes end steps only in a job in which no process trains."""
STEP_START_KINDS = (*FETCH_KINDS, "forward", "dispatch", "step")
"""Kinds of spans that show a running process that a step starts."""


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one rank; arrays have one entry per step."""

    source: str
    """`marked` by the script, or derived from the `optimizer` or, without one, `backward`,
    `dispatch` or `forward`."""
    clock: str
    """`host`, or `device` if phases were timed on a device."""
    thread: int
    """Id of the training thread."""
    start: Int
    end: Int
    wall_ns: Int
    """End minus start minus evaluation and recording inside."""
    phase_ns: Mapping[str, Int]
    """Time by phase; sums to `wall_ns`."""
    fetches: Int
    """Number of batches fetched: micro-batches, if gradients are accumulated."""
    profiled: NDArray[np.bool_]
    """True for steps during which the framework's profiler was active."""
    evaluation: Intervals
    """Evaluation anywhere in the run."""
    recording: Intervals = EMPTY
    """Time in which stepscope itself computed figures of the model, anywhere in the run."""
    first: int = 0
    """Number of the first of these steps; the first step of the rank is 0."""
    stage_first: int = 0
    """Number of the first step of the rank, or of the stage that these are of."""
    rank_count: int | None = None
    """Number of all steps of the rank or stage, if these are only some of them."""
    range_ns: Int | None = None
    """Duration of the range that imported files record as the step; None where there are none."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_inference(self) -> bool:
        """True if nothing trains: the steps are predictions."""
        return self.source == "forward"

    @property
    def duration_ns(self) -> Int:
        """Duration of each step: that of its recorded range, or else its wall time."""
        return self.wall_ns if self.range_ns is None else self.range_ns

    @property
    def range_start(self) -> Int:
        """Start of the recorded range of each step, or else of the step."""
        return self.start if self.range_ns is None else self.end - self.range_ns

    @property
    def number(self) -> Int:
        """Number of each step; the first step of the rank is 0."""
        return self.first + np.arange(len(self), dtype=np.int64)

    def measured(self) -> NDArray[np.bool_]:
        """Mask of the steps that statistics use: after warm-up and not under a profiler.

        Warm-up is the first tenth of the steps of the rank or stage, at least one and at most ten.
        """
        count = len(self) if self.rank_count is None else self.rank_count
        warmup_count = min(10, max(1, count // 10))
        mask = ~self.profiled
        mask[: max(0, self.stage_first + warmup_count - self.first)] = False
        return mask

    def as_stage(self) -> Steps:
        """Return the steps as those of a stage, which has a warm-up."""
        return replace(self, stage_first=self.first, rank_count=len(self))

    def starting_within(self, start_ns: int, end_ns: int) -> Steps:
        """Select the steps that start in a range of time, the end exclusive; possibly none."""
        first, stop = np.searchsorted(self.start, [start_ns, end_ns]).tolist()
        rows = slice(first, stop)
        return replace(
            self,
            start=self.start[rows],
            end=self.end[rows],
            wall_ns=self.wall_ns[rows],
            phase_ns={phase: times[rows] for phase, times in self.phase_ns.items()},
            fetches=self.fetches[rows],
            profiled=self.profiled[rows],
            first=self.first + first,
            rank_count=len(self) if self.rank_count is None else self.rank_count,
            range_ns=None if self.range_ns is None else self.range_ns[rows],
        )


def find_training_thread(
    spans: Spans, end_kinds: tuple[str, ...] = STEP_END_KINDS, *, follows_steps: bool = False
) -> tuple[int, str] | None:
    """Find the thread that trains, the one with most spans of the first kind that there is, and
    that kind; None without any. Of calls of compiled functions only those count that train, of
    forward passes those of a process that only predicts."""
    for kind in end_kinds:
        match kind:
            case "dispatch":
                counts = find_training_calls(spans).count_threads()
            case "forward" if not follows_steps and not _only_predicts(spans):
                continue
            case "forward":
                counts = spans.count_threads(*PREDICTION_KINDS)
            case _:
                counts = spans.count_threads(kind)
        if counts:
            return max(counts, key=counts.__getitem__), kind
    return None


def find_steps(
    spans: Spans,
    end_kinds: tuple[str, ...] = STEP_END_KINDS,
    first_predictions: frozenset[ModuleMode] | None = None,
) -> Steps | None:
    """Find the steps of one process; None if it has no complete step.

    Args:
        spans: those of the process, or those since the end of a step.
        end_kinds: the kinds of spans that may end steps, by precedence. Include others than
            those only for a job without them (`STEP_SOURCES`): a process may compute gradients for
            another one.
        first_predictions: where the spans are those since the end of a step, the modules that
            predicted in the first one; see `find_first_predictions`.
    """
    follows_steps = first_predictions is not None
    training = find_training_thread(spans, end_kinds, follows_steps=follows_steps)
    if training is None:
        return None
    thread, end_kind = training
    phases = PhaseSpans.of_thread(spans, thread)
    spans = spans.on_thread(thread)
    boundaries = _find_boundaries(phases, spans, end_kind, EMPTY, follows_steps=follows_steps)
    trained = spans.of("backward").end[:1].tolist()
    first_end_ns = 0 if follows_steps else max(boundaries[:1].tolist() + trained, default=0)
    unused = UnusedPredictions(EMPTY)
    if end_kind != "forward":  # where nothing trains, predictions are the job's purpose
        unused = find_evaluation(spans, phases, first_end_ns, first_predictions or frozenset())
    evaluation = unused.evaluation
    if len(evaluation.start):
        boundaries = _find_boundaries(
            phases, spans, end_kind, evaluation, follows_steps=follows_steps
        )
        inside = contains(evaluation, boundaries) & contains(evaluation, boundaries - 1)
        boundaries = boundaries[~inside]  # those at its start and end are not inside
    first_start = _find_first_work(phases, unite(*unused), boundaries)
    boundaries = boundaries[boundaries > first_start]
    if not len(boundaries):
        return None
    borders = np.concatenate([[first_start], boundaries]).astype(np.int64)
    extent = Intervals(borders[:-1].copy(), borders[1:])
    windows = union(spans.of("window").intervals)
    recording = find_recording(spans)
    between, step = _find_between_models(phases, end_kind, extent)
    extent.start[step] = between.end
    excluded = unite(evaluation, recording, between)
    return Steps(
        source="marked" if end_kind == "step" else end_kind,
        clock="device" if spans.has_kind("device") else "host",
        thread=thread,
        start=extent.start,
        end=extent.end,
        wall_ns=extent.end - extent.start - overlap(extent, excluded),
        phase_ns=phases.measure_phases(borders, excluded, find_device_phases(spans)),
        fetches=_count_fetches(spans, borders, evaluation),
        profiled=overlap(extent, windows) > 0,
        evaluation=evaluation,
        recording=recording,
        range_ns=_find_range_durations(spans, extent) if end_kind == "step" else None,
    )


def _find_boundaries(
    phases: PhaseSpans, spans: Spans, end_kind: str, evaluation: Intervals, *, follows_steps: bool
) -> Int:
    match end_kind:
        case "step":
            return spans.of("step").start
        case "optimizer":
            return _find_optimizer_boundaries(phases, evaluation)
        case "dispatch":
            return find_call_boundaries(phases, evaluation)
        case "forward":
            return _find_prediction_boundaries(phases, follows_steps=follows_steps)
        case _:
            return find_backward_boundaries(phases, evaluation)


def _find_between_models(
    phases: PhaseSpans, end_kind: str, extent: Intervals
) -> tuple[Intervals, Int]:
    """Find the time from the end of a step to the first round of a new model, and the steps that
    start after it: what a script does between two trainings belongs to no step."""
    may_be_new = any(group.flags & FLAG_NEW_MODEL for group in phases.spans.groups)
    if end_kind != "optimizer" or not may_be_new or not len(extent.end):
        return EMPTY, EMPTY.start
    work = phases.select_outermost(*WORK_KINDS)
    is_new = work.is_kind("optimizer") & work.has_flag(FLAG_NEW_MODEL)
    start, work_end = work.start[is_new], np.append(0, work.end[:-1])[is_new]
    step = np.minimum(np.searchsorted(extent.end, start, side="right"), len(extent.end) - 1)
    begins = extent.start[step]
    is_between = (begins < start) & (start < extent.end[step]) & (work_end <= begins)
    return Intervals(begins[is_between], start[is_between]), step[is_between]


def _find_range_durations(spans: Spans, extent: Intervals) -> Int | None:
    """Find the durations of ranges of training that end with the steps; None without any.

    The import of SageMaker Debugger's files marks a step at the end of its range. A step without a
    range lasts from boundary to boundary.
    """
    modes = spans.of("mode")
    rows = [i for i in range(len(modes)) if modes.name_of(i) in TRAINING_MODES]
    if not rows:
        return None
    order = np.argsort(modes.end[rows], kind="stable")
    start, end = modes.start[rows][order], modes.end[rows][order]
    index = np.minimum(np.searchsorted(end, extent.end), len(end) - 1)
    has_range = end[index] == extent.end
    ranges = np.where(has_range, extent.end - start[index], extent.end - extent.start)
    return ranges if has_range.any() else None


def _find_optimizer_boundaries(phases: PhaseSpans, evaluation: Intervals) -> Int:
    """Find the ends of optimizer steps that end a training step."""
    optimizer = phases.select_outermost("optimizer")
    optimizer = optimizer.take(~optimizer.unfinished)
    if not len(optimizer):
        return np.empty(0, dtype=np.int64)
    if (optimizer.value == optimizer.value[0]).all():
        return optimizer.end
    fetch = phases.spans.of(*FETCH_KINDS)
    fetch_start = fetch.start[~contains(evaluation, fetch.start)]
    _, code = np.unique(optimizer.value, return_inverse=True)
    models = [1 << i for i in code.tolist()]
    return optimizer.end[find_round_ends(optimizer.start, optimizer.end, models, fetch_start)]


def _find_first_work(phases: PhaseSpans, unused: Intervals, boundaries: Int) -> int:
    """Find the start of the first step: its first phase that it uses, or the first mark."""
    start = phases.spans.start
    is_work = phases.spans.is_kind(*WORK_KINDS) & ~contains(unused, start)
    first = [int(start[is_work.argmax()])] if is_work.any() else []
    return min(first + boundaries[:1].tolist(), default=0)


def _count_fetches(spans: Spans, borders: Int, evaluation: Intervals) -> Int:
    starts = spans.start[spans.is_kind("data_wait") & ~spans.has_flag(FLAG_NO_RESULT)]
    starts = starts[~contains(evaluation, starts)]
    return np.diff(np.searchsorted(starts, borders, side="left")).astype(np.int64)


def select_window_steps(spans: Spans, steps: Steps, window: Intervals) -> tuple[Int, Intervals]:
    """Select the steps that end while a profiler window is open.

    A window opens and closes when the first work of a step starts. So each of its steps extends
    from there to the first work after it, not from the end of one optimizer step to the end of the
    next: anything that the script does in between counts for the step before.

    Args:
        spans: spans of the process.
        steps: steps of the process.
        window: time in which the window was open, merged.

    Returns:
        The indices of the steps, and their extents clipped to the window.
    """
    inside = np.flatnonzero(contains(window, steps.end - 1))
    if not len(inside):
        return inside, EMPTY
    starts = spans.on_thread(steps.thread).of(*STEP_START_KINDS).start
    starts = np.append(starts, window.end[-1])
    end = np.minimum(starts[np.searchsorted(starts[:-1], steps.end[inside])], window.end[-1])
    return inside, Intervals(np.append(window.start[:1], end[:-1]), end)


def find_phase_intervals(spans: Spans, steps: Steps) -> list[tuple[str, Intervals]]:
    """Find the time that the training thread and its device spent in each phase except `other`.

    Phases of the device come first: of several that cover an instant, the first has priority.
    """
    nested = PhaseSpans.of_thread(spans, steps.thread)
    edges, phase_codes = nested.find_host_phases(nested.loss)
    spans = spans.on_thread(steps.thread)
    inner = phase_codes[1:-1]
    intervals = list(find_device_phases(spans).items())
    for code, phase in enumerate(PHASES):
        rows = inner == code
        if phase != "other" and rows.any():
            intervals.append((phase, Intervals(edges[:-1][rows], edges[1:][rows])))
    return intervals


def find_losses(spans: Spans, steps: Steps) -> Intervals:
    """Find the time in the phase `loss`: between a forward and a backward pass."""
    return PhaseSpans.of_thread(spans, steps.thread).loss


def is_outside_phases(times: Int, spans: Spans, steps: Steps) -> NDArray[np.bool_]:
    """Mask the times that belong to the phase `other` of a step."""
    phases = PhaseSpans.of_thread(spans, steps.thread)
    inside = phases.find_innermost(times) >= 0
    return (find_step_at(times, steps) >= 0) & ~inside & ~contains(phases.loss, times)


def find_step_at(times: Int, steps: Steps) -> Int:
    """Find the index of the step at each time, -1 outside steps and in evaluation."""
    index = np.searchsorted(steps.end, times, side="right")
    inside = (index < len(steps)) & (steps.start[np.minimum(index, len(steps) - 1)] <= times)
    excluded = unite(steps.evaluation, steps.recording)
    return np.where(inside & ~contains(excluded, times), index, -1)


CHANGE_BITS = 31
"""Bits of a backward pass's value for updates, by module; those above are for cleared gradients."""


def find_backward_boundaries(phases: PhaseSpans, evaluation: Intervals) -> Int:
    """Find the ends of the backward passes that end a training step."""
    top = phases.select_outermost(*WORK_KINDS)
    top = top.take(~contains(evaluation, top.start))
    passes = top.take(top.is_kind("backward") & ~top.unfinished)
    accumulating = passes.is_named("backward")
    if accumulating.any():
        passes = passes.take(accumulating)
    if not len(passes):
        return passes.end
    updated = passes.value & ((1 << CHANGE_BITS) - 1)
    cleared = passes.value >> CHANGE_BITS
    changes = updated if updated[1:].any() else cleared
    fetch_start = top.start[top.is_kind(*FETCH_KINDS)]
    if changes[1:].any():
        before = np.flatnonzero(changes[1:])
        models = changes[1:][before].tolist()
        ends = passes.end.take(np.append(before, len(passes) - 1))
        is_end = find_round_ends(ends, ends, [*models, _guess_next(models)], fetch_start)
        return ends.take(np.flatnonzero(is_end))
    trains = top.is_kind("forward") & ~top.has_flag(FLAG_NO_GRAD)
    starts = np.sort(np.concatenate([top.start[trains], fetch_start]))
    if not len(starts):
        return passes.end
    separated = np.diff(np.searchsorted(starts, passes.start)) > 0
    return passes.end.take(np.flatnonzero(np.append(separated, True)))


def find_round_ends(start: Int, end: Int, models: list[int], fetch_start: Int) -> NDArray[np.bool_]:
    """Mask the updates that end a round: one update of each of several models in turn.

    A round ends before the next update of a model that it has updated already, and before a fetch
    of data.

    Args:
        start, end: extents of the updates.
        models: models of each update, as bits.
        fetch_start: starts of the fetches of training data.
    """
    before = np.searchsorted(fetch_start, end[:-1], side="left")
    after = np.searchsorted(fetch_start, start[1:], side="left")
    is_fetch_between = after > before
    is_end = np.ones(len(end), dtype=np.bool_)
    updated = 0
    for i, bits in enumerate(models):
        if updated & bits or (i and is_fetch_between[i - 1]):
            updated = 0
        elif i:
            is_end[i - 1] = False
        updated |= bits
    return is_end


def _guess_next(models: list[int]) -> int:
    """Guess the models of the last update, which no pass follows: what followed it before."""
    for i in range(len(models) - 2, -1, -1):
        if models[i] == models[-1]:
            return models[i + 1]
    return models[-1]


def _only_predicts(spans: Spans) -> bool:
    """Return True if a process that has called modules does not train and is not about to."""
    passes = spans.of("forward")
    may_train = ~passes.has_flag(FLAG_NO_GRAD | FLAG_EVAL_MODE)
    has_trained = spans.is_kind("backward", *STEP_END_KINDS).any() or len(
        find_training_calls(spans)
    )
    return not has_trained and not 0 < int(may_train.sum()) < MIN_UNTRAINED_PASSES


def _find_prediction_boundaries(phases: PhaseSpans, *, follows_steps: bool) -> Int:
    """Find the ends of the forward passes that end a step of a process that only predicts, in JAX
    with the waits for results that follow each."""
    passes = phases.select_outermost(*PREDICTION_KINDS)
    passes = passes.take(~passes.unfinished)
    waits = phases.spans.of("data_wait")
    has_batch = np.append(~waits.has_flag(FLAG_NO_RESULT), False)
    is_of_batch = has_batch[np.searchsorted(waits.start, passes.start) - 1]
    if not follows_steps and np.count_nonzero(has_batch) == 1 and is_of_batch[:1].all():
        is_of_batch[:] = False  # the model is called with one batch again and again
    classes = [
        0 if is_fetched else 1 << name
        for is_fetched, name in zip(is_of_batch.tolist(), passes.name.tolist(), strict=True)
    ]
    fetch_start = phases.spans.of(*FETCH_KINDS).start
    is_end = find_round_ends(passes.start, passes.end, classes, fetch_start)
    ends = passes.take(is_end)
    has_waits = phases.spans.is_kind("device_wait").any()
    return find_ends_of_waits(phases, ends) if has_waits else ends.end
