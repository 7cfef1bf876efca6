"""Boundaries of steps: every rule as a drawing of a job. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from stepscope.analysis.steps.steps import find_step_at, find_steps, select_window_steps
from stepscope.testing import Drawing
from tests.support.drawn_steps import MS, Phases, phases, steps_in, steps_of, walls

STEP = "wait 6 | forward 12 | do 1 | backward 20 | optimizer 8"
OF_STEP = {"data_wait": 6, "forward": 12, "loss": 1, "backward": 20, "optimizer": 8}
MICRO = "forward 2 | backward 3"
BATCH = f"wait 1 | {MICRO}"
CRITIC = "forward:D 2 | backward 3 | optimizer:D 4"
GENERATOR = "forward:G 5 | backward 6 | optimizer:G 7"
BY_HAND = "do 2 | h2d 1 | forward 10 | backward 20 | optimizer 5"


class Job(NamedTuple):
    """Job and its steps."""

    drawing: Drawing
    walls: list[float]
    phases: Mapping[int, Phases] = MappingProxyType({})
    """Phases of some steps."""
    evaluation: float | None = None
    fetches: list[int] | None = None
    source: str = "optimizer"


def loop(text: str, times: int) -> Drawing:
    return Drawing().draw(text, times)


def epoch(drawing: Drawing) -> Drawing:
    return drawing.draw("start 5").draw(STEP, 3)


JOBS: dict[str, Job] = {
    "a step goes from optimizer step to optimizer step": Job(
        loop(STEP, 3), [47] * 3, {-1: OF_STEP}, fetches=[1] * 3
    ),
    "a new model after other work does not cut its step": Job(
        loop(STEP, 2).draw("wait 5 | do 3 | new_model 4"), [47, 47, 12]
    ),
    "work after the optimizer belongs to the next step": Job(
        loop(f"{BATCH} | optimizer 4 | do 5", 2),
        [10, 15],
        {1: {"data_wait": 1, "forward": 2, "backward": 3, "optimizer": 4, "other": 5}},
    ),
    "accumulated micro-batches are one step": Job(
        loop(f"{BATCH} | {BATCH} | {BATCH} | {BATCH} | optimizer 4", 3),
        [28] * 3,
        {-1: {"data_wait": 4, "forward": 8, "backward": 12, "optimizer": 4}},
        fetches=[4] * 3,
    ),
    "micro-batches fetched ahead are one step": Job(
        loop(f"wait 1 | wait 1 | {MICRO} | {MICRO} | optimizer 4", 3),
        [16] * 3,
        evaluation=0,
        fetches=[2] * 3,
    ),
    "the two optimizers of a GAN make one step": Job(
        loop(f"wait 1 | {CRITIC} | {GENERATOR}", 3), [28] * 3
    ),
    "two optimizers without a data loader": Job(
        loop("forward 2 | backward 3 | optimizer:D 4 | backward 6 | optimizer:G 7", 3), [22] * 3
    ),
    "every critic iteration is a step, and the generator joins the last": Job(
        loop(f"wait 1 | {CRITIC} | wait 1 | {CRITIC} | wait 1 | {CRITIC} | {GENERATOR}", 2),
        [10, 10, 28] * 2,
    ),
    "critic iterations on one batch": Job(
        loop(f"wait 1 | {CRITIC} | {CRITIC} | {GENERATOR}", 2), [10, 27] * 2
    ),
    "optimizers of two phases of training": Job(
        loop(f"{BATCH} | optimizer:Warm 4", 3).draw(f"{BATCH} | optimizer:Main 4", 3), [10] * 6
    ),
    "a grad scaler steps once, and may skip": Job(
        loop(f"{BATCH} | optimizer:A 5 ( optimizer:A 4 ) | {BATCH} | optimizer:A 1", 2),
        [11, 7] * 2,
        {
            step: {"data_wait": 1, "forward": 2, "backward": 3, "optimizer": time}
            for step, time in ((0, 5), (1, 1))
        },
    ),
    "time in a closure belongs to the innermost phase": Job(
        loop("wait 1 | optimizer 50 ( forward 5 | do 1 | backward 6 | forward 7 | backward 8 )", 3),
        [51] * 3,
        {-1: {"data_wait": 1, "forward": 12, "backward": 14, "optimizer": 24}},
    ),
    # A framework's own work in the closure is not the optimizer's, however long it takes.
    "an optimizer starts after the only backward pass of its closure": Job(
        loop("wait 1 | optimizer 50 ( do 20 | forward 5 | do 1 | backward 6 | do 9 )", 3),
        [51] * 3,
        {
            -1: {
                "data_wait": 1,
                "forward": 5,
                "loss": 1,
                "backward": 6,
                "optimizer": 18,
                "other": 20,
            }
        },
    ),
    "marks take precedence": Job(
        loop(f"{MICRO} | optimizer:A 4 | optimizer:B 4 | do 7 | mark", 3), [20] * 3, source="marked"
    ),
    # The first mark ends a step with an unrecorded start.
    "marks alone are steps": Job(
        loop("do 10 | mark", 4), [10] * 3, {-1: {"other": 10}}, source="marked"
    ),
    "a phase late in the job does not take the marks before it": Job(
        loop("do 10 | mark", 3).draw("save 5 | do 5 | mark"),
        [10] * 3,
        {-1: {"checkpoint": 5, "other": 5}},
        source="marked",
    ),
    # The exhausted fetch that ends the epoch and the next start belong to the step after.
    "evaluation after an epoch is excluded": Job(
        epoch(
            epoch(epoch(Drawing()).draw("exhausted 1").evaluation(4))
            .draw("exhausted 1")
            .evaluation(4)
        ),
        [52, 47, 47, 53, 47, 47, 53, 47, 47],
        {3: OF_STEP | {"data_wait": 12}},
        evaluation=2 * (1 + 4 * 15 + 1),
        fetches=[1] * 9,
    ),
    # Metrics, then the best model.
    "time after the last prediction is evaluation": Job(
        loop(STEP, 3).evaluation(2).draw("do 30 | save 7").draw("start 1").draw(STEP, 2),
        [47] * 3 + [7 + 1 + 47, 47],
        {3: OF_STEP | {"data_wait": 7, "checkpoint": 7}},
        evaluation=1 + 30 + 1 + 30,
    ),
    "a sanity check before training": Job(
        Drawing().evaluation(2).draw("start 3").draw(STEP, 3), [50, 47, 47]
    ),
    "evaluation inside an epoch": Job(
        Drawing()
        .draw("start 3")
        .draw(STEP, 3)
        .evaluation(5, "wait 5 | h2d 1 | predict 10")
        .draw(STEP, 2),
        [50, 47, 47, 47, 47],
    ),
    # As in scripts that draw batches by hand, with copies to the device in between. The purpose of
    # the first batch was unknown when it was drawn; likewise of the next one.
    "an evaluation loop without a data loader": Job(
        loop(BY_HAND, 10).draw("do 2 | h2d 1 | predict 10", 6).draw(BY_HAND, 10),
        [36] + [38] * 9 + [38 + 3] + [38] * 9,
        evaluation=10 + 5 * 13,
    ),
    "predictions after the training on a batch are evaluation": Job(
        loop(STEP, 3).draw("do 2 | predict 10 | do 3 | predict 10").draw(STEP, 2),
        [47, 47, 47, 2 + 47, 47],
        {1: OF_STEP, 3: OF_STEP | {"other": 2}},
        evaluation=10 + 3 + 10,
    ),
    "a job that only predicts keeps its marked steps": Job(
        loop("wait 2 | predict 8 | mark", 5), [10] * 5, evaluation=0, source="marked"
    ),
    "marked evaluation is evaluation": Job(
        loop(STEP, 3)
        .draw("mode:EVAL ( wait 5 | forward 10 | do 3 )")
        .draw(STEP, 2)
        .draw("mode:TRAIN ( wait 5 )")
        .draw("mode:PREDICT 9")
        .draw(STEP, 2),
        [47, 47, 47, 47, 47, 52, 47],
        evaluation=18 + 9,
    ),
    "a checkpoint belongs to the step after it": Job(
        loop(STEP, 3).draw("save 100").draw(STEP, 2),
        [47, 47, 47, 147, 47],
        {3: OF_STEP | {"checkpoint": 100}},
    ),
    "no loss without a forward pass before it": Job(
        loop("wait 1 | do 4 | backward 3 | do 2 | backward 3 | optimizer 1", 3),
        [14] * 3,
        {-1: {"data_wait": 1, "backward": 6, "optimizer": 1, "other": 6}},
    ),
    "an exhausted fetch is not a batch": Job(
        loop(STEP, 2).draw("exhausted 3 | start 2").draw(STEP, 2),
        [47, 47, 52, 47],
        {2: OF_STEP | {"data_wait": 3 + 2 + 6}},
        fetches=[1] * 4,
    ),
    "a prediction followed by training is not evaluation": Job(
        loop(f"wait 2 | {MICRO} | predict 3 | {MICRO} | optimizer 1", 1), [16], evaluation=0
    ),
    # The boundary is the end of the optimizer's step: later work belongs to the next step.
    "garbage collection is a phase everywhere": Job(
        loop(STEP, 2)
        .draw(
            "wait 6 ( garbage_collection=2 1 ) | forward 20 ( garbage_collection=2 5 )"
            " | backward 10 | optimizer 8 | garbage_collection=2 3"
        )
        .draw(STEP),
        [47, 47, 44, 50],
        {
            2: {
                "data_wait": 5,
                "forward": 15,
                "backward": 10,
                "optimizer": 8,
                "garbage_collection": 6,
            },
            3: OF_STEP | {"garbage_collection": 3},
        },
    ),
    "collections do not start a step or end an evaluation": Job(
        loop("garbage_collection=2 50 | do:set-up 500", 1)
        .draw(STEP, 3)
        .draw("wait 2 | predict 3 | garbage_collection=2 4 | do:metrics 7", 2)
        .draw(STEP, 3),
        [47] * 6,
        dict.fromkeys(range(6), OF_STEP),
        evaluation=2 * (2 + 3 + 4 + 7),
    ),
    "compilation inside a pass is a phase": Job(
        loop(STEP, 2).draw("wait 6 | forward 50 ( compile=1 40 ) | optimizer 8"),
        [47, 47, 64],
        {-1: {"data_wait": 6, "forward": 10, "compilation": 40, "optimizer": 8}},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_steps_of_a_job(name: str) -> None:
    job = JOBS[name]
    steps = steps_in(job.drawing)
    assert (steps.source, walls(steps)) == (job.source, job.walls)
    assert {step: phases(steps, step) for step in job.phases} == job.phases
    assert job.evaluation in (None, steps.evaluation.total_ns / MS)
    assert job.fetches in (None, steps.fetches.tolist())


def test_the_time_between_two_trainings_is_in_no_step() -> None:
    drawing = Drawing().draw("new_model 8 | do 2").draw("optimizer 8 | do 2", 2)
    steps = steps_in(drawing.draw("do 100 | new_model 4 | do 101 | optimizer 4"))
    assert walls(steps) == [8, 10, 10, 4, 105]
    assert (steps.start / MS).tolist() == [0, 8, 18, 130, 134]
    assert (steps.end / MS).tolist() == [8, 18, 28, 134, 239]
    assert (sum(steps.phase_ns.values()) == steps.wall_ns).all()
    assert phases(steps, 3) == {"optimizer": 4}


def test_without_an_optimizer_or_marks_there_are_no_steps() -> None:
    assert find_steps(Drawing().draw("wait 1 | predict 5", 50).table()) is None
    assert find_steps(Drawing().table()) is None


def test_a_loader_read_one_batch_ahead() -> None:
    """The fetch of the next batch comes before the current forward pass."""
    train = f"{BATCH} | optimizer 4"
    drawing = Drawing().draw("start 5 | wait 1").draw(train, 9)
    drawing.draw(f"exhausted 1 | {MICRO} | optimizer 4")
    drawing.draw("start 5 | wait 1 | wait 1 | predict 2 | exhausted 1 | predict 2")
    steps = steps_in(drawing.draw("start 5 | wait 1").draw(train, 10))
    # The second epoch starts its loader.
    assert walls(steps)[1:11] == [10] * 9 + [16]
    assert steps.evaluation.total_ns == 12 * MS


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


def test_optimizer_steps_and_marks_inside_evaluation_are_not_boundaries() -> None:
    adapt = f"mode:EVAL ( {BATCH} | optimizer 4 | do 1 )"
    assert len(steps_of(STEP, adapt, STEP, times=2)) == 4
    drawing = Drawing().draw(f"{STEP} | mark", 3).draw("start 1")
    drawing.draw("wait 5 | predict 10 | mark", 4).draw("exhausted 1").draw(f"{STEP} | mark", 2)
    assert walls(steps_in(drawing)) == [47] * 5


@pytest.mark.parametrize("between", ["h2d 1", "predict 1", "communication 1", "h2d 1 | predict 1"])
def test_loss_extends_over_a_teacher_a_copy_or_a_gather(between: str) -> None:
    loop = f"wait 1 | forward 2 | do 4 | {between} | do 5 | backward 3 | optimizer 1"
    of_step = phases(steps_of(loop, times=3))
    assert (of_step["loss"], of_step.get("other")) == (9, None)


@pytest.mark.parametrize("last", ["wait ?", "wait 6 | forward ?", "wait 6 | optimizer ?"])
def test_unfinished_work_makes_no_step(last: str) -> None:
    steps = steps_in(Drawing().draw(STEP, 5).draw(last))
    assert (steps.end / MS).tolist() == [47, 94, 141, 188, 235]
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
    assert np.flatnonzero(steps.profiled).tolist() == [20, 21, 22]
    assert np.flatnonzero(~steps.measured()).tolist() == [0, 1, 2, 20, 21, 22]


@pytest.mark.parametrize(("count", "warm"), [(1, 1), (5, 1), (20, 2), (99, 9), (1000, 10)])
def test_warm_up_is_the_first_tenth_between_one_and_ten(count: int, warm: int) -> None:
    measured = steps_of(STEP, times=count).measured()
    assert measured.tolist() == [False] * warm + [True] * (count - warm)


def test_the_training_thread_is_the_one_that_steps() -> None:
    spans = Drawing().draw(STEP, 5).table()
    groups = [replace(g, thread=2 if g.kind == "data_wait" else 1) for g in spans.groups]
    steps = find_steps(replace(spans, groups=groups))
    assert steps.thread == 1
    assert "data_wait" not in phases(steps)


def test_step_at_each_time() -> None:
    drawing = Drawing().draw(STEP, 2).evaluation(2, "wait 5 | predict 10").draw(STEP)
    times = [0, 46, 47, 93, 94, 94 + 31, 94 + 32, 94 + 32 + 46, 94 + 32 + 47]
    step = find_step_at(np.array(times) * MS, steps_in(drawing))
    assert step.tolist() == [0, 0, 1, 1, -1, -1, 2, 2, -1]


@pytest.mark.parametrize(
    ("loop", "window", "rest", "numbers", "edges"),
    [
        # The steps that started with the window.
        (*(f"{MICRO} | optimizer 4 | do 5", "{0} | {0}", "{0} | {0}"), [3, 4], [42, 56, 70]),
        # It ends inside a step.
        (STEP, "{0} | wait 6 | forward 12", "backward 20 | optimizer 8 | {0}", [3], [141, 188]),
        # No step ends in it.
        (STEP, "wait 6", "forward 4 | optimizer 1", [], []),
    ],
)
def test_steps_of_a_window(
    loop: str, window: str, rest: str, numbers: list[int], edges: list[float]
) -> None:
    drawing = Drawing().draw(loop, 3).draw(f"window ( {window.format(loop)} )")
    spans = drawing.draw(rest.format(loop)).table()
    selected, extent = select_window_steps(spans, steps_in(drawing), spans.of("window").intervals)
    assert selected.tolist() == numbers
    assert (extent.start / MS).tolist() == edges[:-1]
    assert (extent.end / MS).tolist() == edges[1:]
