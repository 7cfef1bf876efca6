"""Steps of loops without an optimizer, as drawings. Times are milliseconds.

The value of a backward pass has a bit for every module that was updated since the pass before, and
31 bits above it one for cleared gradients.
"""

from __future__ import annotations

import pytest

from stepscope.analysis import Steps, find_steps
from stepscope.testing import Drawing

MS = 1_000_000
CLEARED = 1 << 31


def steps_of(*lines: str, times: int) -> Steps:
    drawing = Drawing()
    for _ in range(times):
        for line in lines:
            drawing.draw(line)
    steps = find_steps(drawing.table(), ("step", "optimizer", "backward"))
    assert steps is not None
    return steps


def walls(steps: Steps) -> list[float]:
    return [wall / MS for wall in steps.wall_ns.tolist()]


def test_a_step_goes_from_backward_pass_to_backward_pass() -> None:
    steps = steps_of("forward 2 | do 1 | backward=1 3 | do 4", times=4)
    assert steps.source == "backward"
    assert walls(steps) == [6, 10, 10, 10], "the update by hand is the first work of the next step"
    assert steps.phase_ns["other"].tolist() == [0, 4 * MS, 4 * MS, 4 * MS]


def test_backward_passes_end_no_steps_where_they_are_not_asked_to() -> None:
    assert find_steps(Drawing().draw("forward 2 | backward=1 3", 4).table()) is None


@pytest.mark.parametrize("evidence", [1, CLEARED])
def test_micro_batches_between_updates_are_one_step(evidence: int) -> None:
    micro = "wait 1 | forward 2 | backward 3"
    first = f"wait 1 | forward 2 | backward={evidence} 3"
    steps = steps_of(first, micro, micro, "do 2", times=4)
    assert walls(steps) == [18, 20, 20, 20]
    assert steps.fetches.tolist() == [3, 3, 3, 3]


def test_updates_count_more_than_gradients_that_are_cleared_more_often() -> None:
    micro = f"forward 2 | backward={CLEARED} 3"
    assert walls(steps_of(f"forward 2 | backward={CLEARED | 1} 3", micro, times=3)) == [10] * 3


def test_without_evidence_a_forward_pass_starts_an_iteration() -> None:
    steps = steps_of("forward 2 | backward 3 | backward 1", times=3)
    assert walls(steps) == [6, 6, 6]


def test_without_evidence_a_fetch_starts_an_iteration() -> None:
    assert walls(steps_of("wait 1 | do 2 | backward 3", times=3)) == [6, 6, 6]


def test_plain_tensors() -> None:
    assert walls(steps_of("do 2 | backward 3", times=3)) == [3, 5, 5]


def test_the_two_models_of_a_gan_make_one_step() -> None:
    """The update of the one is seen before the pass of the other."""
    steps = steps_of(
        "wait 1 | forward:D 2 | backward=2 3 | do 1", "forward:G 4 | backward=1 5 | do 1", times=3
    )
    assert walls(steps) == [16, 17, 17]


def test_models_updated_together() -> None:
    assert walls(steps_of("forward:A 1 | forward:B 1 | backward=3 5 | do 1", times=3)) == [7, 8, 8]


def test_a_shared_trunk_with_alternating_heads_takes_a_step_for_each() -> None:
    trunk, head, second_head = 1, 2, 4
    steps = steps_of(
        f"forward 2 | backward={trunk | head} 3",
        f"forward 2 | backward={trunk | second_head} 3",
        times=3,
    )
    assert walls(steps) == [5] * 6


def test_gradients_alone_are_part_of_an_iteration_that_accumulates_others() -> None:
    steps = steps_of(
        "forward 1 | backward:grad 2 | forward 1 | backward:backward 3 | do 1", times=3
    )
    assert walls(steps) == [7, 8, 8]
    assert walls(steps_of("forward 1 | backward:grad 2", times=3)) == [3, 3, 3]


def test_a_pass_inside_a_module_ends_no_step() -> None:
    """Such as forces, the derivatives of an energy."""
    steps = steps_of("forward 5 ( backward:grad 2 ) | backward:grad 2", times=3)
    assert walls(steps) == [7, 7, 7]


def test_an_optimizer_takes_precedence() -> None:
    steps = steps_of("forward 2 | backward=1 3 | backward=1 3 | optimizer 1", times=3)
    assert steps.source == "optimizer"
    assert walls(steps) == [9, 9, 9]
