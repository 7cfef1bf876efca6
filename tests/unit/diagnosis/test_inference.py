"""Verdicts on jobs that only predict."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest

from stepscope.analysis import PHASES
from stepscope.diagnosis import diagnose
from stepscope.run import find_modes, find_step_phases
from stepscope.schema import JobState
from stepscope.testing import RunBuilder

RunMaker = Callable[..., RunBuilder]
FETCH = "wait:Texts 60 ( fetch 60 ( samples ( do:tokenise 58 ) | collate 2 ) )"
BATCHES = "A step is a batch of the loader, for which Bert is called."
CALLS = (
    "A step is a call of Bert: a function that calls it many times, such as generate(), takes as "
    "many steps."
)
OPTIMIZER = "An optimizer may exist, so that a training would have come later."


def test_batch_inference_waits_for_its_tokenizer(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(f"{FETCH} | infer:Bert 20 | do 20", 100)
    opened = run.open()
    verdict = diagnose(opened)
    assert (verdict.suspect, verdict.cause) == ("data_pipeline", "slow_tokenisation")
    assert (verdict.share_ratio, verdict.mean_step_ns) == (pytest.approx(0.6), 100_000_000)
    assert f"Nothing was trained: no optimizer stepped and no backward pass ran. {BATCHES}" in (
        verdict.notes
    )
    assert not re.search(r"\btraining\b", msgspec.json.encode(verdict).decode())
    (rank,) = opened.ranks
    modes = {mode: times.total_ns for mode, times in find_modes(rank).items()}
    total_ns = int(rank.steps.wall_ns.sum())
    assert modes == {"train": 0, "eval": 0, "predict": total_ns}
    assert sum(find_step_phases(rank)[phase].total_ns for phase in PHASES) == total_ns


@pytest.mark.parametrize(
    ("loop", "sentences"),
    [
        ("wait 10 | infer:Bert 60", BATCHES),
        ("infer:Bert 60 | do 10", CALLS),
        ("do 10 | predict:Bert 60", f"{CALLS} {OPTIMIZER}"),
        (
            "do 10 | test:Bert 60",
            f"{CALLS} {OPTIMIZER} The calls record gradients; under torch.inference_mode() they do "
            "not.",
        ),
    ],
)
def test_a_note_says_what_a_step_is(new_run: RunMaker, loop: str, sentences: str) -> None:
    run = new_run()
    run.rank().draw(loop, 60)
    start = "Nothing was trained: no optimizer stepped and no backward pass ran."
    assert f"{start} {sentences}" in diagnose(run.open()).notes


def test_a_function_of_jax_that_returns_no_state_predicts(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("wait 60 | dispatch:predict 5 | device_wait 35", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.mean_step_ns) == ("data_pipeline", 100_000_000)
    assert verdict.notes == [
        "Nothing was trained: no compiled function that was called returns state, arrays of the "
        "shapes and types of its arguments. A step is a batch of the loader, for which predict is "
        "called. stepscope.steps(loader) marks the steps of a training."
    ]


def test_a_growing_run_has_trained_nothing_so_far(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("wait 10 | infer:Bert 60", 60)
    run.status(JobState.IN_PROGRESS)
    start = "Nothing was trained so far: "
    assert any(note.startswith(start) for note in diagnose(run.open()).notes)


def test_predictions_beside_ranks_that_train_are_no_steps(new_run: RunMaker) -> None:
    run = new_run()
    run.rank(0).draw("wait 10 | forward 20 | backward 30 | optimizer 5", 40)
    run.rank(1).draw("wait 10 | infer 20", 60)
    assert [rank.name for rank in run.open().ranks] == ["rank 0"]


def test_a_small_batch_has_no_learning_rate_to_adapt(new_run: RunMaker) -> None:
    run = new_run()
    operators = " | ".join(["op:mm 0.02 | do 0.03"] * 100)
    process = run.rank().draw("infer 5", 30).draw(f"window ( infer 5 ( {operators} ) )")
    process.draw("infer 5", 30)
    process.fact("model", model=1, parameter_count=10, tensor_count=8, dtypes=["float32"])
    inputs = [{"name": "0", "shape": [4, 8], "dtype": "float32"}]
    process.fact("model_inputs", model=1, inputs=inputs)
    verdict = diagnose(run.open())
    assert verdict.cause == "small_batch"
    assert verdict.fixes[0].instructions == (
        "a larger batch costs little while operators are this small"
    )
