"""Labels of scenarios: what is read, what is refused, and that ours are all in order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.diagnosis import catalogue, traceml
from benchmarks.diagnosis.catalogue import Scenario, ScenarioError, read_label, without_label
from benchmarks.diagnosis.outcomes import Job
from benchmarks.diagnosis.running import run_job
from benchmarks.diagnosis.scoring import grade

OURS = catalogue.find([catalogue.HERE])
LOOPS_OF_TRAINERS = {
    "gesture_traces",
    "headline_writer",
    "hospital_stays",
    "leaf_disease",
    "legal_clauses",
    "museum_scans",
    "pendulum_fleet",
    "retina_grades",
    "sleep_stages",
    "song_lyrics",
    "splice_sites",
    "sprint_motion",
    "ticket_routing",
    "tide_stations",
    "toll_cameras",
    "turbine_blades",
    "vegetation_plots",
    "volcano_tremor",
}
"""Their training loop is not in the script, or not in sight: nothing to mark for TraceML."""

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
    label = read_label(LABELLED, "here")
    assert label is not None
    assert label.causes == ["slow_decode", "logging"]
    assert label.severities == [0.5, 1.0]
    assert label.right == {
        ("data_pipeline", "slow_decode"),
        ("data_pipeline", "slow_dataset"),
    }


def test_a_script_without_a_label_is_no_scenario(tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text("print(1)\n")
    assert catalogue.find([tmp_path]) == []


def test_scenarios_of_ones_own_may_be_dropped_in(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(LABELLED)
    names = [scenario.name for scenario in catalogue.find([catalogue.HERE, tmp_path])]
    assert "mine" in names
    assert names == sorted(names)


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "steady_cnn.py").write_text(LABELLED)
    with pytest.raises(ScenarioError, match="same name"):
        catalogue.find([catalogue.HERE, tmp_path])


@pytest.mark.parametrize(
    ("label", "complaint"),
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
def test_a_wrong_label_is_refused_with_its_place(label: str, complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint) as raised:
        read_label(f"# /// scenario\n# {label}\n# ///\n", "some/script.py")
    assert "some/script.py" in str(raised.value)


def test_the_tool_sees_a_script_without_its_label() -> None:
    bare = without_label(LABELLED)
    assert "slow_decode" not in bare
    assert bare.count("\n") == LABELLED.count("\n")


def test_a_label_says_that_its_scenario_is_held_out() -> None:
    held_out = LABELLED.replace("# ///\n", "# held_out = true\n# ///\n", 1)
    labels = [read_label(text, "some/script.py") for text in (LABELLED, held_out)]
    assert [label is not None and label.held_out for label in labels] == [False, True]


def test_one_of_each_cause() -> None:
    def planted(scenarios: list[Scenario]) -> list[tuple[str, ...]]:
        labels = [each.label for each in scenarios if not each.label.healthy]
        return [(label.suspect, *label.causes) for label in labels]

    chosen = catalogue.one_of_each_cause(OURS)
    assert sorted(planted(chosen)) == sorted(set(planted(OURS)))
    assert [each for each in OURS if each.label.healthy] == [
        each for each in chosen if each.label.healthy
    ]
    shared = [each for each in OURS if each.label.causes == ["checkpoint"]]
    assert len(shared) > 1
    assert any(each.label.quick for each in shared)
    assert all(each.label.quick for each in chosen if each in shared)


def test_there_are_enough_of_them() -> None:
    assert sum(not scenario.label.healthy for scenario in OURS) >= 30
    assert sum(scenario.label.healthy for scenario in OURS) >= 5
    assert any(len(scenario.label.causes) == 2 for scenario in OURS)


DRAWN = [scenario for scenario in OURS if scenario.label.drawn]
TRAINED = [scenario for scenario in OURS if not scenario.label.drawn]


@pytest.mark.parametrize("scenario", DRAWN, ids=lambda scenario: scenario.name)
def test_a_drawn_record_has_what_its_label_says(scenario: Scenario) -> None:
    found = {}
    for fixed in (False, True):
        job = Job(tool="stepscope", scenario=scenario.name, severity=1.0, seed=0, fixed=fixed)
        outcome = run_job(job, scenario)
        assert outcome.status == "done", outcome.reason
        assert outcome.answer is not None
        assert outcome.metered is not None
        found[fixed] = outcome
    planted, mended = found[False], found[True]
    assert grade(scenario.label, planted.answer).cause_right
    assert mended.metered.step_ms < 0.85 * planted.metered.step_ms
    assert mended.answer.cause not in scenario.label.causes


@pytest.mark.parametrize("scenario", TRAINED, ids=lambda scenario: scenario.name)
def test_a_scenario_is_an_ordinary_training_script(scenario: Scenario) -> None:
    text = scenario.path.read_text()
    assert "stepscope" not in text
    assert len(scenario.label.severities) == 3
    fixed_outside = scenario.label.neighbours or scenario.label.cpu_limit
    assert scenario.label.healthy or fixed_outside or ".fixed" in text
    if scenario.name in LOOPS_OF_TRAINERS:
        with pytest.raises(traceml.NoTrainingLoopError):
            traceml.marked(text)
        return
    marked = traceml.marked(text)
    assert "with traceml.trace_step(model):" in marked
    ast.parse(marked)
