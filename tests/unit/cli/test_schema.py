"""JSON schemas of the outputs, and the completion of shells."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from stepscope.testing import RunBuilder
from tests.support.command import run_command

OUTPUTS = [
    "show run overview", "show run steps", "show run usage", "diagnose run", "cost run",
    "rules check run", "rules list", "rules explain StepOutlier", "report run", "compare run run",
    "recover run", "doctor",
]  # fmt: skip


def read_schema(directory: Path, *name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(run_command(directory, "schema", *name).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with a run."""
    directory = tmp_path_factory.mktemp("schema")
    RunBuilder(directory / "run").write()
    return directory


@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_follows_its_schema(directory: Path, output: str) -> None:
    words = output.split()
    payload = json.loads(run_command(directory, *words, "--json").stdout)
    name = (
        words[2:] if words[0] == "show" else [w for w in words if w not in {"run", "StepOutlier"}]
    )
    schema = read_schema(directory, *name)
    jsonschema.Draft202012Validator(schema).validate(payload)
    assert not jsonschema.Draft202012Validator(schema).is_valid("nothing")


def test_every_name_has_a_schema(tmp_path: Path) -> None:
    names = run_command(tmp_path, "schema").stdout.splitlines()
    assert {"overview", "diagnose", "rules check", "watch", "import", "export"} <= set(names)
    for name in names:
        assert read_schema(tmp_path, *name.split())["$defs"]


def test_an_unknown_name_is_answered_with_the_one_meant(tmp_path: Path) -> None:
    answer = run_command(tmp_path, "schema", "rules", "chek")
    assert answer.returncode == 2
    assert "Nothing named 'rules chek' prints JSON. Did you mean rules check?" in answer.stderr
    unknown = run_command(tmp_path, "schema", "xyz").stderr
    assert "Nothing named 'xyz' prints JSON. List the names with `stepscope schema`." in unknown


def test_a_shell_gets_a_script(tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = run_command(tmp_path, "completion", shell).stdout
        assert "_STEPSCOPE_COMPLETE" in script
        if shutil.which(shell) is not None:
            subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_commands_and_options_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_STEPSCOPE_COMPLETE", "bash_complete")

    def complete(words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        return run_command(tmp_path).stdout.splitlines()

    assert complete("stepscope diag") == ["plain,diagnose"]
    assert "plain,--epochs" in complete("stepscope cost --e")
    assert "plain,input-pipeline" in complete("stepscope show run input")
    script = str(Path(sys.executable).parent / "stepscope")
    assert subprocess.check_output([script], text=True) == run_command(tmp_path).stdout
