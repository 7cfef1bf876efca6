"""Boundaries of steps: every rule as a drawing of a job. Times are milliseconds."""

from __future__ import annotations

import numpy as np
import pytest

from stepscope.analysis.phases import PHASES
from stepscope.analysis.steps import Steps, find_step_at, find_steps, select_window_steps
from stepscope.testing import Drawing

MS = 1_000_000
STEP = "wait 6 | forward 12 | do 1 | backward 20 | optimizer 8"


def steps_of(*lines: str, times: int = 1) -> Steps:
    drawing = Drawing()
    for _ in range(times):
        for line in lines:
            drawing.draw(line)
    return steps_in(drawing)


def steps_in(drawing: Drawing) -> Steps:
    steps = find_steps(drawing.table())
    assert steps is not None
    return steps


def walls(steps: Steps) -> list[float]:
    return [wall / MS for wall in steps.wall_ns.tolist()]


def ends(steps: Steps) -> list[float]:
    return [end / MS for end in steps.end.tolist()]


def phases(steps: Steps, step: int = -1) -> dict[str, float]:
    """Return milliseconds of each phase of one step."""
    times = {phase: int(steps.phase_ns[phase][step]) / MS for phase in PHASES}
    return {phase: time for phase, time in times.items() if time}


def test_a_step_goes_from_optimizer_step_to_optimizer_step() -> None:
    steps = steps_of(STEP, times=3)
    assert steps.source == "optimizer"
    assert walls(steps) == [47, 47, 47]
    assert phases(steps) == {
        "data_wait": 6,
        "forward": 12,
        "loss": 1,
        "backward": 20,
        "optimizer": 8,
    }
    assert steps.fetches.tolist() == [1, 1, 1]


def test_the_time_between_two_trainings_is_in_no_step() -> None:
    drawing = Drawing().draw("new_model 8 | do 2").draw("optimizer 8 | do 2", 2)
    steps = steps_in(drawing.draw("do 100 | new_model 4 | do 101 | optimizer 4"))
    assert walls(steps) == [8, 10, 10, 4, 105]
    assert ends(steps) == [8, 18, 28, 134, 239]
    assert (steps.start / MS).tolist() == [0, 8, 18, 130, 134]
    assert (sum(steps.phase_ns.values()) == steps.wall_ns).all()
    assert phases(steps, 3) == {"optimizer": 4}


def test_a_new_model_after_other_work_does_not_cut_its_step() -> None:
    drawing = Drawing().draw(STEP, 2).draw("wait 5 | do 3 | new_model 4")
    assert walls(steps_in(drawing)) == [47, 47, 12]


def test_work_after_the_optimizer_belongs_to_the_next_step() -> None:
    steps = steps_of("wait 1 | forward 2 | backward 3 | optimizer 4 | do 5", times=2)
    assert walls(steps) == [10, 15]
    assert phases(steps, 1) == {
        "data_wait": 1,
        "forward": 2,
        "backward": 3,
        "optimizer": 4,
        "other": 5,
    }


def test_accumulated_micro_batches_are_one_step() -> None:
    micro = "wait 1 | forward 2 | backward 3"
    steps = steps_of(micro, micro, micro, micro, "optimizer 4", times=3)
    assert walls(steps) == [28, 28, 28]
    assert steps.fetches.tolist() == [4, 4, 4]
    assert phases(steps)["backward"] == 12


def test_micro_batches_fetched_ahead_are_one_step() -> None:
    micro = "forward 2 | backward 3"
    steps = steps_of("wait 1 | wait 1", micro, micro, "optimizer 4", times=3)
    assert walls(steps) == [16, 16, 16]
    assert steps.fetches.tolist() == [2, 2, 2]
    assert not len(steps.evaluation.start)


def test_the_two_optimizers_of_a_gan_make_one_step() -> None:
    steps = steps_of(
        "wait 1 | forward:D 2 | backward 3 | optimizer:D 4",
        "forward:G 5 | backward 6 | optimizer:G 7",
        times=3,
    )
    assert walls(steps) == [28, 28, 28]


def test_two_optimizers_without_a_data_loader() -> None:
    steps = steps_of("forward 2 | backward 3 | optimizer:D 4 | backward 6 | optimizer:G 7", times=3)
    assert walls(steps) == [22, 22, 22]


def test_every_critic_iteration_is_a_step_and_the_generator_joins_the_last() -> None:
    critic = "wait 1 | forward:D 2 | backward 3 | optimizer:D 4"
    steps = steps_of(critic, critic, critic, "forward:G 5 | backward 6 | optimizer:G 7", times=2)
    assert walls(steps) == [10, 10, 28, 10, 10, 28]


def test_critic_iterations_on_one_batch() -> None:
    critic = "forward:D 2 | backward 3 | optimizer:D 4"
    steps = steps_of("wait 1", critic, critic, "forward:G 5 | backward 6 | optimizer:G 7", times=2)
    assert walls(steps) == [10, 27, 10, 27]


def test_optimizers_of_two_phases_of_training() -> None:
    drawing = Drawing()
    for optimizer in ("Warm", "Main"):
        drawing.draw(f"wait 1 | forward 2 | backward 3 | optimizer:{optimizer} 4", 3)
    assert walls(steps_in(drawing)) == [10] * 6


def test_a_grad_scaler_steps_once_and_may_skip() -> None:
    steps = steps_of(
        "wait 1 | forward 2 | backward 3 | optimizer:Adam 5 ( optimizer:Adam 4 )",
        "wait 1 | forward 2 | backward 3 | optimizer:Adam 1",
        times=2,
    )
    assert walls(steps) == [11, 7, 11, 7]
    assert [steps.phase_ns["optimizer"][i] / MS for i in range(2)] == [5, 1]


def test_time_in_a_closure_belongs_to_the_innermost_phase() -> None:
    steps = steps_of(
        "wait 1 | optimizer:LBFGS 50 ( forward 5 | do 1 | backward 6 | forward 7 | backward 8 )",
        times=3,
    )
    assert walls(steps) == [51, 51, 51]
    assert phases(steps) == {"data_wait": 1, "forward": 12, "backward": 14, "optimizer": 24}


def test_an_optimizer_starts_after_the_only_backward_pass_of_its_closure() -> None:
    """A framework's own work in the closure is not the optimizer's, however long it takes."""
    steps = steps_of(
        "wait 1 | optimizer:Adam 50 ( do 20 | forward 5 | do 1 | backward 6 | do 9 )", times=3
    )
    assert walls(steps) == [51, 51, 51]
    assert phases(steps) == {
        "data_wait": 1,
        "forward": 5,
        "loss": 1,
        "backward": 6,
        "optimizer": 18,
        "other": 20,
    }


def test_marks_take_precedence() -> None:
    steps = steps_of(
        "forward 2 | backward 3 | optimizer:A 4 | optimizer:B 4 | do 7 | mark", times=3
    )
    assert steps.source == "marked"
    assert walls(steps) == [20, 20, 20]


def test_marks_alone_are_steps() -> None:
    steps = steps_of("do 10 | mark", times=4)
    assert walls(steps) == [10, 10, 10]  # the first mark ends a step with an unrecorded start
    assert phases(steps) == {"other": 10}


def test_a_phase_late_in_the_job_does_not_take_the_marks_before_it() -> None:
    steps = steps_of("do 10 | mark", "do 10 | mark", "do 10 | mark", "save 5 | do 5 | mark")
    assert walls(steps) == [10, 10, 10]
    assert phases(steps) == {"checkpoint": 5, "other": 5}


def test_without_an_optimizer_or_marks_there_are_no_steps() -> None:
    assert find_steps(Drawing().draw("wait 1 | predict 5", 50).table()) is None
    assert find_steps(Drawing().table()) is None


def test_a_loader_read_one_batch_ahead() -> None:
    """The fetch of the next batch comes before the current forward pass."""
    train = "wait 1 | forward 2 | backward 3 | optimizer 4"
    drawing = Drawing().draw("start 5 | wait 1").draw(train, 9)
    drawing.draw("exhausted 1 | forward 2 | backward 3 | optimizer 4")
    drawing.draw("start 5 | wait 1 | wait 1 | predict 2 | exhausted 1 | predict 2")
    drawing.draw("start 5 | wait 1").draw(train, 10)
    steps = steps_in(drawing)
    assert walls(steps)[1:9] == [10] * 8
    assert walls(steps)[9] == 10
    assert walls(steps)[10] == 16  # the second epoch starts its loader
    assert steps.evaluation.total_ns == 12 * MS


def test_evaluation_after_an_epoch_is_excluded() -> None:
    drawing = Drawing()
    for _ in range(2):
        drawing.draw("start 5").draw(STEP, 3).draw("exhausted 1").evaluation(
            4, "wait 5 | predict 10"
        )
    drawing.draw("start 5").draw(STEP, 3)
    steps = steps_in(drawing)
    # The exhausted fetch that ends the epoch and the next start belong to the step after.
    assert walls(steps) == [52, 47, 47, 53, 47, 47, 53, 47, 47]
    assert phases(steps, 3)["data_wait"] == 12
    assert steps.evaluation.total_ns == 2 * (1 + 4 * 15 + 1) * MS
    assert steps.fetches.tolist() == [1] * 9


def test_time_after_the_last_prediction_is_evaluation() -> None:
    drawing = Drawing().draw(STEP, 3)
    drawing.evaluation(2, "wait 5 | predict 10").draw("do 30 | save 7")  # metrics, then the best
    drawing.draw("start 1").draw(STEP, 2)
    steps = steps_in(drawing)
    assert steps.evaluation.total_ns == (1 + 30 + 1 + 30) * MS
    assert phases(steps, 3)["checkpoint"] == 7
    assert walls(steps)[3] == 7 + 1 + 47


def test_a_sanity_check_before_training() -> None:
    drawing = Drawing().evaluation(2, "wait 5 | predict 10").draw("start 3").draw(STEP, 3)
    steps = steps_in(drawing)
    assert walls(steps) == [50, 47, 47]


def test_evaluation_inside_an_epoch() -> None:
    drawing = Drawing().draw("start 3").draw(STEP, 3)
    drawing.evaluation(5, "wait 5 | h2d 1 | predict 10")
    steps = steps_in(drawing.draw(STEP, 2))
    assert walls(steps) == [50, 47, 47, 47, 47]


def test_an_evaluation_loop_without_a_data_loader() -> None:
    """As in scripts that draw batches by hand, with copies to the device in between."""
    train = "do 2 | h2d 1 | forward 10 | backward 20 | optimizer 5"
    drawing = Drawing().draw(train, 10).draw("do 2 | h2d 1 | predict 10", 6).draw(train, 10)
    steps = steps_in(drawing)
    assert len(steps) == 20
    # The purpose of the first batch was unknown when it was drawn; likewise of the next one.
    assert steps.evaluation.total_ns == (10 + 5 * 13) * MS
    assert walls(steps)[9:12] == [38, 38 + 3, 38]


def test_evaluation_before_training_without_a_data_loader() -> None:
    drawing = Drawing().draw("do 1 | predict 10", 6)
    steps = steps_in(drawing.draw("do 1 | forward 10 | backward 20 | optimizer 5", 9))
    assert walls(steps) == [35] + [36] * 8


@pytest.mark.parametrize("teacher", ["predict 4", "predict 2 | predict 2"])
@pytest.mark.parametrize("fetch", ["wait 6 | ", ""])
def test_teacher_in_every_step_is_not_evaluation(fetch: str, teacher: str) -> None:
    steps = steps_of(f"{fetch}{teacher} | forward 5 | backward 6 | optimizer 1", times=30)
    assert not len(steps.evaluation.start)
    assert phases(steps)["forward"] == 9


def test_a_job_that_only_predicts_keeps_its_marked_steps() -> None:
    steps = steps_of("wait 2 | predict 8 | mark", times=5)
    assert walls(steps) == [10] * 5
    assert not len(steps.evaluation.start)


def test_marked_evaluation_is_evaluation() -> None:
    drawing = Drawing().draw(STEP, 3).draw("mode:EVAL ( wait 5 | forward 10 | do 3 )")
    drawing.draw(STEP, 2).draw("mode:TRAIN ( wait 5 )").draw("mode:PREDICT 9").draw(STEP, 2)
    steps = steps_in(drawing)
    assert steps.evaluation.total_ns == (18 + 9) * MS
    assert walls(steps) == [47, 47, 47, 47, 47, 52, 47]


def test_optimizer_steps_and_marks_inside_evaluation_are_not_boundaries() -> None:
    adapt = "mode:EVAL ( wait 1 | forward 2 | backward 3 | optimizer 4 | do 1 )"
    assert len(steps_of(STEP, adapt, STEP, times=2)) == 4
    drawing = Drawing().draw(f"{STEP} | mark", 3).draw("start 1")
    drawing.draw("wait 5 | predict 10 | mark", 4).draw("exhausted 1").draw(f"{STEP} | mark", 2)
    assert walls(steps_in(drawing)) == [47] * 5


def test_a_checkpoint_belongs_to_the_step_after_it() -> None:
    drawing = Drawing().draw(STEP, 3).draw("save 100").draw(STEP, 2)
    steps = steps_in(drawing)
    assert walls(steps) == [47, 47, 47, 147, 47]
    assert phases(steps, 3)["checkpoint"] == 100


@pytest.mark.parametrize("between", ["h2d 1", "predict 1", "communication 1", "h2d 1 | predict 1"])
def test_loss_extends_over_a_teacher_a_copy_or_a_gather(between: str) -> None:
    steps = steps_of(
        f"wait 1 | forward 2 | do 4 | {between} | do 5 | backward 3 | optimizer 1", times=3
    )
    assert phases(steps)["loss"] == 9
    assert "other" not in phases(steps)


def test_no_loss_without_a_forward_pass_before_it() -> None:
    steps = steps_of("wait 1 | do 4 | backward 3 | do 2 | backward 3 | optimizer 1", times=3)
    assert phases(steps) == {"data_wait": 1, "backward": 6, "optimizer": 1, "other": 6}


def test_exhausted_fetch_is_not_a_batch() -> None:
    drawing = Drawing().draw(STEP, 2).draw("exhausted 3 | start 2").draw(STEP, 2)
    steps = steps_in(drawing)
    assert steps.fetches.tolist() == [1, 1, 1, 1]
    assert phases(steps, 2)["data_wait"] == 3 + 2 + 6


@pytest.mark.parametrize("last", ["wait ?", "wait 6 | forward ?", "wait 6 | optimizer ?"])
def test_unfinished_work_makes_no_step(last: str) -> None:
    steps = steps_in(Drawing().draw(STEP, 5).draw(last))
    assert ends(steps) == [47, 94, 141, 188, 235]
    assert walls(steps) == [47] * 5


def test_optimizer_step_that_raised_and_ended_late() -> None:
    """Its late end covers time up to the next step; the innermost phase still counts."""
    drawing = Drawing().draw(STEP, 3)
    drawing.draw(f"wait 6 | forward 12 | do 1 | backward 20 | optimizer ( {STEP[:-14]} )")
    steps = steps_in(drawing.draw("optimizer 8").draw(STEP, 2))
    assert steps.phase_ns["data_wait"].sum() == 6 * (3 + 2 + 2) * MS
    assert sum(walls(steps)) == 47 * 5 + 39 + 39 + 8


def test_steps_under_the_profiler_are_flagged() -> None:
    drawing = Drawing().draw(STEP, 20).draw(f"window ( {STEP} | {STEP} | {STEP} )").draw(STEP, 7)
    steps = steps_in(drawing)
    assert [i for i, under in enumerate(steps.profiled) if under] == [20, 21, 22]
    assert [i for i, counts in enumerate(steps.measured()) if not counts] == [0, 1, 2, 20, 21, 22]


@pytest.mark.parametrize(("count", "warm"), [(1, 1), (5, 1), (20, 2), (99, 9), (1000, 10)])
def test_warm_up_is_the_first_tenth_between_one_and_ten(count: int, warm: int) -> None:
    measured = steps_of(STEP, times=count).measured()
    assert measured.tolist() == [False] * warm + [True] * (count - warm)


def test_the_training_thread_is_the_one_that_steps() -> None:
    spans = Drawing().draw(STEP, 5).table()
    spans.thread[spans.is_kind("data_wait")] = 2
    steps = find_steps(spans)
    assert steps is not None
    assert steps.thread == 1
    assert "data_wait" not in phases(steps)


def test_step_at_each_time() -> None:
    drawing = Drawing().draw(STEP, 2).evaluation(2, "wait 5 | predict 10").draw(STEP)
    steps = steps_in(drawing)
    times = [0, 46, 47, 93, 94, 94 + 31, 94 + 32, 94 + 32 + 46, 94 + 32 + 47]
    step = find_step_at(np.array(times) * MS, steps)
    assert step.tolist() == [0, 0, 1, 1, -1, -1, 2, 2, -1]


def test_window_contains_the_steps_that_started_with_it() -> None:
    round_ms = "forward 2 | backward 3 | optimizer 4 | do 5"
    drawing = Drawing().draw(round_ms, 3).draw(f"window ( {round_ms} | {round_ms} )")
    drawing.draw(round_ms, 2)
    spans = drawing.table()
    numbers, extent = select_window_steps(spans, steps_in(drawing), spans.of("window").intervals)
    assert numbers.tolist() == [3, 4]
    assert (extent.start / MS).tolist() == [42, 56]
    assert (extent.end / MS).tolist() == [56, 70]


def test_window_that_ends_inside_a_step_excludes_it() -> None:
    drawing = Drawing().draw(STEP, 2).draw(f"window ( {STEP} | wait 6 | forward 12 )")
    drawing.draw("backward 20 | optimizer 8").draw(STEP)
    spans = drawing.table()
    numbers, extent = select_window_steps(spans, steps_in(drawing), spans.of("window").intervals)
    assert numbers.tolist() == [2]
    assert (extent.start / MS).tolist() == [94]
    assert (extent.end / MS).tolist() == [141]


def test_window_in_which_no_step_ends_is_empty() -> None:
    drawing = Drawing().draw(STEP, 2).draw("window ( wait 6 )").draw("forward 4 | optimizer 1")
    spans = drawing.table()
    numbers, extent = select_window_steps(spans, steps_in(drawing), spans.of("window").intervals)
    assert not len(numbers)
    assert not len(extent.start)


def test_predictions_after_the_training_on_a_batch_are_evaluation() -> None:
    """Validation on tensors held in memory, between two fetches of the training."""
    drawing = Drawing().draw(STEP, 3).draw("do 2 | predict 10 | do 3 | predict 10").draw(STEP, 2)
    steps = steps_in(drawing)
    assert steps.evaluation.total_ns == (10 + 3 + 10) * MS
    assert walls(steps) == [47, 47, 47, 2 + 47, 47]
    assert phases(steps, 3) == phases(steps, 1) | {"other": 2}


def test_prediction_followed_by_training_is_not_evaluation() -> None:
    steps = steps_of(
        "wait 2 | forward 4 | backward 4 | predict 3 | forward 4 | backward 4 | optimizer 1"
    )
    assert not len(steps.evaluation.start)


def test_garbage_collection_is_a_phase_everywhere() -> None:
    drawing = Drawing().draw(STEP, 2)
    drawing.draw(
        "wait 6 ( garbage_collection=2 1 ) | forward 20 ( garbage_collection=2 5 ) | backward 10 | "
        "optimizer 8 | garbage_collection=2 3"
    )
    drawing.draw(STEP)
    # The boundary is the end of the optimizer's step: later work belongs to the next step.
    steps = steps_in(drawing)
    assert steps.phase_ns["garbage_collection"].tolist()[2:] == [6 * MS, 3 * MS]
    assert steps.phase_ns["data_wait"][2] == 5 * MS
    assert steps.phase_ns["forward"][2] == 15 * MS


def test_collections_do_not_start_a_step_or_end_an_evaluation() -> None:
    drawing = Drawing().draw("garbage_collection=2 50 | do:set-up 500")
    drawing.draw(STEP, 3).draw("wait 2 | predict 3 | garbage_collection=2 4 | do:metrics 7", 2)
    drawing.draw(STEP, 3)
    steps = steps_in(drawing)
    assert steps.wall_ns.max() == steps.wall_ns.min()
    assert (steps.evaluation.end - steps.evaluation.start).sum() == 2 * (2 + 3 + 4 + 7) * MS
    assert not steps.phase_ns["garbage_collection"].any()


def test_compilation_inside_a_pass_is_a_phase() -> None:
    drawing = Drawing().draw(STEP, 2).draw("wait 6 | forward 50 ( compile=1 40 ) | optimizer 8")
    assert phases(steps_in(drawing)) == {
        "data_wait": 6,
        "forward": 10,
        "compilation": 40,
        "optimizer": 8,
    }
