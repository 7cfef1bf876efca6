"""Work of each step, as far as it is recorded; some jobs do more in later steps than in earlier.

An agent whose episodes get longer, or a curriculum of longer sequences, takes longer steps and
keeps more in memory, and nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stepscope.analysis.growth import Growth, measure_growth
from stepscope.analysis.spans import FLAG_SIZED, SIZE_BITS, Spans
from stepscope.analysis.steps import Steps, find_step_at
from stepscope.intervals import Int


def measure_work(spans: Spans, steps: Steps) -> list[Int]:
    """Measure the work of each step: forward passes, backward passes, elements of their inputs and
    fetched batches. Measures that are not known for every measured step are left out.

    Args:
        spans: spans of the process.
        steps: its steps.
    """
    is_measured = steps.measured()
    return [work for work in _iterate_measures(spans, steps) if (work[is_measured] > 0).all()]


def _iterate_measures(spans: Spans, steps: Steps) -> Iterator[Int]:
    spans = spans.take(spans.thread == steps.thread)
    for kind in ("forward", "backward"):
        yield _sum_by_step(spans.of(kind), None, steps)
    forward = spans.of("forward")
    size = np.where(forward.has_flag(FLAG_SIZED), forward.value & ((1 << SIZE_BITS) - 1), 0)
    elements = _sum_by_step(forward, size, steps)
    unknown = _sum_by_step(forward, (size == 0).astype(np.int64), steps)
    yield np.where(unknown == 0, elements, 0)
    yield steps.fetches


def _sum_by_step(spans: Spans, values: Int | None, steps: Steps) -> Int:
    step = find_step_at(spans.start, steps)
    inside = step >= 0
    weights = None if values is None else values[inside]
    return np.bincount(step[inside], weights, minlength=len(steps)).astype(np.int64)


def measure_growth_at_equal_work(
    values: NDArray[np.float64] | Int, work: list[Int]
) -> tuple[Growth | None, bool]:
    """Measure how a series grows beyond the work of its steps.

    Args:
        values: one value per step, proportional to the work.
        work: measures of the work of each step, greater than zero.

    Returns:
        The growth of the values, or of the values scaled to the mean work by the measure that
        explains most of it, and True for the latter; and the smallest `steady_ratio` of them all.
        None for fewer values than `measure_growth` needs.
    """
    growth, is_scaled = measure_growth(values), False
    if growth is None:
        return None, False
    steady_ratio = growth.steady_ratio
    for amount in work:
        scaled = measure_growth(values * (amount.mean() / amount))
        if scaled is not None and scaled.excess < growth.excess:
            growth, is_scaled = scaled, True
        if scaled is not None:
            steady_ratio = min(steady_ratio, scaled.steady_ratio)
    return replace(growth, steady_ratio=steady_ratio), is_scaled
