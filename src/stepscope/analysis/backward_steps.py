"""Ends of training steps in a process without optimizer steps: updates by hand, own optimizer
classes, functional training.

Every iteration has a backward pass, and ends with its last one; the update is then the first work
of the next step. Several passes of one iteration (gradient accumulation, two losses) are told from
iterations by what was recorded before each pass:

    if parameters were seen to be updated between passes, an iteration ends before each update,
    else if gradients were seen to be cleared, likewise,
    else an iteration ends before the next forward pass or fetch of data; without any, with each
    pass.

Passes that only compute gradients (`torch.autograd.grad`) are part of an iteration if others
accumulate gradients in parameters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.phases import FETCH_KINDS, WORK_KINDS, PhaseSpans
from stepscope.analysis.spans import FLAG_NO_GRAD
from stepscope.intervals import Int, Intervals, contains

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
