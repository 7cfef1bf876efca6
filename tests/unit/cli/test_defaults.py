"""Defaults of options, and errors as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stepscope.testing import RunBuilder
from tests.support.command import run_command

FILE = """
[tool.stepscope.show]
top = 3
csv = "-"
[tool.stepscope.rules.check]
rules = ["StepOutlier", "BatchSize"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a directory of a project with a run in it."""
    RunBuilder(tmp_path / "run").write()
    (tmp_path / "pyproject.toml").write_text(FILE)
    return tmp_path


def list_checked(answer: str) -> list[str]:
    return [result["rule"] for result in json.loads(answer)["findings"]]


def test_an_option_has_the_default_of_the_nearest_file(project: Path) -> None:
    below = project / "scripts"
    below.mkdir()
    (below / "pyproject.toml").write_text(
        "[project]\nname = 'other'\n"
    )  # says nothing of stepscope
    answer = run_command(below, "rules", "check", "../run", "--json")
    assert list_checked(answer.stdout) == ["StepOutlier", "BatchSize"]


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPSCOPE_RULES_CHECK_RULE", "Dataloader")
    by_environment = run_command(project, "rules", "check", "run", "--json")
    assert list_checked(by_environment.stdout) == ["Dataloader"]
    by_option = run_command(project, "rules", "check", "run", "--json", "--rule", "BatchSize")
    assert list_checked(by_option.stdout) == ["BatchSize"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[tool.stepscope.sho]", "tool.stepscope.sho is not a command. Did you mean show?"),
        (
            "[tool.stepscope.show]\ntops = 3",
            "tool.stepscope.show has no option tops. Did you mean top?",
        ),
        ("[tool.stepscope.show]\ntop = true", "tool.stepscope.show.top must be a value."),
        ("[tool.stepscope.show]\njson = 3", "tool.stepscope.show.json must be true or false."),
        ("[tool.stepscope.show]\ntop = [1]", "tool.stepscope.show.top must be text or a number."),
        ("[tool.stepscope]\nshow = 3", "tool.stepscope.show is not a table of options."),
        ("[tool.stepscope.show", "pyproject.toml cannot be read: "),
    ],
)
def test_a_mistake_in_the_file_is_named(project: Path, line: str, sentence: str) -> None:
    (project / "pyproject.toml").write_text(line)
    answer = run_command(project, "show", "run")
    assert answer.returncode == 2
    assert sentence in answer.stderr


def test_an_option_that_takes_several_values(project: Path) -> None:
    (project / "pyproject.toml").write_text("[tool.stepscope.rules.check]\nrule = [[1]]")
    answer = run_command(project, "rules", "check", "run")
    assert answer.returncode == 2
    assert "must be text, a number or a list of them." in answer.stderr


def test_an_error_is_json_where_the_output_is(project: Path) -> None:
    (project / "pyproject.toml").unlink()
    for words in (
        ["diagnose", "missing"],
        ["show", "run", "nothing"],
        ["show", "run", "--top", "x"],
    ):
        answer = run_command(project, *words, "--json")
        assert not answer.stdout
        error = json.loads(answer.stderr)
        assert error["exit_code"] == answer.returncode == 2
        assert error["error"]


def test_json_of_a_job_is_not_that_of_stepscope(project: Path) -> None:
    answer = run_command(
        project, "run", "--start-step", "1", "--window", "off", "--", "x", "--json"
    )
    assert answer.returncode == 2
    assert answer.stderr.startswith("stepscope: ")
