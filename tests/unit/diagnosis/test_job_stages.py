"""Verdicts on jobs that train several times in one process. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from stepscope.diagnosis import diagnose
from stepscope.run import list_stages, select_stage
from stepscope.schema import ModelFact, OptimizerFact
from stepscope.testing import RunBuilder
from stepscope.views.steps.steps import show_steps

RunMaker = Callable[..., RunBuilder]
COMPUTING = "forward:Net 2 | backward 6 | optimizer:Adam=7 4"
READING = (
    "wait:Rows#0 54 ( fetch 54 ( samples ( do:read 54 ) ) ) | "
    "forward:Head 2 | backward 6 | optimizer:SGD=8 4"
)
CODE = {"read": "main > Rows.__getitem__ > read@python:io.py"}


def draw_two(run: RunBuilder, *, ranks: int = 1) -> RunBuilder:
    """Draw 300 steps of 12 ms, and 300 steps of 66 ms that wait for reads."""
    for number in range(ranks):
        rank = run.rank(number if ranks > 1 else None)
        rank.draw(COMPUTING, 300).draw(READING, 300)
        for model, name in enumerate(("Net", "Head"), 1):
            rank.fact("model", model=model, name=name, parameter_count=10 - model, tensor_count=1)
        for name in ("Adam", "SGD"):
            rank.fact("optimizer", name=name, parameter_count=5, tensor_count=1)
    return run


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_verdict_is_that_of_the_stage_with_most_of_the_time(
    new_run: RunMaker, ranks: int
) -> None:
    verdict = diagnose(draw_two(new_run(), ranks=ranks).open())
    share = 300 * 66 / (300 * 66 + 300 * 12)
    assert (verdict.suspect, verdict.mean_step_ns) == ("data_pipeline", 66_000_000)
    assert verdict.headline.startswith(
        f"2 stages of training. Stage 2, Head with SGD on Rows, has {share:.0%} of their time: "
        "Bottleneck: data pipeline, 82% of step time."
    )
    assert "The shares, the mean step and the fixes are those of stage 2." in verdict.notes
    stages = [
        (s.number, s.title, s.first_step, s.step_count, s.measured_count, s.mean_step_ns, s.suspect)
        for s in verdict.job_stages
    ]
    assert stages == [
        (2, "Head with SGD on Rows", 300, 300, 290 * ranks, 66_000_000, "data_pipeline"),
        (1, "Net with Adam", 0, 300, 290 * ranks, 12_000_000, "healthy"),
    ]
    assert [stage.is_main for stage in verdict.job_stages] == [True, False]
    assert sum(stage.share_ratio or 0 for stage in verdict.job_stages) == pytest.approx(1, abs=0.02)
    assert verdict.job_stages[1].text.startswith(
        "Stage 1, Net with Adam: 15% of the job, 300 steps"
    )


def test_statistics_of_all_steps_say_that_they_mix_stages(new_run: RunMaker) -> None:
    run = draw_two(new_run()).open()
    steps = show_steps(run)
    assert steps.ranks[0].step_count == 600
    assert steps.stages == (
        "The steps are of 2 stages of training (Net with Adam, Head with SGD on Rows), and the "
        "statistics mix them; `stepscope diagnose RUN` judges each by itself."
    )
    (_, second) = list_stages(run)
    part = run.between(second.start_ns, second.end_ns)
    assert show_steps(part).stages is None
    assert diagnose(part).job_stages == []


def test_a_stage_has_the_facts_of_its_models_and_optimizers(new_run: RunMaker) -> None:
    run = draw_two(new_run()).open()
    facts = []
    for stage in list_stages(run):
        (rank,) = select_stage(run, stage).ranks
        facts.append(
            [fact.name for kind in (ModelFact, OptimizerFact) for fact in rank.facts(kind)]
        )
    assert facts == [["Net", "Adam"], ["Head", "SGD"]]


def test_facts_tell_folds_with_an_optimizer_at_one_address_apart(new_run: RunMaker) -> None:
    run = new_run()
    rank = run.rank()
    for fold in (1, 2, 3):
        fields = {"object": "optimizer", "number": fold, "name": "SGD", "identity": 8}
        rank.fact("object", **fields, t_ns=rank.now)
        rank.fact("optimizer", name="SGD", parameter_count=fold, tensor_count=1)
        rank.draw(READING, 50)
    opened = run.open()
    stages = list_stages(opened)
    assert [stage.step_count for stage in stages] == [50] * 3
    counts = [
        [fact.parameter_count for fact in select_stage(opened, stage).ranks[0].facts(OptimizerFact)]
        for stage in stages
    ]
    assert counts == [[1], [2], [3]]


def test_models_that_predict_one_after_the_other_are_stages(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("wait:Texts#0 9 | infer:A 3", 100).draw("wait:Texts#0 1 | infer:B 3", 100)
    verdict = diagnose(run.open())
    assert verdict.headline.startswith("2 stages of prediction. Stage 1, A on Texts, has 75% of")


def test_a_single_training_has_no_stages(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(READING, 100)
    opened = run.open()
    assert diagnose(opened).job_stages == []
    assert show_steps(opened).stages is None


def test_a_short_search_before_the_training_is_not_judged_apart(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(COMPUTING, 20).draw(READING, 100)
    verdict = diagnose(run.open())
    assert (verdict.job_stages, verdict.step_count) == ([], 110)


def test_many_short_trials_are_judged_together(new_run: RunMaker) -> None:
    """None of them has enough steps for a verdict."""
    run = new_run()
    rank = run.rank()
    for trial in range(12):
        rank.draw(READING.replace("SGD=8", f"SGD={trial}"), 10)
    verdict = diagnose(run.open())
    assert verdict.headline.startswith("12 stages of training. Bottleneck: data pipeline, 82%")
    assert (len(verdict.job_stages), verdict.step_count) == (12, 110)
    assert "No stage has enough steps for a verdict" in " ".join(verdict.notes)
    judged = [stage.suspect for stage in verdict.job_stages]
    assert judged == ["insufficient_evidence"] * 8 + [None] * 4
    assert (
        msgspec.json.decode(msgspec.json.encode(verdict))["job_stages"][0]["mean_step_ns"] is None
    )
