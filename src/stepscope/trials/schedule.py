"""Warm-up and measured steps of the trials of one job."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepscope.errors import UsageError
from stepscope.quantities import count_of
from stepscope.run import Epochs, Run, find_epochs

MIN_PAIRS = 3
MIN_STEPS = 10
DEFAULT_STEPS = 30
MAX_STEPS = 400
TARGET_S = 5.0
"""Measured time of a trial, where that needs more steps than the default."""
MAX_EPOCH_S = 20.0
"""Shorter epochs are measured whole, with the start of their workers and their evaluation."""
WARMUP_STEPS = 10
START_TIMEOUT_S = 180.0
COMPILE_TIMEOUT_S = 1200.0
SLOWDOWN = 10.0
"""A trial may take this many times the time that the run predicts for its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Steps of each trial."""

    warmup_step_count: int
    step_count: int
    timeout_s: float


def plan_schedule(
    run: Run, *, prefetched_count: int = 0, steps: int | None = None, compiles: bool = False
) -> Schedule:
    """Choose the steps of the trials of a job.

    Prefetched batches are made before the steps that use them, so the warm-up contains as many
    steps. Short epochs are measured whole: what happens once per epoch counts in proportion.

    Args:
        prefetched_count: most batches that workers prepare ahead, with or without the change.
        steps: measured steps, None to choose.
        compiles: True if the model is compiled in the warm-up.

    Raises:
        UsageError: the job has too few steps.
    """
    available = max((len(rank.steps) for rank in run.ranks), default=0)
    warmup = max(WARMUP_STEPS, prefetched_count)
    epochs = find_epochs(run)
    mean_s = run.mean_step_ns / 1e9 if available else 0.0
    if isinstance(epochs, Epochs):
        mean_s = max(mean_s, epochs.mean_ns / epochs.steps / 1e9)
    if available < warmup + MIN_STEPS + 2:
        warmup = max(3, available // 4)
    limit = available - warmup - 2
    if limit < MIN_STEPS:
        raise UsageError(
            f"The job has {count_of(available, 'complete step')}; a trial needs at least "
            f"{MIN_STEPS + 5}."
        )
    default = steps or min(MAX_STEPS, max(DEFAULT_STEPS, math.ceil(TARGET_S / mean_s)))
    step_count = min(default, limit)
    if steps is None and isinstance(epochs, Epochs) and epochs.mean_ns / 1e9 <= MAX_EPOCH_S:
        length = round(epochs.steps)
        whole_count = min(math.ceil(step_count / length), limit // length) * length
        if whole_count >= MIN_STEPS:
            step_count = whole_count
    return Schedule(
        warmup_step_count=warmup,
        step_count=step_count,
        timeout_s=(COMPILE_TIMEOUT_S if compiles else START_TIMEOUT_S)
        + SLOWDOWN * (warmup + step_count) * mean_s,
    )
