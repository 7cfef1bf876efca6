"""Steps of processes that only predict, as drawings. Times are milliseconds."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.steps.steps import MIN_UNTRAINED_PASSES, STEP_SOURCES, find_steps
from stepscope.testing import Drawing
from tests.support.drawn_steps import steps_in, walls

SOURCES = STEP_SOURCES[-1]
WALLS = {
    "a batch of the loader": ("wait 4 | evaluate 10 | do 2", [14, 16, 16]),
    "several calls for a batch, as by generate()": ("wait 1 | predict 5 | predict 5", [11] * 3),
    "several modules for a batch": ("wait 1 | test:Encoder 5 | test:Decoder 3 | do 1", [9, 10, 10]),
    "a batch that is fetched before the call with the one before it": (
        "wait 2 | wait 1 | predict 3", [6] * 3,
    ),
    "a loader for each of several passes": (
        "start 1 | wait 2 | predict 3 | wait 2 | predict 3 | exhausted 1", [6, 5, 7, 5, 7, 5],
    ),
    "calls without a loader": ("do 2 | evaluate 10 | do 3", [10, 15, 15]),
    "modules of several classes in turn": ("predict:Encoder 5 | predict:Decoder 3", [8] * 3),
    "a module that is called often for one call of another": (
        "predict:Text 5 | predict:Unet 3 | predict:Unet 3", [8, 8, 3, 8, 3, 3],
    ),
    "calls of compiled functions, with the waits for their results": (
        "wait 2 | dispatch:predict 1 | device_wait 5 | do 2", [8, 10, 10],
    ),
    "nested calls of compiled modules": ("evaluate 9 ( compile 4 )", [9] * 3),
}  # fmt: skip
"""A loop, which is run three times, and the durations of its steps."""


@pytest.mark.parametrize("name", WALLS)
def test_a_step_is_a_batch_or_a_call(name: str) -> None:
    loop, expected = WALLS[name]
    steps = steps_in(Drawing().draw(loop, 3), SOURCES)
    assert (steps.source, steps.is_inference, walls(steps)) == ("forward", True, expected)
    assert np.array_equal(sum(steps.phase_ns.values()), steps.wall_ns)


def test_the_only_batch_of_a_process_is_called_with_again_and_again() -> None:
    steps = steps_in(Drawing().draw("start 1 | wait 2").draw("predict 5 | do 1", 4), SOURCES)
    assert walls(steps) == [8, 6, 6, 6]


def test_modes_of_a_trainer_do_not_hide_its_predictions() -> None:
    drawing = Drawing().draw("mode:PREDICT ( wait 4 | evaluate 10 | wait 4 | evaluate 10 )")
    steps = steps_in(drawing, SOURCES)
    assert walls(steps) == [14, 14]
    assert not len(steps.evaluation.start)


def test_a_call_that_did_not_end_is_no_step() -> None:
    assert walls(steps_in(Drawing().draw("predict 5", 2).draw("predict ?"), SOURCES)) == [5, 5]


@pytest.mark.parametrize("start", ["", "wait 3 | evaluate 4 | exhausted 1 | "])
def test_first_passes_with_gradients_may_be_the_start_of_a_training(start: str) -> None:
    drawing = Drawing().draw(f"{start}do 1").draw("wait 2 | forward 5", MIN_UNTRAINED_PASSES - 1)
    assert find_steps(drawing.table(), SOURCES) is None
    steps = steps_in(drawing.draw("wait 2 | forward 5"), SOURCES)
    assert len(steps) == MIN_UNTRAINED_PASSES + bool(start)


@pytest.mark.parametrize("end", ["backward ?", "optimizer ?", "optimizer 3", "dispatch=8 1"])
def test_a_process_that_trains_has_no_steps_of_predictions(end: str) -> None:
    drawing = Drawing().draw("wait 4 | evaluate 10", 30).draw(f"wait 1 | forward 1 | {end}")
    assert find_steps(drawing.table(), SOURCES) is None
