"""Division of a job's time: each nanosecond of each rank is in exactly one class.

    launch          launcher and interpreter: from the start of the job, or of a process, to the
                    first line of the script
    importing       importing modules before the first step
    rendezvous      before the first step: waiting for other ranks
    preparing       the user's code before the first step
    warm_up         what the first steps take beyond the steady step
    steps           steps whose result was kept
    evaluation      evaluation and prediction, with the user's function around it
    checkpoints     saving and loading, with the user's function around it
    between_epochs  end of a pass over the data, new workers, first batch of the next pass
    between_steps   other work between steps: callbacks, logging, export
    recording       pauses of the job in which stepscope records: windows, tensors, censuses
    finishing       after the last step
    stuck           no progress until the end, or until the job went on
    down            between two incarnations: the death is noticed, processes are started
    repeated        steps whose result a restart lost, so that they were done once more
    not_seen        nothing is known

Sums are exact by construction: time is painted with intervals of one class after the other, and an
instant belongs to the first class that covers it (`paint`). What a sample of the stack stands for
is in `analysis.job.activities`.

Definitions follow Google's goodput, the share of the time that makes progress which is kept
(https://github.com/AI-Hypercomputer/ml-goodput-measurement), and the initialization, training and
finalization of SageMaker Debugger
(https://docs.aws.amazon.com/sagemaker/latest/dg/debugger-profiling-report.html).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from stepscope import intervals
from stepscope.analysis.input_pipeline.batches import StackSamples
from stepscope.analysis.job.activities import SampledActivities, find_surroundings
from stepscope.analysis.job.functions import ClassFunction, add_functions, measure_functions
from stepscope.analysis.steps.phases import CHUNK_SPANS, CHUNK_STEPS, FETCH_KINDS, WORK_KINDS
from stepscope.analysis.steps.spans import FLAG_NO_RESULT, Spans
from stepscope.analysis.steps.steps import Steps
from stepscope.intervals import EMPTY, Int, Intervals, overlap, select_near, subtract, union, unite

JOB_CLASS_TITLES = {
    "launch": "launch",
    "importing": "imports",
    "rendezvous": "waiting for ranks to start",
    "preparing": "preparation",
    "warm_up": "warm-up",
    "steps": "steps",
    "evaluation": "evaluation",
    "checkpoints": "checkpoints",
    "between_epochs": "between epochs",
    "between_steps": "between steps",
    "recording": "recording by stepscope",
    "finishing": "after the last step",
    "stuck": "stuck",
    "down": "down",
    "repeated": "lost steps",
    "not_seen": "not seen",
}
"""Title by class, in the order in which classes are shown."""
_WITHOUT_STEPS = {"preparing": "work of the script", "finishing": "end"}
JOB_CLASSES = tuple(JOB_CLASS_TITLES)
STEP_CLASSES = ("warm_up", "steps", "repeated")
"""Classes of the time in steps."""
CHECKPOINT_KINDS = ("checkpoint", "checkpoint_load")
MEETING_KINDS = ("rendezvous", "communication")
"""Kinds that wait for other ranks."""
JOB_KINDS = ("checkpoint_load", "rendezvous")
"""Kinds of spans that are read beside those by which steps are found."""
WARM_UP_FACTOR = 1.25
"""One of the first steps warms up if it takes longer than this many steady ones."""
SLOW_GAP_FACTOR = 2
SLOW_GAP_NS = 20_000_000
"""Time between the phases of a step, beyond `SLOW_GAP_FACTOR` medians, from which its activities
are examined."""
SKIPPED_FACTOR = 3
"""The first step fetches more than this many times the usual batches if some are skipped."""
MAX_RESTARTED_RATIO = 0.5
"""A loader that is started in more steps than this share of them has no epochs."""
STUCK_FACTOR = 10
MIN_STUCK_NS = 10_000_000_000
"""Without an account of the monitor, a process that did not complete was stuck if it ran one line
of user code for so long, and longer than `STUCK_FACTOR` of its longest steps."""


def title_job_class(key: str, *, has_steps: bool) -> str:
    """Return the title of a class; in a job without steps, none is relative to them."""
    return JOB_CLASS_TITLES[key] if has_steps else _WITHOUT_STEPS.get(key, JOB_CLASS_TITLES[key])


class Layer(NamedTuple):
    """Intervals of one class, in any order."""

    key: str
    intervals: Intervals


class Division(msgspec.Struct, frozen=True, kw_only=True):
    """Division of a range of time into pieces of one class each."""

    edges: Int
    """Start of each piece, and the end of the last one; ascending."""
    classes: NDArray[np.int8]
    """Index in `JOB_CLASSES` of each piece; adjacent pieces differ."""

    @property
    def durations(self) -> Int:
        """Duration of each piece."""
        return np.diff(self.edges)

    @property
    def totals(self) -> dict[str, int]:
        """Nanoseconds by class, of all classes; they sum to the range."""
        sums = np.zeros(len(JOB_CLASSES), dtype=np.int64)
        np.add.at(sums, self.classes, self.durations)
        return dict(zip(JOB_CLASSES, sums.tolist(), strict=True))

    def coarsen(self, max_count: int) -> Division:
        """Merge pieces for a picture: where there are more than a limit, the range is cut into so
        many cells, each of the class with most of its time."""
        if len(self.classes) <= max_count:
            return self
        start, end = int(self.edges[0]), int(self.edges[-1])
        cells = start + (end - start) * np.arange(max_count + 1) // max_count
        times = np.stack(
            [overlap(Intervals(cells[:-1], cells[1:]), self.select(key)) for key in JOB_CLASSES]
        )
        codes = times.argmax(axis=0).astype(np.int8)
        opens = np.flatnonzero(np.diff(codes, prepend=-1))
        return Division(edges=np.append(cells[:-1][opens], end), classes=codes[opens])

    def select(self, key: str) -> Intervals:
        """Select the pieces of a class."""
        rows = self.classes == JOB_CLASSES.index(key)
        return Intervals(self.edges[:-1][rows], self.edges[1:][rows])


def paint(extent: tuple[int, int], layers: Iterable[Layer], *, rest: str) -> Division:
    """Divide a range of time: each instant belongs to the first layer that covers it.

    Args:
        extent: start and end of the range.
        layers: in order of precedence; they may overlap and reach out of the range.
        rest: class of what no layer covers.
    """
    start, end = extent
    remaining = Intervals(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))
    pieces: list[tuple[int, Intervals]] = []
    for key, layer in layers:
        if not len(layer.start) or not len(remaining.start):
            continue
        rest_of_it = subtract(remaining, union(layer))
        pieces.append((JOB_CLASSES.index(key), subtract(remaining, rest_of_it)))
        remaining = rest_of_it
    pieces.append((JOB_CLASSES.index(rest), remaining))
    starts = np.concatenate([piece.start for _, piece in pieces])
    ends = np.concatenate([piece.end for _, piece in pieces])
    codes = np.repeat([code for code, _ in pieces], [len(piece.start) for _, piece in pieces])
    rows = np.flatnonzero(ends > starts)
    rows = rows[np.argsort(starts[rows], kind="stable")]
    codes = codes[rows].astype(np.int8)
    opens = np.flatnonzero(np.diff(codes, prepend=-1))
    return Division(edges=np.append(starts[rows][opens], end), classes=codes[opens])


class JobProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a rank; a rank of a restarted job has several, one after the other."""

    launched_ns: int
    """When it was created; where that was not recorded, its first record."""
    ready_ns: int | None
    """When its interpreter had started; None where not recorded."""
    end_ns: int
    """When it ended, or its last record."""
    spans: Spans
    """Phases, steps and other spans; also of kinds in `JOB_KINDS`."""
    samples: StackSamples
    steps: Steps | None
    is_sampled_from_start: bool
    """True if stack samples begin with the interpreter."""
    ended_itself: bool = True
    """False if it was killed, or runs still: nothing is known of it after its last record."""
    has_completed: bool = True
    """False if it did not end with success: it may have been in a step."""
    is_restart: bool = False
    """True if it follows processes that died, and their work was started again."""
    trains_later: bool = True
    """False for a process that runs after the last one with steps."""
    kept_until_ns: int | None = None
    """Results of steps that end later were lost by a restart; None if none were."""
    stuck: Intervals = msgspec.field(default=EMPTY)
    """Time without progress."""

    @property
    def thread(self) -> int | None:
        """Id of the training thread; None without spans."""
        if self.steps is not None:
            return self.steps.thread
        return self.spans.groups[int(self.spans.group[0])].thread if len(self.spans) else None


class RankDivision(msgspec.Struct, frozen=True, kw_only=True):
    """Division of a rank's time, with the functions that ran."""

    division: Division
    functions: dict[str, list[ClassFunction]]
    """Functions by class, the longest first; sampled time only."""


def divide_rank(
    extent: tuple[int, int], processes: Sequence[JobProcess], unseen: Intervals = EMPTY
) -> RankDivision:
    """Divide the time of one rank, from the start of the job to its end.

    Args:
        extent: start and end of the job.
        processes: those of the rank, in the order of their start.
        unseen: time in which nothing was recorded.
    """
    layers = [Layer("not_seen", unseen)]
    sampled: list[tuple[SampledActivities, int, int]] = []
    free_ns = extent[0]
    for index, process in enumerate(processes):
        start_ns = max(process.launched_ns, free_ns)
        # The next process of a rank takes over where two were recorded at the same time.
        following = processes[index + 1].launched_ns if index + 1 < len(processes) else extent[1]
        end_ns = min(max(process.end_ns, start_ns), max(following, start_ns))
        activities, inside = divide_process(process)
        layers.append(_layer(_classify_gap(process), free_ns, start_ns))
        layers += [Layer(key, _clip(times, start_ns, end_ns)) for key, times in inside]
        sampled.append((activities, start_ns, end_ns))
        free_ns = max(free_ns, end_ns)
    has_ended = bool(processes) and processes[-1].ended_itself
    division = paint(extent, layers, rest="finishing" if has_ended else "not_seen")
    tables = [
        measure_functions(
            activities, *_cut(division, start_ns, end_ns), importing=JOB_CLASSES.index("importing")
        )
        for activities, start_ns, end_ns in sampled
    ]
    functions = {JOB_CLASSES[code]: rows for code, rows in add_functions(tables).items()}
    functions.pop("recording", None)  # the job's code waits there, it does not run
    return RankDivision(division=division, functions=functions)


def _classify_gap(process: JobProcess) -> str:
    """Classify the time between a process and the one before it."""
    if not process.trains_later:
        return "finishing"
    if process.ready_ns is None:
        return "not_seen"
    return "down" if process.is_restart else "launch"


def _cut(division: Division, start: int, end: int) -> tuple[Int, NDArray[np.int8]]:
    """Cut the pieces between two times out of a division."""
    edges = np.clip(division.edges, start, max(start, end))
    rows = np.flatnonzero(np.diff(edges) > 0)
    return np.append(edges[rows], edges[rows[-1:] + 1]), division.classes[rows]


def divide_process(process: JobProcess) -> tuple[SampledActivities, list[Layer]]:
    """Divide the time of one process, from its start to its end.

    Returns:
        Activities of its training thread, and layers in order of precedence; the last one covers
        all of its time.
    """
    end_ns = process.end_ns
    layers = [Layer("stuck", process.stuck)]
    if process.ready_ns is not None and process.trains_later:
        layers.append(_layer("launch", process.launched_ns, process.ready_ns))
    spans = process.spans
    if process.thread is not None:
        spans = spans.on_thread(process.thread)
    steps = _start_with_training(process.steps, spans)
    first_ns = end_ns if steps is None else int(steps.start[0])
    saves = _extend(spans.of(*CHECKPOINT_KINDS), end_ns)
    meetings = _extend(spans.of(*MEETING_KINDS), end_ns)
    meetings = meetings.take(meetings.start < first_ns)
    evaluation = EMPTY if steps is None else steps.evaluation
    work = EMPTY if steps is None else _find_training_work(spans, steps, evaluation)
    is_slow = _find_slow_steps(steps, work, evaluation, saves.intervals)
    ordinary = _find_ordinary(steps, is_slow, unite(evaluation, saves.intervals))
    activities = SampledActivities.of(process.samples, process.launched_ns, ordinary, work)
    last_ns = end_ns if steps is None else int(steps.end[-1])
    around = find_surroundings(activities, saves, evaluation, work, last_ns=last_ns)
    layers += [
        Layer("recording", EMPTY if steps is None else steps.recording),
        Layer("checkpoints", saves.intervals),
        Layer("evaluation", evaluation),
        Layer("rendezvous", meetings.intervals),
        Layer("checkpoints", around.checkpoints),
        Layer("evaluation", around.evaluation),
    ]
    if steps is not None:
        gaps = _find_slow_gaps(steps, work, is_slow)
        unusual = Intervals(*activities.find_unusual(gaps))
        layers += [
            Layer("between_epochs", _find_restarts(spans, steps, evaluation)),
            Layer("between_steps", unusual),
        ]
        excluded = unite(EMPTY, *(layer.intervals for layer in layers))
        layers += _divide_steps(process, steps, excluded)
    before = (process.launched_ns, first_ns)
    if not process.is_sampled_from_start:
        layers.append(_layer("not_seen", *before))
    elif process.trains_later:
        imports = Intervals(*activities.find_imports())
        layers += [Layer("importing", _clip(imports, *before)), _layer("preparing", *before)]
    if steps is not None:
        layers.append(_find_tail(process, steps, activities))
    return activities, [*layers, _layer("finishing", process.launched_ns, end_ns)]


def _start_with_training(steps: Steps | None, spans: Spans) -> Steps | None:
    """Start the first step with its own training, and reduce evaluation to its own work.

    A script may save a checkpoint, or pass over its data, before it trains: the first step starts
    with the iterator that feeds it, or the last batches if it skips many, or else with the first
    phase of training. Evaluation reaches
    from the end of the training's loader to the next phase, whatever the script does in between.
    """
    if steps is None:
        return None
    evaluation = union(steps.evaluation)
    kinds = [kind for kind in WORK_KINDS if kind not in CHECKPOINT_KINDS]
    is_inside = intervals.contains(evaluation, spans.start)
    inside = spans.take(is_inside & spans.is_kind(*kinds))
    row = np.searchsorted(evaluation.start, inside.start, side="right") - 1
    starts, ends = evaluation.end.copy(), evaluation.start.copy()
    begins = ~inside.has_flag(FLAG_NO_RESULT)
    np.minimum.at(starts, row[begins], inside.start[begins])
    np.maximum.at(ends, row, inside.end)
    is_marked = ends <= starts  # nothing of it is recorded but its borders
    starts = np.where(is_marked, evaluation.start, starts)
    ends = np.where(is_marked, evaluation.end, np.minimum(ends, evaluation.end))
    first, stop = np.searchsorted(spans.start, [steps.start[0], steps.end[0]]).tolist()
    trains = spans.slice(first, stop).take(~is_inside[first:stop]).of(*kinds)
    loaders = trains.of("loader_start")
    begin = loaders.start[-1:] if len(loaders) else trains.start[:1]
    fetches = trains.of("data_wait")
    usual_count = max(1, int(np.median(steps.fetches)))
    if len(fetches) > SKIPPED_FACTOR * usual_count:  # the script skips batches of an earlier run
        begin = fetches.start[-usual_count:][:1]
    start = steps.start.copy()
    start[: len(begin)] = begin
    return replace(steps, start=start, evaluation=Intervals(starts, ends))


def _divide_steps(process: JobProcess, steps: Steps, excluded: Intervals) -> list[Layer]:
    """Divide the time from the first step to the end of the last one."""
    extent = Intervals(steps.start, steps.end)
    lost = np.zeros(len(steps), dtype=np.bool_)
    if process.kept_until_ns is not None:
        lost = steps.end > process.kept_until_ns
    return [
        Layer("warm_up", _find_warm_up(steps, excluded)),
        Layer("repeated", Intervals(extent.start[lost], extent.end[lost])),
        Layer("steps", extent),
        # Where a step starts after the end of the one before, the script has begun a new training.
        _layer("between_steps", int(steps.start[0]), int(steps.end[-1])),
    ]


def _find_slow_gaps(steps: Steps, work: Intervals, is_slow: NDArray[np.bool_]) -> Intervals:
    """Find the time outside of phases in slow steps."""
    return subtract(union(Intervals(steps.start[is_slow], steps.end[is_slow])), work)


def _find_training_work(spans: Spans, steps: Steps, evaluation: Intervals) -> Intervals:
    """Find the phases of the training in its steps: no evaluation, saves, or ends of loaders."""
    kinds = [kind for kind in WORK_KINDS if kind not in CHECKPOINT_KINDS]
    extent = int(steps.start[0]), int(steps.end[-1])
    parts = []
    for first in range(0, len(spans), CHUNK_SPANS):
        part = spans.slice(first, first + CHUNK_SPANS)
        rows = part.is_kind(*kinds) & ~part.has_flag(FLAG_NO_RESULT)
        rows &= ~intervals.contains(evaluation, part.start)
        times = Intervals(part.start[rows], part.end[rows])
        parts.append(union(_clip(times, *extent)))
    return unite(EMPTY, *parts)


def _find_slow_steps(
    steps: Steps | None, work: Intervals, evaluation: Intervals, saves: Intervals
) -> NDArray[np.bool_]:
    """Mask the steps with unusually much time in none of their phases."""
    if steps is None:
        return np.zeros(0, dtype=np.bool_)
    extent = Intervals(steps.start, steps.end)
    gap_ns = (
        extent.end - extent.start - _overlap_any(extent, union(evaluation), steps.recording, work)
    )
    slow = gap_ns > SLOW_GAP_FACTOR * float(np.median(gap_ns)) + SLOW_GAP_NS
    is_slow: NDArray[np.bool_] = slow | (overlap(extent, union(saves)) > 0)
    return is_slow


def _overlap_any(extent: Intervals, *unions: Intervals) -> Int:
    """Measure the nanoseconds of each step that any of several unions covers, some steps at a time:
    to unite those of a long run takes several times their memory."""
    parts = [extent.start[:0]]
    for first in range(0, len(extent.start), CHUNK_STEPS):
        part = Intervals(*(times[first : first + CHUNK_STEPS] for times in extent))
        bounds = int(part.start[0]), int(part.end[-1])
        parts.append(overlap(part, unite(*(select_near(times, *bounds) for times in unions))))
    return np.concatenate(parts)


def _find_ordinary(
    steps: Steps | None, is_slow: NDArray[np.bool_], excluded: Intervals
) -> Intervals:
    """Find the time of the ordinary steps."""
    if steps is None:
        return EMPTY
    return subtract(union(Intervals(steps.start[~is_slow], steps.end[~is_slow])), excluded)


def _find_restarts(spans: Spans, steps: Steps, evaluation: Intervals) -> Intervals:
    """Find the time in which the loader ends a pass over the data and starts the next one: the end
    of its iterator, its new workers, and what the first batch takes beyond the usual wait."""
    fetches = spans.of(*FETCH_KINDS)
    inside = (fetches.start >= steps.end[0]) & (fetches.end <= steps.end[-1])
    fetches = fetches.take(inside & ~intervals.contains(evaluation, fetches.start))
    is_start = fetches.is_kind("loader_start")
    is_last = fetches.has_flag(FLAG_NO_RESULT)
    if not len(fetches) or is_start.sum() > MAX_RESTARTED_RATIO * len(steps):
        return EMPTY
    is_first = np.append(False, is_start[:-1]) & ~is_start & ~is_last
    usual = fetches.duration[~is_start & ~is_first & ~is_last]
    usual_ns = int(np.median(usual)) if len(usual) else 0
    end = np.where(is_first, np.maximum(fetches.end - usual_ns, fetches.start), fetches.end)
    rows = np.flatnonzero(is_start | is_first | is_last)
    return Intervals(fetches.start[rows], end[rows])


def _find_warm_up(steps: Steps, excluded: Intervals) -> Intervals:
    """Find what the first steps take beyond the median of the measured steps, as the start of what
    is left of each."""
    is_measured = steps.measured()
    extent = Intervals(steps.start, steps.end)
    wall_ns = extent.end - extent.start - overlap(extent, excluded)
    if not is_measured.any():
        return EMPTY
    steady_ns = int(np.median(wall_ns[is_measured]))
    count = int(np.argmax(is_measured))
    starts, ends = [EMPTY.start], [EMPTY.end]
    for row in np.flatnonzero(wall_ns[:count] > WARM_UP_FACTOR * steady_ns).tolist():
        free = subtract(Intervals(extent.start[row : row + 1], extent.end[row : row + 1]), excluded)
        before_ns = np.append(0, np.cumsum(free.end - free.start))
        length_ns = np.clip(wall_ns[row] - steady_ns - before_ns[:-1], 0, free.end - free.start)
        starts.append(free.start)
        ends.append(free.start + length_ns)
    return Intervals(np.concatenate(starts), np.concatenate(ends))


def _find_tail(process: JobProcess, steps: Steps, activities: SampledActivities) -> Layer:
    """Find the time after the last step of a process that did not complete: it was stuck, or still
    in its training loop."""
    last_ns, end_ns = int(steps.end[-1]), process.end_ns
    if process.has_completed:
        return Layer("finishing", EMPTY)
    limit_ns = max(MIN_STUCK_NS, STUCK_FACTOR * int((steps.end - steps.start).max()))
    waits_since_ns = max(last_ns, activities.find_last_change())
    if end_ns - waits_since_ns > limit_ns:
        return _layer("stuck", waits_since_ns, end_ns)
    if not activities.ends_in_loop(last_ns):
        return Layer("finishing", EMPTY)
    is_lost = process.kept_until_ns is not None and process.kept_until_ns < end_ns
    return _layer("repeated" if is_lost else "steps", last_ns, end_ns)


def _extend(spans: Spans, end_ns: int) -> Spans:
    """Extend spans that have not ended to the end of their process."""
    if not spans.unfinished.any():
        return spans
    end = np.where(spans.unfinished, np.maximum(spans.end, end_ns), spans.end)
    return replace(spans, length=end - spans.start)


def _layer(key: str, start: int, end: int) -> Layer:
    times = (np.array([time], dtype=np.int64) for time in (start, max(start, end)))
    return Layer(key, Intervals(*times))


def _clip(times: Intervals, start: int, end: int) -> Intervals:
    clipped = Intervals(np.maximum(times.start, start), np.minimum(times.end, end))
    rows = clipped.end > clipped.start
    return Intervals(clipped.start[rows], clipped.end[rows])
