"""Every cause from a run that has it, with advice. Times are milliseconds."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from stepscope.analysis.code_stages import STAGE_LABELS
from stepscope.analysis.host_work import HostCause
from stepscope.diagnosis import Verdict, advice, diagnose
from stepscope.diagnosis.data_causes import STAGE_CAUSES
from stepscope.diagnosis.verdict import CAUSES
from stepscope.testing import RunBuilder
from stepscope.testing.drawing import MS
from tests.support.cause_runs import COMPUTE, DRAWN, too_few_workers, worker_startup

RunMaker = Callable[..., RunBuilder]


@pytest.mark.parametrize("cause", DRAWN)
def test_causes(new_run: RunMaker, cause: str) -> None:
    suspect, draw = DRAWN[cause]
    run = new_run()
    draw(run)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == (suspect, cause)
    assert verdict.fixes
    assert all(fix.title and fix.how and fix.why for fix in verdict.fixes)
    assert cause.replace("_", " ") in verdict.headline.lower()
    owned = sum(stage.share_ratio for stage in verdict.stages)
    assert owned <= verdict.share_ratio + 0.01


def documented() -> dict[str, set[str]]:
    text = (Path(__file__).parents[3] / "docs/verdict.md").read_text()
    table = text.split("## The causes")[1].split("**")[0]
    rows = re.findall(r"^\| (\w+) \| (`.*`) \|$", table, re.MULTILINE)
    return {suspect: set(re.findall(r"`(\w+)`", row)) for suspect, row in rows}


def test_every_cause_is_drawn_documented_and_has_advice() -> None:
    assert documented() == {suspect: set(those) for suspect, those in CAUSES.items()}
    assert set().union(*documented().values()) == set(DRAWN)
    assert all(cause in CAUSES[suspect] for cause, (suspect, _) in DRAWN.items())
    assert set(STAGE_CAUSES.values()) <= set(CAUSES["data_pipeline"])
    others = {"data_preparation", "checkpoint", "python"}
    assert set(get_args(HostCause)) - others <= set(CAUSES["framework_overhead"])
    assert set(STAGE_CAUSES) == set(STAGE_LABELS)
    # More workers are advised from the loader's settings, all else from the table.
    assert set(advice._OWN) == set(DRAWN) - {"too_few_workers"}
    assert set(DRAWN) >= advice._PIPELINE_CAUSES
    titles = {title for fixes in advice._OWN.values() for title, _ in fixes}
    assert advice.OVERLAP in titles


# --- what is advised ---------------------------------------------------------------------------


def test_the_fixes_name_the_settings_of_the_run(new_run: RunMaker) -> None:
    run = new_run()
    too_few_workers(run)
    verdict = diagnose(run.open())
    first = verdict.fixes[0]
    assert first.title == "use 3 DataLoader workers instead of 1"
    assert "num_workers=3" in first.how
    assert "8 cores" in first.why
    assert "about 40 ms, 0% of it waiting" in first.why
    assert any("num_workers=1, prefetch_factor=2" in e.text for e in verdict.evidence)


def test_prefetching_and_persistence_where_they_help(new_run: RunMaker) -> None:
    run = new_run()
    worker_startup(run)
    titles = [fix.title for fix in diagnose(run.open()).fixes]
    assert "persistent workers" in titles
    assert "prefetch more" in titles


def test_evidence_of_the_input_pipeline(new_run: RunMaker) -> None:
    run = new_run()
    process = run.rank(workers=1).draw(f"wait=0 60 | wait=1 0 | {COMPUTE}", 50)
    process.workers[0].draw("fetch=0.5 40 ( transform:Mask=10 ) | do 40", 50)
    texts = [evidence.text for evidence in diagnose(run.open()).evidence]
    assert "50% of the requests found no batch ready" in texts
    assert "making a batch takes 40 ms, 50% of it on the CPU" in texts
    assert "the workers were making batches 51% of the time" in texts
    assert "the transform Mask takes 25% of the time a batch takes" in texts


def test_evidence_of_lines_and_saves(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw(f"{COMPUTE} | save=2000000 10 | do:sync 30 | do:log 10", 60)
    verdict: Verdict = diagnose(run.open())
    assert verdict.cause == "host_sync"
    assert verdict.evidence[1].text == (
        "train.py:7 takes 75% of the time between phases: total += loss.item()"
    )


COLLECTIONS = (
    "forward 20 ( garbage_collection:model.py:3=2 10 ) | backward 15 | optimizer 5 | "
    "garbage_collection:train.py:9=2 30"
)


def test_evidence_of_collections(new_run: RunMaker) -> None:
    """Two a step, 10 ms in the forward pass and 30 after the step; six steps warm up."""
    run = new_run()
    run.rank().draw(COLLECTIONS, 60)
    verdict = diagnose(run.open())
    assert verdict.cause == "garbage_collection"
    # The last step ends with its optimizer.
    assert verdict.evidence[1].text == (
        "Python collected garbage 108 times in 54 steps, 20 ms each, 75% of the time at train.py:9"
    )
    assert verdict.share_ratio == pytest.approx(40 / 70)


@pytest.mark.parametrize(
    ("step", "where"),
    [
        (COLLECTIONS, " (mostly at train.py:9)"),
        (f"{COMPUTE} | garbage_collection:train.py:9=2 40", " (at train.py:9)"),
        (f"{COMPUTE} | garbage_collection=2 40", ""),
    ],
)
def test_collections_beside_something_larger(new_run: RunMaker, step: str, where: str) -> None:
    run = new_run()
    run.rank().draw(f"{step} | do:log 100", 60)
    verdict = diagnose(run.open())
    assert verdict.cause == "logging"
    whole_ms = verdict.mean_step_ns / MS
    assert [(other.cause, other.text) for other in verdict.also] == [
        ("garbage_collection", f"collecting garbage{where} takes {40 / whole_ms:.0%} of the step")
    ]


def test_what_evaluation_owns_is_beside_the_steps(new_run: RunMaker) -> None:
    """300 ms after every ten steps of 41: nine times in the ninety measured ones."""
    run = new_run()
    DRAWN["evaluation"][1](run)
    verdict = diagnose(run.open())
    assert verdict.share_ratio == pytest.approx(9 * 300 / (9 * 300 + 90 * 41))
    assert verdict.owned_step_ratio == pytest.approx(30 / 41)


@pytest.mark.parametrize(("log", "save", "cause"), [(18, 12, "evaluation"), (28, 2, "logging")])
def test_evaluation_is_weighed_against_the_other_causes_of_its_suspect(
    new_run: RunMaker, log: int, save: int, cause: str
) -> None:
    """250 ms of it to 300 ms of logging and checkpoints, in every 960 ms."""
    run = new_run()
    process = run.rank()
    for _ in range(10):
        process.draw(f"wait 1 | {COMPUTE} | save {save} | do:log {log}", 10).draw("predict 250")
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", cause)


# --- Python where operators should follow each other ----------------------------------------------


def test_python_between_forward_and_backward_is_no_work_of_the_model(new_run: RunMaker) -> None:
    """20 of 41 ms match boxes in Python; four operators a step cannot take that long to call."""
    run = new_run()
    step = "forward 10 | do 20 | backward 10 | optimizer 1"
    window = "forward ( op:mm 10 ) | do 20 | backward ( op:mm 10 ) | optimizer ( op:a 1 )"
    run.rank().draw(step, 30).draw(f"window ( {window} )").draw(step, 30)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "python_overhead")
    assert verdict.stages[0].name == "Python inside the time between forward and backward pass"
    assert verdict.stages[0].share_ratio == pytest.approx(20 / 41)
    prediction = verdict.fixes[0].prediction
    assert prediction is not None
    assert prediction.step_ns == pytest.approx(21 * MS)


def test_what_one_rank_does_alone_is_that_rank_s_whatever_all_do_beside_it(
    new_run: RunMaker,
) -> None:
    """Both spend 5 ms between their phases; rank 0 spends 11 more, for which rank 1 waits."""
    run = new_run()
    run.rank(0).draw("forward 5 | backward 7 | optimizer 1 | do 16", 60)
    run.rank(1).draw("forward 5 | backward 7 | communication 11 | optimizer 1 | do 5", 60)
    verdict = diagnose(run.open())
    assert (verdict.suspect, verdict.cause) == ("framework_overhead", "straggler")
    assert verdict.share_ratio == pytest.approx((16 + 5 + 11) / 58, abs=0.01)


def test_a_large_optimizer_is_mentioned_beside_another_cause(new_run: RunMaker) -> None:
    run = new_run()
    run.rank().draw("wait 40 | forward 10 | backward 20 | optimizer 30", 60)
    verdict = diagnose(run.open())
    assert verdict.suspect == "data_pipeline"
    (optimizer,) = [other for other in verdict.also if other.cause == "optimizer"]
    assert optimizer.share_ratio == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("in_tables", "titles"),
    [
        (900, ["update only what changed", "use a fused or foreach optimizer"]),
        (100, ["use a fused or foreach optimizer", "update only what changed"]),
        (0, ["use a fused or foreach optimizer", "step less often"]),
        (None, ["use a fused or foreach optimizer", "update only what changed"]),
    ],
)
def test_sparse_updates_are_for_lookup_tables(
    new_run: RunMaker, in_tables: int | None, titles: list[str]
) -> None:
    run = new_run()
    rank = run.rank().draw("wait 5 | forward 20 | backward 15 | optimizer 60", 60)
    known = {} if in_tables is None else {"embedding_parameter_count": in_tables}
    rank.fact("model", model=1, parameter_count=1000, dtypes=["float32"], **known)
    verdict = diagnose(run.open())
    assert verdict.cause == "optimizer"
    assert [fix.title for fix in verdict.fixes][:2] == titles
    assert ("90% of the parameters are embedding" in verdict.fixes[0].why) == (in_tables == 900)
