"""Work of steps, and growth beyond it."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis import Steps, find_steps, measure_growth_at_equal_work, measure_work
from stepscope.testing import Drawing

TRAIN = "forward:Net=32 2 | backward 3 | optimizer 1"


def draw(*lines: str) -> tuple[Drawing, Steps]:
    drawing = Drawing()
    for line in lines:
        drawing.draw(line)
    steps = find_steps(drawing.table())
    assert steps is not None
    return drawing, steps


def test_passes_elements_and_batches_are_counted_by_step() -> None:
    act = "predict:Net=4 1"
    drawing, steps = draw(TRAIN, *[f"wait 1 | {act} | {act} | {TRAIN}", f"wait 1 | {TRAIN}"] * 5)
    forward, backward, elements, fetches = measure_work(drawing.table(), steps)
    assert forward.tolist() == [1, *[3, 1] * 5]
    assert backward.tolist() == [1] * 11
    assert elements.tolist() == [32, *[40, 32] * 5]
    assert fetches.tolist() == [0, *[1] * 10], "the first step is not measured"


def test_a_measure_that_is_unknown_for_some_steps_is_left_out() -> None:
    drawing, steps = draw(*[TRAIN] * 4, "forward:Net 2 | backward 3 | optimizer 1", *[TRAIN] * 4)
    forward, backward = measure_work(drawing.table(), steps)
    assert forward.tolist() == backward.tolist() == [1] * 9


def test_evaluation_is_no_work_of_a_step() -> None:
    drawing, steps = draw(*[TRAIN, "evaluate:Net=99 5"] * 6)
    assert [work.tolist() for work in measure_work(drawing.table(), steps)] == [
        [1] * 6, [1] * 6, [32] * 6,
    ]  # fmt: skip


def test_time_that_grows_with_the_work_does_not_grow() -> None:
    episode = np.arange(10, 110)
    growth, is_scaled = measure_growth_at_equal_work(3.0 * episode, [np.full(100, 7), episode])
    assert (growth.steady_ratio, growth.excess) == (0, pytest.approx(0))
    assert growth.first == pytest.approx(3 * episode.mean())
    assert is_scaled


def test_time_that_grows_more_than_the_work() -> None:
    """Every element takes one more nanosecond in each step."""
    episode = np.arange(10, 110)
    growth, is_scaled = measure_growth_at_equal_work(episode * np.arange(100), [episode])
    assert is_scaled
    assert growth.steady_ratio == 1
    assert growth.last == pytest.approx(94.5 * episode.mean())


@pytest.mark.parametrize("work", [[], [np.full(100, 5)], [np.arange(200, 100, -1)]])
def test_growth_without_growing_work_is_that_of_the_values(work: list[np.ndarray]) -> None:
    growth, is_scaled = measure_growth_at_equal_work(np.arange(100.0), work)
    assert not is_scaled
    assert (growth.first, growth.last, growth.steady_ratio) == (4.5, 94.5, 1)


def test_too_few_values() -> None:
    assert measure_growth_at_equal_work(np.array([1.0]), []) == (None, False)
