"""Predictions that are evaluation, and those that training needs. Times are milliseconds."""

from __future__ import annotations

import pytest

from stepscope.testing import Drawing
from tests.support.drawn_steps import MS, steps_in, steps_of, walls

STEP = "forward:Net=32 4 | backward 8 | optimizer 1"
TEST = "evaluate:Net=128 5"
ACT = "predict:Net=4 1 | do 1"
EPOCH = ("start 1", *["wait 1", STEP] * 8, "exhausted 1")
MICRO = "forward:Net=32 4 | wait 1 | backward 8"
END_KINDS = ("step", "optimizer", "backward")
Loops = dict[str, tuple[tuple[str, ...], int, float]]
"""Lines, how often they are run, and milliseconds of evaluation, by name."""
AFTER_EVERY_STEP: Loops = {
    "in a loop with a loader": (("wait 1", STEP, TEST), 10, 50),
    # The wait for the end of the older iterator, as of tf.data, follows the start of the new one.
    "begins with the start of an iterator that replaces an older one": (
        (
            *("start 1", "exhausted 3", *[f"wait 1 | {STEP}"] * 8, "exhausted 1"),
            *("start 2", "exhausted 3", *["wait 1 | evaluate:Net=32 2"] * 4, "exhausted 1"),
        ),
        3,
        3 * (2 + 3 + 4 * 3 + 1),
    ),
}
"""A pass over held-out tensors: without gradients, or with them in evaluation mode."""
BEFORE_TRAINING: Loops = {
    f"{fetch}, {word} {name}": ((fetch, f"{word}:{name}=32 3", STEP), 10, 0)
    for fetch in ("do 1", "wait 1")
    for word in ("predict", "evaluate")
    for name in ("Teacher", "Net")
} | {
    "in later parts of the first step": (
        ("forward:D 2 | backward 2 | optimizer:D 1", "predict:T 3", STEP), 10, 0,
    ),
    # Every tenth step, the first included, with a batch of the loader in hand: is evaluation.
    **{
        f"of the trained model now and then after {fetch}": (
            (f"{fetch} | {TEST}", STEP, *[fetch, STEP] * 9), 5, 25,
        )
        for fetch in ("do 1", "wait 1")
    },
}  # fmt: skip
"""Predictions that training uses come before it, from the first iteration on."""
EXPERIENCE: Loops = {
    "collected in every step": ((ACT, STEP), 20, 0),
    "collected for several steps at once": ((*[ACT] * 16, *[STEP] * 8), 5, 0),
    "collected in evaluation mode": (
        (*[ACT.replace("predict", "evaluate")] * 16, *[STEP] * 8), 5, 0,
    ),
    # Stable-Baselines3 calls the policy to act, and its parts to train them.
    "collected by a policy of which the parts are trained": (
        (*["evaluate:Policy=1 1 | do 1"] * 16, *[STEP] * 8), 5, 0,
    ),
    "collected for an epoch of a loader": ((*[ACT] * 16, *EPOCH), 5, 0),
    "rare predictions as large as training batches are evaluation": (
        (*["predict:Net=32 1 | do 1"] * 16, *[STEP] * 8), 5, 5 * (16 * 2 - 1),
    ),
    "small batches of a validation loader are evaluation": (
        ("start 1", *["wait 1 | evaluate:Net=1 2"] * 4, "exhausted 1",
         "start 1", *[f"wait 1 | {STEP}"] * 8, "exhausted 1"), 3, 3 * (1 + 4 * 3 + 1),
    ),
}  # fmt: skip
"""The actions of an agent: fewer elements at a time than it trains on."""
GRADIENTS_IN_EVALUATION_MODE: Loops = {
    "adversarial examples are training": (("test:Net=32 2 | backward:grad 3", STEP), 10, 0),
    # Features of a frozen network.
    "a module that is never trained is part of the loss": (
        ("test:VGG 2 | forward:Net 4 | test:VGG 2 | backward 8 | optimizer 1",), 10, 0,
    ),
    # A script that forgets `no_grad` and evaluation mode; the last pass may begin a batch.
    "passes between training and the next fetch are evaluation": (
        (*[f"wait 1 | {STEP}"] * 4, "forward:Net=512 20"), 5, 4 * 20,
    ),
    "a second pass before the backward pass is training": (
        ("wait 1 | forward:Net=32 4 | forward:Net=32 4 | backward 8 | optimizer 1",), 10, 0,
    ),
}  # fmt: skip
LOOPS = AFTER_EVERY_STEP | BEFORE_TRAINING | EXPERIENCE | GRADIENTS_IN_EVALUATION_MODE


@pytest.mark.parametrize("name", LOOPS)
def test_evaluation(name: str) -> None:
    lines, times, expected = LOOPS[name]
    steps = steps_of(*lines, times=times, end_kinds=END_KINDS)
    assert steps.evaluation.total_ns / MS == expected


@pytest.mark.parametrize("word", ["predict", "evaluate", "test"])
@pytest.mark.parametrize("count", [1, 3])
def test_passes_after_every_step_are_evaluation(word: str, count: int) -> None:
    test = " | ".join([f"{word}:Net=128 5"] * count)
    steps = steps_of("do 1", STEP, test, times=10, end_kinds=END_KINDS)
    assert steps.evaluation.total_ns / MS == 10 * 5 * count
    assert walls(steps) == [13] + [14] * 9


def test_evaluation_without_an_optimizer() -> None:
    loop = "do 1 | forward:Net=32 4 | backward=1 8"
    steps = steps_of(loop, TEST, times=10, end_kinds=END_KINDS)
    assert (steps.evaluation.total_ns / MS, len(steps)) == (50, 10)


def test_evaluation_after_predictions_of_the_untrained_model_in_training_mode() -> None:
    steps = steps_of("predict:Net=128 5", *[STEP, TEST] * 10, end_kinds=END_KINDS)
    assert steps.evaluation.total_ns / MS == 50


def test_embeddings_of_all_samples_before_the_training_are_in_no_step() -> None:
    embedded = ["evaluate:Teacher 3"] * 16
    steps = steps_of(*embedded, *[f"wait 1 | {STEP}"] * 8, end_kinds=END_KINDS)
    assert (steps.evaluation.total_ns, walls(steps)) == (0, [14] * 8)


def test_a_teacher_that_joins_later_is_no_evaluation() -> None:
    drawing = Drawing().draw(STEP, 5)
    drawing.draw("forward:Net=32 4 | predict:Teacher=32 3 | backward 8 | optimizer 1", 10)
    assert steps_in(drawing).evaluation.total_ns == 0


@pytest.mark.parametrize(
    ("lines", "forward_ms"),
    [
        # Fine-tuning with frozen statistics.
        (["test:Net=32 4 | backward 8 | optimizer 1"] * 10, 4),
        # The next batch is prepared while the device runs the forward pass.
        (["wait 1", *[MICRO, MICRO, "optimizer 1"] * 10], 8),
    ],
)
def test_training_in_evaluation_mode_or_with_a_batch_fetched_ahead(
    lines: list[str], forward_ms: float
) -> None:
    steps = steps_of(*lines, end_kinds=END_KINDS)
    assert steps.evaluation.total_ns == 0
    assert steps.phase_ns["forward"].tolist() == [forward_ms * MS] * 10
