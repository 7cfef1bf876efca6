"""The log of outcomes, rows with their fixed twins, and the page."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.diagnosis import traceml
from benchmarks.diagnosis.catalogue import Label, Scenario
from benchmarks.diagnosis.outcomes import Answer, Job, Metered, Outcome, OutcomeLog, SuggestedFix
from benchmarks.diagnosis.page import render
from benchmarks.diagnosis.results import build_rows, summarize
from benchmarks.diagnosis.running import parse_metered

JOB = Job(tool="stepscope", scenario="packed_images", severity=1.0, seed=0)
DECODE = Label(suspect="data_pipeline", cause="slow_decode", fix="decode once and cache the result")
SCENARIOS = [
    Scenario(name=name, path=Path(f"{name}.py"), label=label)
    for name, label in (("packed_images", DECODE), ("steady_cnn", Label(healthy=True)))
]


def outcome(job: Job, answer: Answer | None, step_ms: float = 100.0) -> Outcome:
    return Outcome(
        job=job,
        depends_on="a",
        status="failed" if answer is None else "done",
        reason="it crashed" if answer is None else "",
        answer=answer,
        metered=Metered(step_ms=step_ms, samples_per_step=32),
    )


CACHE = SuggestedFix(title="decode once and cache the result", description="", step_ms=30.0)
CORRECT = Answer(
    suspect="data_pipeline", cause="slow_decode", confidence_ratio=0.95, fixes=[CACHE], step_ms=100
)
HEALTHY = Answer(suspect="healthy", cause="none", confidence_ratio=0.9)


def test_an_interrupted_benchmark_continues(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = OutcomeLog(path)
    log.add(outcome(JOB, CORRECT))
    with path.open("ab") as file:
        file.write(b'{"job": {"tool": "steps')  # killed during a write
    reopened = OutcomeLog(path)
    assert reopened.get(JOB, "a") == outcome(JOB, CORRECT)
    assert reopened.get(JOB, "something else") is None
    assert reopened.get(msgspec.structs.replace(JOB, seed=1), "a") is None


def test_the_latest_outcome_is_independent_of_the_digest(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path / "log.jsonl")
    log.add(outcome(JOB, None))
    assert log.get(JOB, "a") is None, "failed runs are repeated"
    log.add(outcome(JOB, HEALTHY))
    log.add(msgspec.structs.replace(outcome(JOB, CORRECT), depends_on="something else"))
    for current in (log, OutcomeLog(log.path)):
        assert current.latest(JOB).answer == CORRECT
    assert log.latest(msgspec.structs.replace(JOB, seed=1)) is None


def test_a_run_and_its_fixed_twin_make_a_row() -> None:
    twin = outcome(msgspec.structs.replace(JOB, fixed=True), HEALTHY, step_ms=25.0)
    (row,) = build_rows(SCENARIOS, [outcome(JOB, CORRECT), twin])
    assert row.saving_ratio == 0.75
    assert not row.doubtful
    assert row.lingers is False
    assert row.matching.achieved_ms == 25
    assert row.first == row.matching
    assert summarize([row], "stepscope", "all").scores.cause.ratio == 1


def test_a_fix_without_effect_makes_the_label_doubtful() -> None:
    twin = outcome(msgspec.structs.replace(JOB, fixed=True), CORRECT, step_ms=95.0)
    (row,) = build_rows(SCENARIOS, [outcome(JOB, CORRECT), twin])
    assert row.doubtful
    assert row.lingers


def test_the_page_lists_failures_separately() -> None:
    healthy = Job(tool="stepscope", scenario="steady_cnn", severity=1.0, seed=0)
    outcomes = [outcome(JOB, CORRECT), outcome(healthy, CORRECT)]
    outcomes.append(outcome(msgspec.structs.replace(JOB, seed=1), None))
    page = render(
        build_rows(SCENARIOS, outcomes), outcomes, machine={"cores": 2}, plot_name="plot.svg"
    )
    assert "it crashed" in page
    assert "✗ data_pipeline: slow_decode" in page
    assert "1/1 = 100%" in page


def test_parsing_of_step_times() -> None:
    metered = parse_metered("loss 1\n280 steps of 32 samples: 41.2000 ms a step, 776.7 samples/s\n")
    assert metered == Metered(step_ms=41.2, samples_per_step=32)
    assert parse_metered("loss 1\n") is None


def test_traceml_diagnoses_as_verdicts() -> None:
    def answer(kind: str) -> Answer:
        return traceml.parse_answer({"primary_diagnosis": {"kind": kind, "action": "Do."}})

    assert answer("INPUT_BOUND").suspect == "data_pipeline"
    assert answer("COMPUTE_BOUND").remark
    assert answer("INPUT_STRAGGLER").cause == "straggler"
    assert answer("INSUFFICIENT_STEP_TIME_DATA").suspect is None
    assert traceml.parse_answer({}).suspect is None
    assert answer("BALANCED").fixes == []
