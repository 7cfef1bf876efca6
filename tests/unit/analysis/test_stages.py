"""Stages of processes that train several times, as drawings. Times are milliseconds."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis import STEP_SOURCES, Stage, find_stages, find_steps
from stepscope.testing import Drawing
from tests.support.drawn_steps import MS

Script = list[tuple[str, int]]
"""Loops, each with its number of repetitions."""


def step(model: str, optimizer: str, wait: str = "wait:Rows#0 1") -> str:
    return f"{wait} | forward:{model} 2 | backward 3 | optimizer:{optimizer} 1"


def stages_of(script: Script) -> list[Stage]:
    drawing = Drawing()
    for loop, times in script:
        drawing.draw(loop, times)
    spans = drawing.table()
    for kinds in STEP_SOURCES:
        steps = find_steps(spans, kinds)
        if steps is not None:
            stages = find_stages(spans, steps)
            assert sum(stage.step_count for stage in stages) == len(steps)
            firsts = [stage.first for stage in stages]
            assert [stage.start_ns for stage in stages] == steps.start[firsts].tolist()
            ends = [stage.last for stage in stages]
            assert [stage.end_ns for stage in stages] == steps.end[ends].tolist()
            return stages
    raise AssertionError


EVALUATION = " | ".join(
    ["start 1", *["wait:Valid#1 1 | evaluate:Net 2"] * 2, "exhausted:Valid#1 1"]
)
CRITIC, GENERATOR = (
    "forward:D 2 | backward 1 | optimizer:D=1 1",
    "forward:G 2 | backward 1 | optimizer:G=2 1",
)
SCALED = "optimizer:GradScaler=1 3 ( optimizer:Adam=1 2 )"
SEVERAL: dict[str, tuple[Script, list[tuple[int, str]]]] = {
    "pre-training and fine-tuning": (
        [("forward:Net 2 | backward 3 | optimizer:Adam=7 1", 30), (step("Head", "SGD=8"), 20)],
        [(30, "Net with Adam"), (20, "Head with SGD on Rows")],
    ),
    "folds, each with a model and an optimizer": (
        [(step("Net", f"Adam={fold}"), 10) for fold in (1, 2, 3)],
        [(10, "Net with Adam on Rows")] * 3,
    ),
    "an optimizer at the address of the one before, of another model": (
        [(step("Net", "Adam=7"), 10), ("do 9", 1), (step("Head", "Adam=7"), 10)],
        [(10, "Net with Adam on Rows"), (10, "Head with Adam on Rows")],
    ),
    "further models of XGBoost": (
        [("do 5 | new_model:train 4", 1), ("optimizer:train 4", 9)] * 2,
        [(10, "model with train")] * 2,
    ),
    "modules of a process without optimizers": (
        [("wait 1 | forward:A 2 | backward=1 3", 10), ("wait 1 | forward:B 2 | backward=2 3", 10)],
        [(10, "A"), (10, "B")],
    ),
    "a scaler, some of whose steps skip that of the optimizer": (
        [
            (f"forward:Net 1 | {SCALED} | forward:Net 1 | optimizer:GradScaler=1 1", 10),
            ("wait 1", 1),
            (f"forward:Net 1 | {SCALED.replace('=1', '=2')}", 10),
        ],
        [(20, "Net with Adam"), (10, "Net with Adam")],
    ),
    "models that only predict": (
        [("wait:Texts#0 1 | infer:A 2", 10), ("wait:Texts#0 1 | infer:B 2", 10)],
        [(10, "A on Texts"), (10, "B on Texts")],
    ),
    # The last step of the one has the first update of the other as well.
    "a model before two in turn, without a fetch": (
        [(step("Net", "Adam=3"), 30), (f"{CRITIC} | {GENERATOR}", 10)],
        [(30, "Net with Adam on Rows"), (9, "D, G with D, G")],
    ),
}  # fmt: skip
"""Scripts, and the numbers of steps and the titles of their stages."""
SINGLE: dict[str, Script] = {
    "epochs with an evaluation and a new loader": [
        (f"start:Rows 1 | {step('Net', 'Adam=1')}", 1), (step("Net", "Adam=1"), 9), (EVALUATION, 1),
        (f"start:Rows 1 | {step('Net', 'Adam=1', 'wait:Rows#1 1')}", 1),
        (step("Net", "Adam=1", "wait:Rows#1 1"), 9), (EVALUATION, 1),
    ],
    "more and more modules of one optimizer": [
        (step("Head", "Adam=1"), 10), (step("Head 1 | forward:Net", "Adam=1"), 10),
        (step("Net", "Adam=1"), 10),
    ],
    "two optimizers in each step": [(f"wait 1 | {CRITIC} | {GENERATOR}", 20)],
    "five steps of a critic for each of a generator": [
        (" | ".join([CRITIC] * 5 + [GENERATOR]), 10),
    ],
    "long phases of two optimizers that take turns": [(CRITIC, 20), (GENERATOR, 20)] * 2,
    "tasks in turn, each with a head and an optimizer": [
        (f"{step('A', 'Adam=1')} | {step('B', 'Adam=2')}", 10),
    ],
    "an optimizer in every step": [(step("Net", f"SGD={number}"), 1) for number in range(20)],
    "marked steps": [("forward:Net 1 | optimizer:Adam=1 2 | mark", 10), ("do 3 | mark", 10)],
    "calls of one compiled function": [("wait 1 | dispatch:train=8 2 | device_wait 3", 10)],
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_each_training_is_a_stage(name: str) -> None:
    script, expected = SEVERAL[name]
    assert [(stage.step_count, stage.title) for stage in stages_of(script)] == expected


@pytest.mark.parametrize("name", SINGLE)
def test_one_training_has_one_stage(name: str) -> None:
    assert len(stages_of(SINGLE[name])) == 1


def test_facts_tell_optimizers_of_one_address_apart() -> None:
    """Three folds with an optimizer at the same address, then one that takes other modules."""
    drawing, first_uses = Drawing(), list[tuple[int, int]]()
    for _ in range(3):
        first_uses.append((7, drawing.now))
        drawing.draw(step("Net", "Adam=7"), 10)
    first_uses.append((8, drawing.now))
    drawing.draw(step("A", "Adam=8"), 10).draw(step("B", "Adam=8"), 10)
    spans = drawing.table()
    steps = find_steps(spans)
    assert steps is not None
    assert len(find_stages(spans, steps)) == 3, "the folds cannot be told apart"
    counts = [stage.step_count for stage in find_stages(spans, steps, first_uses)]
    assert counts == [10, 10, 10, 20]


def test_the_first_steps_of_a_stage_are_not_measured() -> None:
    drawing = Drawing().draw(step("Net", "Adam=1"), 40).draw(step("Net", "Adam=2"), 30)
    spans = drawing.table()
    steps = find_steps(spans)
    assert steps is not None
    (_, stage) = find_stages(spans, steps)
    selected = steps.starting_within(stage.start_ns, stage.end_ns).as_stage()
    assert selected.number.tolist() == list(range(40, 70))
    assert selected.measured().tolist() == [False] * 3 + [True] * 27
    later = selected.starting_within(stage.start_ns + 8 * MS, stage.end_ns)
    assert np.flatnonzero(~later.measured()).tolist() == [0]
