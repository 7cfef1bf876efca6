"""Times of the phases of a job.

    periods   initialization, training, finalization: they divide the job, for all ranks together
    modes     train, eval, predict of one rank; time before its first and after its last step, and
              what evaluation leaves outside of steps, has none
    phases    the phases of the steps of one rank (`analysis.PHASES`); they divide its mode train

Where a device computes, time belongs to the phase of the device; see `analysis.phases`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis import PHASES, find_phase_intervals
from stepscope.intervals import EMPTY, Int, Intervals, contains, find_gaps, subtract, union, unite
from stepscope.run.job_times import JobStatistics
from stepscope.run.run import Rank

PERIODS = ("initialization", "training", "finalization")
MODES = ("train", "eval", "predict")
TRAINING_PHASES = (*PERIODS, *MODES, *PHASES)
"""Names of all of them."""
PARTS = ("before", "inside", "between", "after")
"""Parts of a job by the intervals of one phase."""


def find_periods(job: JobStatistics) -> dict[str, Intervals]:
    """Find the periods of a job; none without steps."""
    borders = (job.start_ns, job.training_start_ns, job.training_end_ns, job.end_ns)
    times = [time for time in borders if time is not None]
    if len(times) < len(borders):
        return {}
    return {
        period: _one_interval(start, max(start, end))
        for period, start, end in zip(PERIODS, times[:-1], times[1:], strict=True)
    }


def find_modes(rank: Rank) -> dict[str, Intervals]:
    """Find the time of a rank in each mode, as unions that share no time.

    Prediction is what the script or the framework marks as such; other evaluation is `eval`.
    """
    steps, marks = rank.steps, rank.spans.of("mode")
    rows = [row for row in range(len(marks)) if marks.name_of(row) == "PREDICT"]
    marked = union(Intervals(marks.start[rows], marks.end[rows]))
    evaluation = union(steps.evaluation)
    in_steps = union(Intervals(steps.start, steps.end))
    return {
        "train": subtract(in_steps, evaluation),
        "eval": subtract(evaluation, marked),
        "predict": subtract(evaluation, subtract(evaluation, marked)),
    }


def find_mode_at(times: Int, rank: Rank) -> NDArray[np.int32]:
    """Find the index in `MODES` of the mode of a rank at each time, -1 for none."""
    codes = np.full(len(times), -1, dtype=np.int32)
    for code, intervals in enumerate(find_modes(rank).values()):
        codes[contains(intervals, times)] = code
    return codes


def find_step_phases(rank: Rank) -> dict[str, Intervals]:
    """Find the time of a rank in each phase of its steps, as unions that divide its mode `train`.

    Their lengths are those of `Steps.phase_ns`.
    """
    train = find_modes(rank)["train"]
    phases = dict.fromkeys(PHASES, EMPTY)
    remaining = train
    for phase, intervals in find_phase_intervals(rank.spans, rank.steps):
        rest = subtract(remaining, union(intervals))
        phases[phase] = unite(phases[phase], subtract(remaining, rest))
        remaining = rest
    phases["other"] = remaining
    return phases


def divide_by_phase(
    intervals: Intervals, extent: tuple[int, int]
) -> Iterator[tuple[str, int, int]]:
    """Yield the pieces of an extent in order of time: `before` the first interval of a phase,
    `inside` one, `between` two, and `after` the last; each with its start and end. Nothing for a
    phase without an interval."""
    inside = union(intervals)
    if not len(inside.start):
        return
    gaps = find_gaps(inside, extent)
    pieces = [("inside", *times) for times in _pairs(inside)]
    for start, end in _pairs(gaps):
        if end <= inside.start[0]:
            part = "before"
        else:
            part = "after" if start >= inside.end[-1] else "between"
        pieces.append((part, start, end))
    yield from sorted(pieces, key=lambda piece: piece[1:])


def _pairs(intervals: Intervals) -> list[tuple[int, int]]:
    return list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True))


def _one_interval(start: int, end: int) -> Intervals:
    return Intervals(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))
