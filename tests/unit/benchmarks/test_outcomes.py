"""Outcomes on disk, runs put together with their twins, and the page."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.diagnosis import catalogue, traceml
from benchmarks.diagnosis.outcomes import Answer, FixSaid, Job, Kept, Metered, Outcome
from benchmarks.diagnosis.page import render
from benchmarks.diagnosis.results import put_together, summarise
from benchmarks.diagnosis.running import metered

JOB = Job(tool="stepscope", scenario="packed_images", severity=1.0, seed=0)
OURS = catalogue.find([catalogue.HERE])


def outcome(job: Job, answer: Answer | None, step_ms: float = 100.0) -> Outcome:
    return Outcome(
        job=job,
        depends_on="a",
        status="failed" if answer is None else "done",
        reason="it fell over" if answer is None else "",
        answer=answer,
        metered=Metered(step_ms=step_ms, samples_per_step=32),
    )


CACHE = FixSaid(title="decode once and cache the result", how="", step_ms=30.0)
FOUND = Answer(
    suspect="data_pipeline", cause="slow_decode", confidence_ratio=0.95, fixes=[CACHE], step_ms=100
)
FINE = Answer(suspect="healthy", cause="none", confidence_ratio=0.9)


def test_an_interrupted_benchmark_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    kept = Kept(path)
    kept.add(outcome(JOB, FOUND))
    with path.open("ab") as file:
        file.write(b'{"job": {"tool": "steps')  # killed while it wrote
    again = Kept(path)
    assert again.get(JOB, "a") == outcome(JOB, FOUND)
    assert again.get(JOB, "something else") is None
    assert again.get(msgspec.structs.replace(JOB, seed=1), "a") is None


def test_the_latest_of_a_run_is_known_whatever_has_changed_since(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept.jsonl")
    kept.add(outcome(JOB, FINE))
    kept.add(msgspec.structs.replace(outcome(JOB, FOUND), depends_on="something else"))
    assert [each.latest(JOB).answer for each in (kept, Kept(kept.path))] == [FOUND, FOUND]
    assert kept.latest(msgspec.structs.replace(JOB, seed=1)) is None


def test_what_failed_is_tried_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "kept.jsonl")
    kept.add(outcome(JOB, None))
    assert kept.get(JOB, "a") is None


def test_a_run_and_its_fixed_twin_make_a_row() -> None:
    twin = outcome(msgspec.structs.replace(JOB, fixed=True), FINE, step_ms=25.0)
    (row,) = put_together(OURS, [outcome(JOB, FOUND), twin])
    assert row.saving_ratio == 0.75
    assert not row.doubtful
    assert row.lingers is False
    assert row.matching is not None
    assert row.matching.achieved_ms == 25
    assert row.first == row.matching
    assert summarise([row], "stepscope", "all").scores.cause.ratio == 1


def test_a_fix_that_brings_nothing_puts_the_label_in_doubt() -> None:
    twin = outcome(msgspec.structs.replace(JOB, fixed=True), FOUND, step_ms=95.0)
    (row,) = put_together(OURS, [outcome(JOB, FOUND), twin])
    assert row.doubtful
    assert row.lingers


def test_the_page_tells_failures_from_scores() -> None:
    healthy = Job(tool="stepscope", scenario="steady_cnn", severity=1.0, seed=0)
    outcomes = [outcome(JOB, FOUND), outcome(healthy, FOUND)]
    outcomes.append(outcome(msgspec.structs.replace(JOB, seed=1), None))
    page = render(
        put_together(OURS, outcomes), outcomes, machine={"cores": 2}, plot_name="plot.svg"
    )
    assert "it fell over" in page
    assert "✗ data_pipeline: slow_decode" in page
    assert "1/1 = 100%" in page


def test_what_scripts_print_about_their_steps() -> None:
    found = metered("loss 1\n280 steps of 32 samples: 41.2000 ms a step, 776.7 samples/s\n")
    assert found == Metered(step_ms=41.2, samples_per_step=32)
    assert metered("loss 1\n") is None


def test_what_traceml_says_in_the_words_of_a_verdict() -> None:
    def answer(kind: str) -> Answer:
        return traceml.answer_of({"primary_diagnosis": {"kind": kind, "action": "Do."}})

    assert answer("INPUT_BOUND").suspect == "data_pipeline"
    assert answer("COMPUTE_BOUND").remark
    assert answer("INPUT_STRAGGLER").cause == "straggler"
    assert answer("INSUFFICIENT_STEP_TIME_DATA").suspect is None
    assert traceml.answer_of({}).suspect is None
    assert answer("BALANCED").fixes == []
