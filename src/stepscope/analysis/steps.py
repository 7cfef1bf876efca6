"""Where training steps begin and end, and what each of them is spent on.

A step is what lies between two boundaries. If the script marks steps, those marks are the
boundaries. Otherwise a boundary is the end of an optimizer step after which new work begins:
a fetch of training data, or the same optimizer stepping again (so that two optimizers stepping
in turn make one step, as in a GAN). The first step begins with the first recorded work.

Evaluation inside a step (fetches whose batches only see forward passes without gradients) is
cut out of it. What is left is its wall time, and the phases below plus `other` sum to it:

    data_wait      waiting for the input pipeline, starting an iterator included
    h2d            copying batches to the device, as far as the host waits for it
    forward        outermost module calls
    loss           from the end of the last forward pass to the start of the backward pass
    backward       the autograd engine, gradient exchange of DDP included
    optimizer      optimizer steps
    communication  collectives the script calls itself
    checkpoint     saves
    compilation    torch.compile compiles: most often inside a forward pass, once more for shapes
                   that it has not seen yet
    garbage_collection
                   Python's garbage collector runs, whatever it interrupts
    other          the training thread does something else

Where a device computes, the host runs ahead of it and its own times say little: a wait for
batches is hidden while the device is busy, and reading a value waits for what was launched long
before. So where phases were timed on the device, each moment belongs to the phase the device is
busy with, and only while it is idle to what the host does.

Where phases nest (a closure-based optimizer runs forward and backward inside its step), each
moment belongs to the innermost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.spans import FLAG_NO_GRAD, FLAG_NO_RESULT, Spans
from stepscope.intervals import (
    EMPTY,
    Int,
    Intervals,
    contains,
    covered_until,
    innermost_at,
    overlap,
    parents,
    segments,
    union,
)

PHASE_OF_KIND = {
    "data_wait": "data_wait",
    "loader_start": "data_wait",
    "h2d": "h2d",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "communication": "communication",
    "checkpoint": "checkpoint",
    "compile": "compilation",
    "garbage_collection": "garbage_collection",
}
WORK_KINDS = tuple(kind for kind in PHASE_OF_KIND if kind != "garbage_collection")
"""What a job does of its own accord: the collector comes when it likes."""
PHASES = (
    "data_wait",
    "h2d",
    "forward",
    "loss",
    "backward",
    "optimizer",
    "communication",
    "checkpoint",
    "compilation",
    "garbage_collection",
    "other",
)
"""In the order in which a step goes through them."""
COMPUTE_PHASES = ("forward", "loss", "backward", "optimizer")
DEVICE_PHASES = ("forward", "backward", "optimizer")
"""Phases that are timed on a device."""
FETCH_KINDS = ("data_wait", "loader_start")
VALUED_KINDS = ("optimizer",)
"""Of the other spans, values say nothing about steps."""
BEGINNINGS = (*FETCH_KINDS, "forward", "step")
"""What tells a process, while it runs, that a step begins."""
EVALUATION_MODES = ("EVAL", "PREDICT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps of one rank; arrays have one entry per step."""

    source: str
    """`marked` by the script or derived from the `optimizer`."""
    clock: str
    """`host`, or `device` where phases were timed on a device."""
    thread: int
    start: Int
    end: Int
    wall_ns: Int
    """End minus start minus evaluation inside."""
    phase_ns: dict[str, Int]
    """By phase; sums to `wall_ns`."""
    fetches: Int
    """Batches fetched: micro-batches, when gradients are accumulated."""
    profiled: NDArray[np.bool_]
    """The framework's own profiler was recording."""
    evaluation: Intervals
    """When the job evaluated, anywhere in the run."""
    first: int = 0
    """Number of the first of these steps; the rank's own first one is 0."""
    rank_count: int | None = None
    """Steps of the rank, where these are only some of them."""

    def __len__(self) -> int:
        return len(self.start)

    def measured(self) -> NDArray[np.bool_]:
        """Steps that statistics are made of: past warm-up and not under a profiler.

        Warm-up is the first tenth of the rank's steps, at least one and at most ten.
        """
        count = len(self) if self.rank_count is None else self.rank_count
        warm = min(10, max(1, count // 10))
        kept = ~self.profiled
        kept[: max(0, warm - self.first)] = False
        return kept

    def begun(self, start_ns: int, end_ns: int) -> Steps:
        """Those that begin in a range of time, the end exclusive; perhaps none."""
        begin, stop = np.searchsorted(self.start, [start_ns, end_ns]).tolist()
        rows = slice(begin, stop)
        return replace(
            self,
            start=self.start[rows],
            end=self.end[rows],
            wall_ns=self.wall_ns[rows],
            phase_ns={phase: times[rows] for phase, times in self.phase_ns.items()},
            fetches=self.fetches[rows],
            profiled=self.profiled[rows],
            first=self.first + begin,
            rank_count=len(self) if self.rank_count is None else self.rank_count,
        )


def training_thread(spans: Spans) -> int | None:
    """The thread that trains: of those with marks or optimizer steps, the one with most."""
    for kinds in (("step",), ("optimizer",)):
        threads, counts = np.unique(spans.thread[spans.is_kind(*kinds)], return_counts=True)
        if len(threads):
            return int(threads[np.argmax(counts)])
    return None


def find_steps(spans: Spans) -> Steps | None:
    """The steps of one process, None when it has no complete one."""
    thread = training_thread(spans)
    if thread is None:
        return None
    own = spans.take(spans.thread == thread)
    phases = _Phases.of(own)
    evaluation = _evaluation(own, phases)
    marks = own.of("step").start
    boundaries = marks if len(marks) else _optimizer_boundaries(phases, evaluation)
    boundaries = boundaries[~_within(evaluation, boundaries)]
    begin = _first_work(phases, evaluation, boundaries)
    boundaries = boundaries[boundaries > begin]
    if not len(boundaries):
        return None
    borders = np.concatenate([[begin], boundaries]).astype(np.int64)
    extent = Intervals(borders[:-1], borders[1:])
    device = _device_work(own)
    windows = union(own.of("window").intervals)
    return Steps(
        source="marked" if len(marks) else "optimizer",
        clock="device" if own.is_kind("device").any() else "host",
        thread=thread,
        start=extent.start,
        end=extent.end,
        wall_ns=extent.end - extent.start - overlap(extent, evaluation),
        phase_ns=phases.time_in(borders, evaluation, device),
        fetches=_fetches(own, borders, evaluation),
        profiled=overlap(extent, windows) > 0,
        evaluation=evaluation,
    )


def steps_of_window(spans: Spans, steps: Steps, window: Intervals) -> tuple[Int, Intervals]:
    """The steps that end while a window is open, and their extents as the window cuts them.

    A window opens and shuts when the first work of a step begins. So each of its steps reaches
    from there to the first work after it, not from the end of one optimizer step to that of the
    next: what the script does in between counts for the step before.

    Args:
        spans: of the process.
        steps: of the process.
        window: when it was open, merged.
    """
    inside = np.flatnonzero(contains(window, steps.end - 1))
    if not len(inside):
        return inside, EMPTY
    began = spans.take(spans.thread == steps.thread).of(*BEGINNINGS).start
    began = np.append(began, window.end[-1])
    end = np.minimum(began[np.searchsorted(began[:-1], steps.end[inside])], window.end[-1])
    return inside, Intervals(np.append(window.start[:1], end[:-1]), end)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phases:
    """Phase spans of one thread with their nesting."""

    spans: Spans
    parent: Int

    @classmethod
    def of(cls, spans: Spans) -> _Phases:
        kept = spans.take(spans.is_kind(*PHASE_OF_KIND) & (spans.end > spans.start))
        return cls(spans=kept, parent=parents(kept.start, kept.end))

    def outermost(self, *kinds: str) -> Spans:
        """Spans of these kinds that lie in no span of them; a GradScaler's hides its own."""
        wanted = self.spans.is_kind(*kinds)
        above = self.parent
        hidden = np.zeros(len(wanted), dtype=np.bool_)
        while (above >= 0).any():
            real = np.maximum(above, 0)
            hidden |= (above >= 0) & wanted[real]
            above = np.where(above >= 0, self.parent[real], -1)
        return self.spans.take(wanted & ~hidden)

    def time_in(
        self, borders: Int, evaluation: Intervals, device: dict[str, Intervals]
    ) -> dict[str, Int]:
        """Nanoseconds of every phase from each border to the next, evaluation left out.

        What the device is busy with comes first; the host's phases have the rest.
        """
        taken, taken_ns = evaluation, np.diff(covered_until(borders, evaluation))
        on_device = {}
        for name, part in device.items():
            before_ns, taken = taken_ns, _joined(taken, part)
            taken_ns = np.diff(covered_until(borders, taken))
            on_device[name] = taken_ns - before_ns
        times = self._host_time(borders, taken)
        return times | {name: times[name] + time_ns for name, time_ns in on_device.items()}

    def _host_time(self, borders: Int, taken: Intervals) -> dict[str, Int]:
        """Nanoseconds of every phase of the host from each border to the next, but for the time
        that is taken."""
        edges, places = self.host_places()
        cuts = np.concatenate([borders, edges])
        order = np.argsort(cuts, kind="stable")
        cuts, is_border = cuts[order], order < len(borders)
        free_ns = np.diff(cuts - covered_until(cuts, taken))
        row = np.cumsum(is_border)[:-1]
        column = places.take(np.cumsum(~is_border)[:-1])
        # The first row is of what comes before all borders, the last of what comes after them.
        shape = (len(borders) + 1, len(PHASES))
        # Doubles hold sums of nanoseconds exactly up to a hundred days.
        sums = np.bincount(row * shape[1] + column, weights=free_ns, minlength=shape[0] * shape[1])
        table = sums.reshape(shape)[1:-1].astype(np.int64)
        return {phase: table[:, place].copy() for place, phase in enumerate(PHASES)}

    def host_places(self) -> tuple[Int, NDArray[np.int8]]:
        """When the host goes from one phase to another; the innermost counts.

        Returns:
            The moments; and the place in `PHASES` of what is before each of them, and of what is
            after the last.
        """
        pieces = segments(self.spans.start, self.spans.end, self.parent)
        phases = [PHASE_OF_KIND.get(kind, "other") for kind in self.spans.kinds]
        place_of = np.array([PHASES.index(phase) for phase in phases], dtype=np.int8)
        other = np.array([PHASES.index("other")], dtype=np.int8)
        place = np.append(place_of.take(self.spans.kind), other).take(pieces.owner)  # -1: no owner
        unowned = np.flatnonzero(pieces.owner < 0)
        place[unowned[contains(self.loss(), pieces.start[unowned])]] = PHASES.index("loss")
        edges = np.append(pieces.start, pieces.end[-1:])
        return edges, np.concatenate([other, place, other])

    def loss(self) -> Intervals:
        """From a forward pass with gradients to the backward pass that follows it.

        A copy of the targets, a teacher's forward pass or a gather may lie in between.
        """
        top = self.spans.take(self.parent < 0)
        backward, forward = top.is_kind("backward"), top.is_kind("forward")
        work = np.flatnonzero(
            backward
            | top.is_kind("optimizer", *FETCH_KINDS)
            | (forward & ~top.has_flag(FLAG_NO_GRAD))
        )
        before, after = work[:-1], work[1:]
        follows = backward.take(after) & forward.take(before)
        return union(Intervals(top.end.take(before[follows]), top.start.take(after[follows])))


def _device_work(own: Spans) -> dict[str, Intervals]:
    """When the device was busy with each of its phases; those without any are left out."""
    rows = np.flatnonzero(own.is_kind("device"))
    if not len(rows):
        return {}
    name, start, end = own.name.take(rows), own.start.take(rows), own.end.take(rows)
    found = {}
    for phase in DEVICE_PHASES:
        mine = name == own.names.index(phase) if phase in own.names else np.empty(0, dtype=np.bool_)
        if mine.any():
            found[phase] = Intervals(start[mine], end[mine])
    return found


def device_busy(own: Spans) -> Intervals:
    """When a device was busy with any of its phases, which then has the time; see above."""
    busy = EMPTY
    for part in _device_work(own).values():
        busy = _joined(busy, part)
    return busy


def _joined(one: Intervals, other: Intervals) -> Intervals:
    """The union of two sets of intervals."""
    return union(
        Intervals(np.concatenate([one.start, other.start]), np.concatenate([one.end, other.end]))
    )


def _within(evaluation: Intervals, times: Int) -> NDArray[np.bool_]:
    """Which times lie inside evaluation, its beginning and end excluded."""
    return contains(evaluation, times) & contains(evaluation, times - 1)


def _optimizer_boundaries(phases: _Phases, evaluation: Intervals) -> Int:
    """Ends of optimizer steps that end a training step."""
    optimizer = phases.outermost("optimizer")
    optimizer = optimizer.take(~optimizer.unfinished)
    if not len(optimizer):
        return np.empty(0, dtype=np.int64)
    if (optimizer.value == optimizer.value[0]).all():
        return optimizer.end
    fetch = phases.spans.of(*FETCH_KINDS)
    fetch_start = fetch.start[~contains(evaluation, fetch.start)]
    before = np.searchsorted(fetch_start, optimizer.end[:-1], side="left")
    after = np.searchsorted(fetch_start, optimizer.start[1:], side="left")
    fetched = after > before
    boundary = np.ones(len(optimizer), dtype=np.bool_)
    stepped: set[int] = set()
    for i, identity in enumerate(optimizer.value.tolist()):
        if identity in stepped or (i and fetched[i - 1]):
            stepped.clear()
        elif i:
            boundary[i - 1] = False
        stepped.add(identity)
    return optimizer.end[boundary]


def _first_work(phases: _Phases, evaluation: Intervals, boundaries: Int) -> int:
    """When the first step begins: its first phase outside evaluation, or else the first mark."""
    start = phases.spans.of(*WORK_KINDS).start
    start = start[~contains(evaluation, start)]
    return int(min(start[:1].tolist() + boundaries[:1].tolist(), default=0))


def _fetches(own: Spans, borders: Int, evaluation: Intervals) -> Int:
    starts = own.start[own.is_kind("data_wait") & ~own.has_flag(FLAG_NO_RESULT)]
    starts = starts[~contains(evaluation, starts)]
    return np.diff(np.searchsorted(starts, borders, side="left")).astype(np.int64)


def _evaluation(own: Spans, phases: _Phases) -> Intervals:
    """When the job evaluated: what the user said, else batches that only saw no-grad forwards."""
    modes = own.of("mode")
    named = [i for i in range(len(modes)) if modes.name_of(i) in EVALUATION_MODES]
    said = Intervals(modes.start[named], modes.end[named])
    top = phases.outermost(*WORK_KINDS)
    trains, predicts = _work_classes(top)
    if not trains.any() or not predicts.any():
        found = EMPTY  # nothing is predicted, or the job does nothing else: that is its work
    elif top.is_kind("data_wait").any():
        found = _joined(_evaluated_fetches(top), _evaluated_after_training(top))
    else:
        found = _evaluated_runs(top)
    return _joined(said, found)


def _work_classes(top: Spans) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which outermost spans train, and which only predict."""
    forward = top.is_kind("forward")
    no_grad = forward & top.has_flag(FLAG_NO_GRAD)
    trains = top.is_kind("backward", "optimizer") | (forward & ~no_grad)
    return trains, no_grad


def _evaluated_fetches(top: Spans) -> Intervals:
    """Runs of fetches whose batches are only predicted."""
    trains, predicts = _work_classes(top)
    is_fetch = top.is_kind(*FETCH_KINDS)
    first = np.flatnonzero(is_fetch)
    group = np.cumsum(is_fetch) - 1  # spans before the first fetch belong to none
    count = len(first)
    inside = group >= 0
    train = np.bincount(group[inside], weights=trains[inside], minlength=count) > 0
    predict = np.bincount(group[inside], weights=predicts[inside], minlength=count) > 0
    evaluates = _spread(predict & ~train, train | predict, ends=top.has_flag(FLAG_NO_RESULT)[first])
    begins, stops = _runs(evaluates)
    # A run is over with its last prediction, or the fetch after it that found nothing more.
    predicted = np.flatnonzero(predicts)
    limit = np.append(first, len(top))[stops]
    done = np.searchsorted(predicted, limit, side="left") - 1
    last = np.maximum(first[stops - 1], predicted[np.maximum(done, 0)])
    follows = np.append(top.start, top.end[-1])[last + 1]
    ends = np.where(last + 1 < len(top), follows, top.end[last])
    return Intervals(top.start[first[begins]], ends)


def _evaluated_after_training(top: Spans) -> Intervals:
    """Predictions between the training on a batch and the next fetch: no loader feeds them.

    A prediction that training follows, as a teacher's, belongs to the training.
    """
    trains, predicts = _work_classes(top)
    group = np.cumsum(top.is_kind(*FETCH_KINDS))
    work = np.flatnonzero(trains | predicts)
    last_training = np.full(int(group[-1]) + 1, len(top))  # of groups without any: past all work
    last_training[group[trains]] = np.flatnonzero(trains)  # of several the last is kept
    follows = work[predicts[work] & (work > last_training[group[work]])]
    if not len(follows):
        return EMPTY
    begins = np.flatnonzero(np.diff(group[follows], prepend=-1))
    return Intervals(
        top.start[follows[begins]], top.end[follows[np.append(begins[1:], len(follows)) - 1]]
    )


def _runs(mask: NDArray[np.bool_]) -> tuple[Int, Int]:
    """Where runs of True begin, and where they have ended."""
    changes = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8)))
    return changes[::2].astype(np.int64), changes[1::2].astype(np.int64)


def _spread(
    value: NDArray[np.bool_], known: NDArray[np.bool_], *, ends: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Give fetches that saw no work the class of a neighbour.

    A fetch that only found its iterator exhausted belongs to what came before it, any other
    (starting an iterator) to what comes after.
    """
    spread = value.copy()
    for i in np.flatnonzero(~known[:-1] & ~ends[:-1])[::-1]:
        spread[i] = spread[i + 1]
    for i in 1 + np.flatnonzero(~known[1:] & ends[1:]):
        spread[i] = spread[i - 1]
    return spread


def _evaluated_runs(top: Spans) -> Intervals:
    """Without a DataLoader: two or more predictions in a row, in less than half of the steps.

    Predictions in most steps (a teacher model, a target network) are part of training. Copies
    of batches to the device lie between predictions and do not end a run.
    """
    trains, predicts = _work_classes(top)
    top = top.take(trains | predicts)
    begins, stops = _runs(predicts[trains | predicts])
    long_enough = stops - begins >= 2
    optimizer_count = max(1, int(top.is_kind("optimizer").sum()))
    if 2 * len(begins) >= optimizer_count:
        return EMPTY
    begins, stops = begins[long_enough], stops[long_enough]
    return Intervals(top.start[begins], top.end[stops - 1])


def phases_over(spans: Spans, steps: Steps) -> list[tuple[str, Intervals]]:
    """When the training thread and its device were in each phase but `other`.

    Phases of the device come first: where several hold a moment, the first in the list has it.
    """
    own = _of_training_thread(spans, steps)
    edges, places = _Phases.of(own).host_places()
    inner = places[1:-1]
    found = list(_device_work(own).items())
    for place, phase in enumerate(PHASES):
        rows = inner == place
        if phase != "other" and rows.any():
            found.append((phase, Intervals(edges[:-1][rows], edges[1:][rows])))
    return found


def losses(spans: Spans, steps: Steps) -> Intervals:
    """When the training thread was in the phase `loss`: between a forward and a backward pass."""
    return _Phases.of(_of_training_thread(spans, steps)).loss()


def in_no_phase(times: Int, spans: Spans, steps: Steps) -> NDArray[np.bool_]:
    """Which times belong to the phase `other` of some step."""
    phases = _Phases.of(_of_training_thread(spans, steps))
    inside = innermost_at(times, phases.spans.start, phases.spans.end, phases.parent) >= 0
    return (steps_of(times, steps) >= 0) & ~inside & ~contains(phases.loss(), times)


def _of_training_thread(spans: Spans, steps: Steps) -> Spans:
    return spans.take(spans.thread == steps.thread)


def steps_of(times: Int, steps: Steps) -> Int:
    """Number of the step in which each time lies, -1 for none or for evaluation."""
    index = np.searchsorted(steps.end, times, side="right")
    inside = (index < len(steps)) & (steps.start[np.minimum(index, len(steps) - 1)] <= times)
    return np.where(inside & ~contains(steps.evaluation, times), index, -1)


__all__ = [
    "COMPUTE_PHASES",
    "PHASES",
    "Steps",
    "device_busy",
    "find_steps",
    "in_no_phase",
    "phases_over",
    "steps_of",
    "training_thread",
]
