"""Labels of scenarios as traces show them, and the page of their scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.diagnosis import catalogue
from benchmarks.diagnosis.catalogue import Label, Scenario
from benchmarks.diagnosis.outcomes import Answer, Job, Outcome
from benchmarks.diagnosis.results import build_rows
from benchmarks.diagnosis.scoring import Rate
from benchmarks.diagnosis.trace_labels import (
    NOT_IN_TRACES,
    SAME_IN_TRACES,
    label_for_traces,
    split_scenarios,
)
from benchmarks.diagnosis.trace_page import count_groups, render_traces
from stepscope.diagnosis.verdict import CAUSES

DECODE = Label(suspect="data_pipeline", cause="slow_decode", stage="decode", fix="cache")


def make_scenario(name: str, label: Label) -> Scenario:
    return Scenario(name=name, path=Path(f"{name}.py"), label=label)


def test_the_definitions_are_of_causes_that_verdicts_name() -> None:
    causes = {cause for names in CAUSES.values() for cause in names}
    assert {*NOT_IN_TRACES, *SAME_IN_TRACES, *SAME_IN_TRACES.values()} <= causes
    assert not set(NOT_IN_TRACES) & set(SAME_IN_TRACES)


def test_a_batch_that_the_training_process_makes_has_one_cause() -> None:
    label = label_for_traces(DECODE)
    assert label.right == {("data_pipeline", "slow_decode"), ("data_pipeline", "too_few_workers")}
    assert label.stage is None


def test_the_stage_of_a_drawn_trace_counts() -> None:
    drawn = Label(suspect="model", cause="straggler", stage="rank 2", fix="spread", drawn="traces")
    assert label_for_traces(drawn).stage == "rank 2"


@pytest.mark.parametrize(
    ("causes", "scored"),
    [
        (["slow_decode", "evaluation"], ["slow_decode"]),
        (["evaluation", "slow_decode"], None),
        (["slow_decode", "logging"], ["slow_decode", "logging"]),
    ],
)
def test_of_two_causes_the_visible_ones_count(causes: list[str], scored: list[str] | None) -> None:
    label = Label(suspect="data_pipeline", cause=causes, fix=["a", "b"])
    recorded, omitted = split_scenarios([make_scenario("mine", label)])
    assert [scenario.label.causes for scenario in recorded] == ([] if scored is None else [scored])
    assert [reason for _, reason in omitted] == ([] if scored else [NOT_IN_TRACES["evaluation"]])
    for scenario in recorded:
        assert len(scenario.label.fixes) == len(scenario.label.causes)


def test_every_scenario_is_scored_or_omitted_with_a_reason() -> None:
    scenarios = catalogue.find_scenarios([catalogue.HERE])
    scored, omitted = split_scenarios(scenarios)
    names = [scenario.name for scenario in scored] + [scenario.name for scenario, _ in omitted]
    assert sorted(names) == [scenario.name for scenario in scenarios]
    assert all(reason for _, reason in omitted)
    assert not any(scenario.label.healthy for scenario, _ in omitted)


def test_the_page_has_recorded_and_drawn_traces_apart() -> None:
    drawn = Label(suspect="model", cause="compute", fix="smaller", drawn="traces")
    left_out = Label(suspect="framework_overhead", cause="evaluation", fix="less")
    scenarios, omitted = split_scenarios(
        [
            make_scenario("decoded", DECODE),
            make_scenario("drawn_one", drawn),
            make_scenario("steady", Label(healthy=True)),
            make_scenario("validated", left_out),
        ]
    )
    answers = {
        "decoded": Answer(suspect="data_pipeline", cause="unknown", confidence_ratio=0.5),
        "drawn_one": Answer(suspect="model", cause="compute", confidence_ratio=0.9),
        "steady": Answer(suspect="model", cause="optimizer", confidence_ratio=0.9),
    }
    outcomes = [
        Outcome(
            job=Job(tool="traces", scenario=name, severity=1.0, seed=0),
            depends_on="a",
            status="done",
            answer=answer,
        )
        for name, answer in answers.items()
    ]
    rows = build_rows(scenarios, outcomes)
    (count, recorded), (_, both) = (count_groups(rows)[name] for name in ("recorded", "all"))
    assert count == 2
    assert recorded.suspect == Rate(count=1, total=1)
    assert recorded.unnamed == Rate(count=1, total=1)
    assert recorded.false_alarms == Rate(count=1, total=1)
    assert both.cause == Rate(count=1, total=2)
    page = render_traces(rows, outcomes, omitted, machine={"cores": 2})
    assert "| decoded | recorded | data_pipeline: slow_decode | 1 | (✓) unknown |" in page
    assert "| drawn_one | drawn | model: compute | 1 | ✓ |" in page
    assert f"| {NOT_IN_TRACES['evaluation']} | validated (evaluation) |" in page


def test_an_outcome_of_a_scenario_that_is_gone_has_no_row() -> None:
    outcome = Outcome(
        job=Job(tool="stepscope", scenario="gone", severity=1.0, seed=0),
        depends_on="a",
        status="done",
        answer=Answer(suspect="model", cause="compute"),
    )
    assert build_rows([make_scenario("mine", DECODE)], [outcome]) == []
