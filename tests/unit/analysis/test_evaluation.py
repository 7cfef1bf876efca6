"""Predictions that are evaluation, and those that training needs. Times are milliseconds."""

from __future__ import annotations

import pytest

from stepscope.analysis import Steps, find_steps
from stepscope.testing import Drawing

MS = 1_000_000
STEP = "forward:Net=32 4 | backward 8 | optimizer 1"


def steps_of(*lines: str, times: int, before: str = "") -> Steps:
    drawing = Drawing()
    if before:
        drawing.draw(before)
    for _ in range(times):
        for line in lines:
            drawing.draw(line)
    steps = find_steps(drawing.table(), ("step", "optimizer", "backward"))
    assert steps is not None
    return steps


def evaluation_ms(steps: Steps) -> float:
    return steps.evaluation.total_ns / MS


class TestAfterEveryStep:
    """A pass over held-out tensors: without gradients, or with them in evaluation mode."""

    @pytest.mark.parametrize("word", ["predict", "evaluate", "test"])
    @pytest.mark.parametrize("count", [1, 3])
    def test_is_evaluation(self, word: str, count: int) -> None:
        test = " | ".join([f"{word}:Net=128 5"] * count)
        steps = steps_of("do 1", STEP, test, times=10)
        assert evaluation_ms(steps) == 10 * 5 * count
        assert steps.wall_ns.tolist() == [13 * MS] + [14 * MS] * 9

    def test_is_evaluation_without_an_optimizer(self) -> None:
        step = "do 1 | forward:Net=32 4 | backward=1 8"
        steps = steps_of(step, "evaluate:Net=128 5", times=10)
        assert evaluation_ms(steps) == 50
        assert len(steps) == 10

    def test_is_evaluation_after_predictions_of_the_untrained_model_in_training_mode(self) -> None:
        steps = steps_of(STEP, "evaluate:Net=128 5", times=10, before="predict:Net=128 5")
        assert evaluation_ms(steps) == 50

    def test_is_evaluation_with_a_loader(self) -> None:
        steps = steps_of("wait 1", STEP, "evaluate:Net=128 5", times=10)
        assert evaluation_ms(steps) == 50

    def test_begins_with_the_start_of_its_iterator_which_replaces_an_older_one(self) -> None:
        """The wait for the end of the older one, as of tf.data, follows that start."""
        train = ["start 1", "exhausted 3", *[f"wait 1 | {STEP}"] * 8, "exhausted 1"]
        evaluate = ["start 2", "exhausted 3", *["wait 1 | evaluate:Net=32 2"] * 4, "exhausted 1"]
        steps = steps_of(*train, *evaluate, times=3)
        assert evaluation_ms(steps) == 3 * (2 + 3 + 4 * 3 + 1)


class TestBeforeTraining:
    """Predictions that training uses come before it, from the first iteration on."""

    @pytest.mark.parametrize("fetch", ["do 1", "wait 1"])
    @pytest.mark.parametrize("word", ["predict", "evaluate"])
    @pytest.mark.parametrize("name", ["Teacher", "Net"])
    def test_are_no_evaluation(self, fetch: str, word: str, name: str) -> None:
        assert evaluation_ms(steps_of(fetch, f"{word}:{name}=32 3", STEP, times=10)) == 0

    def test_are_no_evaluation_in_later_parts_of_the_first_step(self) -> None:
        gan = "forward:D 2 | backward 2 | optimizer:D 1"
        assert evaluation_ms(steps_of(gan, "predict:T 3", STEP, times=10)) == 0

    def test_are_no_evaluation_between_forward_and_backward_pass(self) -> None:
        """A teacher that joins later."""
        drawing = Drawing().draw(STEP, 5)
        drawing.draw("forward:Net=32 4 | predict:Teacher=32 3 | backward 8 | optimizer 1", 10)
        steps = find_steps(drawing.table())
        assert steps is not None
        assert evaluation_ms(steps) == 0

    def test_of_the_trained_model_in_evaluation_mode_now_and_then_are_evaluation(self) -> None:
        """Every tenth step, the first included, with a batch of the loader in hand."""
        for fetch in ("do 1", "wait 1"):
            steps = steps_of(f"{fetch} | evaluate:Net=128 5", STEP, *[fetch, STEP] * 9, times=5)
            assert evaluation_ms(steps) == 25


class TestExperience:
    """The actions of an agent: fewer elements at a time than it trains on."""

    ACT = "predict:Net=4 1 | do 1"

    def test_collected_in_every_step(self) -> None:
        assert evaluation_ms(steps_of(self.ACT, STEP, times=20)) == 0

    @pytest.mark.parametrize("word", ["predict", "evaluate"])
    def test_collected_for_several_steps_at_once(self, word: str) -> None:
        act = self.ACT.replace("predict", word)
        assert evaluation_ms(steps_of(*[act] * 16, *[STEP] * 8, times=5)) == 0

    def test_collected_for_an_epoch_of_a_loader(self) -> None:
        epoch = ["start 1", *["wait 1", STEP] * 8, "exhausted 1"]
        assert evaluation_ms(steps_of(*[self.ACT] * 16, *epoch, times=5)) == 0

    def test_rare_predictions_as_large_as_training_batches_are_evaluation(self) -> None:
        pass_over_all = ["predict:Net=32 1 | do 1"] * 16
        steps = steps_of(*pass_over_all, *[STEP] * 8, times=5)
        assert evaluation_ms(steps) == 5 * (16 * 2 - 1)

    def test_small_batches_of_a_validation_loader_are_evaluation(self) -> None:
        drawing = Drawing()
        for _ in range(3):
            drawing.evaluation(4, "wait 1 | evaluate:Net=1 2")
            drawing.draw("start 1").draw(f"wait 1 | {STEP}", 8).draw("exhausted 1")
        steps = find_steps(drawing.table())
        assert steps is not None
        assert evaluation_ms(steps) == 3 * (1 + 4 * 3 + 1)


class TestGradientsInEvaluationMode:
    def test_training_in_evaluation_mode_is_training(self) -> None:
        """Fine-tuning with frozen statistics."""
        steps = steps_of("test:Net=32 4 | backward 8 | optimizer 1", times=10)
        assert evaluation_ms(steps) == 0
        assert steps.phase_ns["forward"].tolist() == [4 * MS] * 10

    def test_adversarial_examples_are_training(self) -> None:
        attack = "test:Net=32 2 | backward:grad 3"
        assert evaluation_ms(steps_of(attack, STEP, times=10)) == 0

    def test_a_module_that_is_never_trained_is_part_of_the_loss(self) -> None:
        """Features of a frozen network."""
        step = "test:VGG 2 | forward:Net 4 | test:VGG 2 | backward 8 | optimizer 1"
        assert evaluation_ms(steps_of(step, times=10)) == 0

    def test_passes_between_training_and_the_next_fetch_are_evaluation(self) -> None:
        """A script that forgets `no_grad` and evaluation mode."""
        batch = f"wait 1 | {STEP}"
        steps = steps_of(*[batch] * 4, "forward:Net=512 20", times=5)
        assert evaluation_ms(steps) == 4 * 20  # the last one may begin a batch

    def test_a_second_pass_before_the_backward_pass_is_training(self) -> None:
        step = "wait 1 | forward:Net=32 4 | forward:Net=32 4 | backward 8 | optimizer 1"
        assert evaluation_ms(steps_of(step, times=10)) == 0

    def test_a_batch_that_is_fetched_before_the_backward_pass(self) -> None:
        """The next batch is prepared while the device runs the forward pass."""
        micro = "forward:Net=32 4 | wait 1 | backward 8"
        steps = steps_of(micro, micro, "optimizer 1", times=10, before="wait 1")
        assert evaluation_ms(steps) == 0
        assert steps.phase_ns["forward"].tolist() == [8 * MS] * 10
