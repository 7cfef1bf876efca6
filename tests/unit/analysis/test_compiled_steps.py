"""Steps of processes that call functions compiled by JAX."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from stepscope.analysis.steps.evaluation import find_training_calls
from stepscope.analysis.steps.steps import STEP_SOURCES, Steps, find_steps, find_training_thread
from stepscope.testing import Drawing
from tests.support.drawn_steps import MS, phases, steps_in, walls

SOURCES = tuple(kind for kinds in STEP_SOURCES[:-1] for kind in kinds)
STEP = "wait 4 | dispatch:train=800 2 | device_wait 10"


def steps_of(text: str, times: int) -> Steps:
    steps = steps_in(Drawing().draw(text, times), SOURCES)
    assert np.array_equal(sum(steps.phase_ns.values()), steps.wall_ns)
    return steps


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # The function that returns most state; of equal ones, the one that runs most.
        ("dispatch:augment 5 | dispatch:train=800 2 | dispatch:ema=400 1", "train"),
        ("dispatch:a=8 1 | dispatch:b=8 1 | dispatch:b=8 1", "b"),
    ],
)
def test_the_function_that_trains(text: str, name: str) -> None:
    assert find_training_calls(Drawing().draw(text, 3).table()).name_of(0) == name


def test_a_function_that_ran_once_among_many_calls_does_not_train() -> None:
    drawing = Drawing().draw("dispatch:restore=9000 5").draw("dispatch:train=800 2", 100)
    calls = find_training_calls(drawing.table())
    assert (len(calls), calls.name_of(0)) == (100, "train")


def test_micro_batches_are_no_steps() -> None:
    text = "wait 1 | dispatch:grad=100 2 | wait 1 | dispatch:grad=100 2 | dispatch:apply=300 1"
    assert steps_of(text, 5).fetches.tolist() == [2] * 5


def test_a_thread_with_more_calls_that_return_no_state_does_not_train() -> None:
    loading = "dispatch:normalise 1 | dispatch:shuffle=3 1 | dispatch:normalise 1"
    spans = Drawing().draw(f"{STEP} | {loading}", 5).table()
    loaders = {"normalise", "shuffle"}
    groups = [replace(g, thread=2 if g.name in loaders else 1) for g in spans.groups]
    spans = replace(spans, groups=groups)
    assert find_training_thread(spans, SOURCES) == (1, "dispatch")
    assert find_training_thread(spans.take(spans.is_named("normalise")), SOURCES) is None


def test_without_state_there_are_no_steps() -> None:
    assert find_steps(Drawing().draw("wait 1 | dispatch:predict 5", 9).table(), SOURCES) is None


def test_reading_the_loss_belongs_to_its_step() -> None:
    steps = steps_of(STEP, 5)
    assert (steps.source, len(steps)) == ("dispatch", 5)
    for step in range(5):
        assert phases(steps, step) == {"data_wait": 4, "dispatch": 2, "execution": 10}


def test_a_wait_after_other_work_belongs_to_the_next_step() -> None:
    steps = steps_of("wait 4 | dispatch:train=8 2 | dispatch:log 3 | device_wait 1", 4)
    assert steps.end[0] - steps.start[0] == 6 * MS
    assert steps.phase_ns["execution"].tolist() == [0, MS, MS, MS]


def test_compilation_is_no_dispatch() -> None:
    drawing = Drawing().draw("wait 4 | dispatch:train=800 ( compile:train 50 ) | device_wait 10")
    steps = steps_in(drawing.draw(STEP, 3), SOURCES)
    assert steps.phase_ns["compilation"].tolist() == [50 * MS, 0, 0, 0]
    assert steps.phase_ns["dispatch"].tolist() == [0, 2 * MS, 2 * MS, 2 * MS]


def test_batches_that_are_only_evaluated_are_apart() -> None:
    evaluation = "wait 3 | dispatch:evaluate=8 2 | device_wait 5 | exhausted 1"
    steps = steps_in(Drawing().draw(STEP, 3).draw(evaluation).draw(STEP, 3), SOURCES)
    assert (steps.evaluation.total_ns, walls(steps)) == (11 * MS, [16] * 6)


def test_functions_that_help_with_a_step_are_no_evaluation() -> None:
    text = "wait 3 | dispatch:augment 1 | dispatch:train=800 2 | dispatch:metrics 2 | device_wait 1"
    assert not len(steps_of(text, 6).evaluation.start)


@pytest.mark.parametrize(
    ("text", "source"),
    [(f"{STEP} | mark", "marked"), ("forward 1 | optimizer 2 | dispatch:a=9 1", "optimizer")],
)
def test_marks_and_optimizers_take_precedence(text: str, source: str) -> None:
    assert steps_of(text, 4).source == source
