"""Completion in a shell: commands, options, runs, rules, and the words of a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope import views
from tests.support.command import run_command

Complete = Callable[[str], list[str]]
SCRIPT = Path(sys.executable).parent / "stepscope"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with three runs, the latest of which is `stepscope-runs/b`."""
    for age_s, run in enumerate(("stepscope-runs/b", "stepscope-runs/a", "results/c")):
        (tmp_path / run).mkdir(parents=True)
        manifest = tmp_path / run / "run.json"
        manifest.write_text("{}")
        os.utime(manifest, (1_000 - age_s, 1_000 - age_s))
    (tmp_path / "train.py").touch()
    return tmp_path


@pytest.fixture
def complete(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Complete:
    """The answer to a command line whose last word, maybe an empty one, is completed."""
    monkeypatch.setenv("_STEPSCOPE_COMPLETE", "bash_complete")

    def answer(words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", f"stepscope {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" "))))
        return run_command(directory).stdout.splitlines()

    return answer


def test_commands_options_and_views(complete: Complete) -> None:
    assert complete("diag") == ["plain,diagnose"]
    assert "plain,--epochs" in complete("cost --e")
    assert complete("show run ") == [f"plain,{name}" for name in views.VIEWS]
    assert subprocess.check_output([SCRIPT], text=True).split() == complete("show run ")


@pytest.mark.parametrize("command", ["diagnose", "show", "rules check", "compare x", "mcp"])
def test_runs_are_completed_the_latest_first(complete: Complete, command: str) -> None:
    assert complete(f"{command} ") == ["plain,stepscope-runs/b", "plain,stepscope-runs/a"]
    assert complete(f"{command} stepscope-runs/a") == ["plain,stepscope-runs/a"]
    assert complete(f"{command} results/") == ["plain,results/c"]
    assert complete(f"{command} trace") == ["file,trace"]


def test_rules_are_completed_after_each_comma(complete: Complete) -> None:
    assert complete("rules explain StepOut") == ["plain,StepOutlier"]
    for option in ("rules check run --rule", "run --stop-on", "run --fail-on"):
        assert complete(f"{option} LossSpike,StepOut") == ["plain,LossSpike,StepOutlier"]


def test_the_words_of_a_job_are_programs_and_files(
    complete: Complete, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "bin").mkdir()
    for name, mode in (("trainer", 0o755), ("training-notes", 0o644)):
        (directory / "bin" / name).touch(mode)
    monkeypatch.setenv("PATH", f"{directory / 'bin'}:{directory / 'absent'}")
    for options in ("run --", "run --quiet --", "run --quiet", "try run --"):
        assert complete(f"{options} train") == ["plain,trainer"]
        assert complete(f"{options} ./tr") == ["file,./tr"]
        assert complete(f"{options} trainer --epochs 2 tr") == ["file,tr"]


def test_files_and_directories(complete: Complete) -> None:
    assert complete("report run -o re") == ["file,re"]
    assert complete("show run steps --csv st") == ["file,st"]
    assert complete("import tr") == ["file,tr"]
    assert complete("run --out ex") == ["file,ex"]
    assert complete("ui ex") == ["dir,ex"]


def test_a_shell_gets_a_script(directory: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        script = run_command(directory, "completion", shell).stdout
        assert "_STEPSCOPE_COMPLETE" in script
        if shutil.which(shell) is not None:
            subprocess.run([shell, "-n"], input=script, text=True, check=True)
    lines = [
        'eval "$(stepscope completion bash)"',
        "COMP_WORDS=(stepscope diagnose st) COMP_CWORD=2",
        "_stepscope_completion stepscope",
        "echo ${COMPREPLY[@]}",
    ]
    environment = os.environ | {"PATH": f"{SCRIPT.parent}:{os.environ['PATH']}"}
    answer = subprocess.check_output(
        ["bash", "-c", "\n".join(lines)], cwd=directory, env=environment, text=True
    )
    assert answer.split() == ["stepscope-runs/b", "stepscope-runs/a"]
