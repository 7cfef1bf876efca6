"""Labels of scenarios: parsing, errors, and the labels of all scenarios in the repository."""

from __future__ import annotations

import ast
import contextlib
import io
import runpy
import sys
from pathlib import Path
from unittest import mock

import msgspec
import pytest

from benchmarks.diagnosis import catalogue, traceml
from benchmarks.diagnosis.catalogue import Label, Scenario, ScenarioError, parse_label, strip_label
from benchmarks.diagnosis.outcomes import Answer, Job, Metered
from benchmarks.diagnosis.running import (
    copied_script,
    parse_answer,
    parse_metered,
    run_job,
    script_arguments,
)
from benchmarks.diagnosis.scoring import grade
from stepscope.diagnosis import diagnose
from stepscope.diagnosis.causes.wait_causes import WAIT_CAUSES
from stepscope.diagnosis.verdict import CAUSES
from stepscope.run import Run
from stepscope.store import open_run

SCENARIOS = catalogue.find_scenarios([catalogue.HERE])
WITHOUT_OWN_LOOP = {"hospital_stays", "song_lyrics"}
"""Scripts whose loop is that of Lightning or of Transformers, which TraceML cannot mark."""

LABELLED = '''\
# /// scenario
# suspect = "data_pipeline"
# cause = ["slow_decode", "logging"]
# accept = ["data_pipeline/slow_dataset"]
# fix = ["decode once", "log less"]
# severities = [0.5, 1.0]  # how much
# ///
"""Trains."""

print("step")
'''


def test_a_label_is_toml_in_comments() -> None:
    label = parse_label(LABELLED, "here")
    assert label.causes == ["slow_decode", "logging"]
    assert label.severities == [0.5, 1.0]
    assert label.right == {("data_pipeline", "slow_decode"), ("data_pipeline", "slow_dataset")}


def test_a_script_without_a_label_is_not_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text("print(1)\n")
    assert catalogue.find_scenarios([tmp_path]) == []


def test_additional_directories_of_scenarios(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LABELLED)
    names = [scenario.name for scenario in catalogue.find_scenarios([catalogue.HERE, tmp_path])]
    assert "mine" in names
    assert names == sorted(names)


def test_duplicate_names_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "steady_cnn.py").write_text(LABELLED)
    with pytest.raises(ScenarioError, match="same name"):
        catalogue.find_scenarios([catalogue.HERE, tmp_path])


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("suspect = ", "cannot be read"),
        ('suspect = "the_weather"\n# cause = "rain"\n# fix = "umbrella"', "cannot be read"),
        ('colour = "red"', "cannot be read"),
        ('suspect = "model"', "either"),
        ('healthy = true\n# cause = "logging"', "either"),
        ('suspect = "model"\n# cause = "compute"', "1 causes and 0 fixes"),
        (
            'suspect = "model"\n# cause = "compute"\n# fix = "f"\n# accept = ["rain/wet"]',
            "'rain/wet'",
        ),
        ("healthy = true\n# severities = []", "no severities"),
    ],
)
def test_an_invalid_label_is_rejected_with_its_path(label: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as raised:
        parse_label(f"# /// scenario\n# {label}\n# ///\n", "some/script.py")
    assert "some/script.py" in str(raised.value)


def test_tools_get_a_script_without_its_label() -> None:
    bare = strip_label(LABELLED)
    assert "slow_decode" not in bare
    assert bare.count("\n") == LABELLED.count("\n")


def test_held_out_labels() -> None:
    held_out = LABELLED.replace("# ///\n", "# held_out = true\n# ///\n", 1)
    labels = [parse_label(text, "some/script.py") for text in (LABELLED, held_out)]
    assert [label is not None and label.held_out for label in labels] == [False, True]


def test_one_of_each_cause() -> None:
    def planted(scenarios: list[Scenario]) -> list[tuple[str, ...]]:
        labels = [s.label for s in scenarios if not s.label.healthy]
        return [(label.suspect, *label.causes) for label in labels]

    selected = catalogue.select_one_per_cause(SCENARIOS)
    assert sorted(planted(selected)) == sorted(set(planted(SCENARIOS)))
    assert [s for s in SCENARIOS if s.label.healthy] == [s for s in selected if s.label.healthy]


def test_of_several_scenarios_with_a_cause_the_quick_one_is_selected() -> None:
    label = Label(suspect="model", cause="compute", fix="smaller")
    quick = msgspec.structs.replace(label, quick=True)
    both = [
        Scenario(name=name, path=Path(f"{name}.py"), label=its_label)
        for name, its_label in (("early", label), ("late", quick))
    ]
    assert [scenario.name for scenario in catalogue.select_one_per_cause(both)] == ["late"]


CAUSES_IN_NO_SCENARIO = {
    *("unknown", "slow_worker", "last_stage", "slow_stage", "uneven_inputs"),
    *("job_profiler", "long_calls", "model_callbacks", "sleeping", "too_many_workers"),
    *WAIT_CAUSES,
}
"""`unknown` is no cause; others are of jobs in stages, which no scenario trains, or are planted in
drawn runs and traces only (tests/support/cause_runs.py, test_trace_verdicts.py)."""


def test_every_suspect_and_cause_has_a_scenario() -> None:
    planted = {
        (label.suspect, cause) for s in SCENARIOS for label in [s.label] for cause in label.causes
    }
    causes = {cause for _, cause in planted}
    for suspect, names in CAUSES.items():
        missing = set(names) - causes - CAUSES_IN_NO_SCENARIO
        assert not missing, (suspect, missing)
        assert (suspect, "straggler") in planted
    assert sum(scenario.label.healthy for scenario in SCENARIOS) == 12
    assert len(SCENARIOS) == 65


DRAWN = [scenario for scenario in SCENARIOS if scenario.label.drawn]
TRAINED = [scenario for scenario in SCENARIOS if not scenario.label.drawn]


def plan_job(scenario: Scenario, *, fixed: bool) -> Job:
    severities = scenario.label.severities
    severity = severities[len(severities) // 2]
    return Job(tool="stepscope", scenario=scenario.name, severity=severity, seed=0, fixed=fixed)


def draw_and_diagnose(scenario: Scenario, *, fixed: bool) -> tuple[Metered, Answer]:
    """Do what `run_job` does, in this process: a tenth of the time."""
    printed = io.StringIO()
    with copied_script(scenario) as work, contextlib.redirect_stdout(printed):
        arguments = [*script_arguments(plan_job(scenario, fixed=fixed)), "--run", str(work / "run")]
        path = [str(scenario.path.parent), *sys.path]
        with mock.patch.object(sys, "argv", ["train.py", *arguments]), mock.patch("sys.path", path):
            runpy.run_path(str(work / "train.py"), run_name="__main__")
        verdict = msgspec.to_builtins(diagnose(Run(open_run(work / "run"))))
    metered = parse_metered(printed.getvalue())
    assert metered is not None
    return metered, parse_answer(verdict)


FIRST_DRAWN = [scenario.name for scenario in catalogue.select_one_per_cause(DRAWN)]
ANOTHER = pytest.mark.extended("another scenario has the same cause")


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(one, id=one.name, marks=() if one.name in FIRST_DRAWN else ANOTHER)
        for one in DRAWN
    ],
)
def test_the_verdict_on_a_drawn_run_matches_its_label(scenario: Scenario) -> None:
    planted, answer = draw_and_diagnose(scenario, fixed=False)
    graded = grade(scenario.label, answer)
    if scenario.label.healthy:
        assert not graded.false_alarm
        return
    repaired, answer_on_repaired = draw_and_diagnose(scenario, fixed=True)
    assert graded.cause_right or (graded.suspect_right and graded.cause_unnamed)
    assert repaired.step_ms < 0.85 * planted.step_ms
    assert answer_on_repaired.cause not in scenario.label.causes


@pytest.mark.parametrize(
    "drawn", ["run", pytest.param("traces", marks=pytest.mark.extended("jobs start alike"))]
)
def test_a_drawn_job_runs_like_another(drawn: str) -> None:
    scenario = next(scenario for scenario in DRAWN if scenario.label.drawn == drawn)
    outcome = run_job(plan_job(scenario, fixed=False), scenario)
    assert outcome.status == "done", outcome.reason
    assert (outcome.metered, outcome.answer) == draw_and_diagnose(scenario, fixed=False)


@pytest.mark.parametrize("scenario", TRAINED, ids=lambda scenario: scenario.name)
def test_a_scenario_is_an_ordinary_training_script(scenario: Scenario) -> None:
    text = scenario.path.read_text()
    assert "stepscope" not in text
    assert len(scenario.label.severities) == 3
    fixed_outside = scenario.label.neighbours or scenario.label.cpu_limit
    assert scenario.label.healthy or fixed_outside or ".fixed" in text
    with copied_script(scenario) as work:
        script, shared = work / "train.py", scenario.path.with_name("common.py")
        if scenario.name in WITHOUT_OWN_LOOP:
            with pytest.raises(traceml.NoTrainingLoopError):
                traceml.mark_script(script, shared)
            return
        traceml.mark_script(script, shared)
        marked = [path.read_text() for path in work.glob("*.py")]
    assert sum("with traceml.trace_step(model):" in text for text in marked) == 1
    for text in marked:
        ast.parse(text)
