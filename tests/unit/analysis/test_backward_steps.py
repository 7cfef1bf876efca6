"""Steps of loops without an optimizer, as drawings. Times are milliseconds.

The value of a backward pass has a bit for every module that was updated since the pass before, and
31 bits above it one for cleared gradients.
"""

from __future__ import annotations

import pytest

from stepscope.analysis import find_steps
from stepscope.testing import Drawing
from tests.support.drawn_steps import phases, steps_of, walls

CLEARED = 1 << 31
TRUNK, HEAD, SECOND_HEAD = 1, 2, 4
MICRO = "wait 1 | forward 2 | backward 3"
END_KINDS = ("step", "optimizer", "backward")
WALLS = {
    "the update by hand is the first work of the next step": (
        "forward 2 | do 1 | backward=1 3 | do 4", [6, 10, 10],
    ),
    "micro-batches between updates are one step": (
        f"wait 1 | forward 2 | backward=1 3 | {MICRO} | {MICRO} | do 2", [18, 20, 20],
    ),
    "micro-batches between cleared gradients are one step": (
        f"wait 1 | forward 2 | backward={CLEARED} 3 | {MICRO} | {MICRO} | do 2", [18, 20, 20],
    ),
    "updates count more than gradients that are cleared more often": (
        f"forward 2 | backward={CLEARED | 1} 3 | forward 2 | backward={CLEARED} 3", [10] * 3,
    ),
    "without evidence a forward pass starts an iteration": (
        "forward 2 | backward 3 | backward 1", [6] * 3,
    ),
    "without evidence a fetch starts an iteration": ("wait 1 | do 2 | backward 3", [6] * 3),
    "plain tensors": ("do 2 | backward 3", [3, 5, 5]),
    # The update of the one is seen before the pass of the other.
    "the two models of a GAN make one step": (
        "wait 1 | forward:D 2 | backward=2 3 | do 1 | forward:G 4 | backward=1 5 | do 1",
        [16, 17, 17],
    ),
    "models updated together": ("forward:A 1 | forward:B 1 | backward=3 5 | do 1", [7, 8, 8]),
    "a shared trunk with alternating heads takes a step for each": (
        f"forward 2 | backward={TRUNK | HEAD} 3 | forward 2 | backward={TRUNK | SECOND_HEAD} 3",
        [5] * 6,
    ),
    "gradients alone are part of an iteration that accumulates others": (
        "forward 1 | backward:grad 2 | forward 1 | backward:backward 3 | do 1", [7, 8, 8],
    ),
    "gradients alone": ("forward 1 | backward:grad 2", [3] * 3),
    # Such as forces, the derivatives of an energy.
    "a pass inside a module ends no step": (
        "forward 5 ( backward:grad 2 ) | backward:grad 2", [7] * 3,
    ),
}  # fmt: skip
"""A loop, which is run three times, and the durations of its steps."""


@pytest.mark.parametrize("name", WALLS)
def test_a_step_goes_from_backward_pass_to_backward_pass(name: str) -> None:
    loop, expected = WALLS[name]
    steps = steps_of(loop, times=3, end_kinds=END_KINDS)
    assert (steps.source, walls(steps)) == ("backward", expected)


def test_phases_and_fetches_of_steps() -> None:
    by_hand = steps_of("forward 2 | do 1 | backward=1 3 | do 4", times=2, end_kinds=END_KINDS)
    assert [phases(by_hand, step).get("other") for step in (0, 1)] == [None, 4]
    micro = steps_of("wait 1 | backward=1 3", MICRO, MICRO, times=4, end_kinds=END_KINDS)
    assert micro.fetches.tolist() == [3, 3, 3, 3]


def test_backward_passes_end_no_steps_where_they_are_not_asked_to() -> None:
    assert find_steps(Drawing().draw("forward 2 | backward=1 3", 4).table()) is None


def test_an_optimizer_takes_precedence() -> None:
    loop = "forward 2 | backward=1 3 | backward=1 3 | optimizer 1"
    steps = steps_of(loop, times=3, end_kinds=END_KINDS)
    assert (steps.source, walls(steps)) == ("optimizer", [9, 9, 9])
