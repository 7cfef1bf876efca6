"""Commands that messages suggest: they run when pasted, from any directory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.cli.suggestion import locate, suggest


def write_script(directory: Path) -> Path:
    """Write the script that pip installs for the command."""
    directory.mkdir(parents=True)
    script = directory / "stepscope"
    script.write_text(f"#!{sys.executable}\nfrom stepscope.cli import main\n\nmain()\n")
    script.chmod(0o755)
    return script


def test_commands_after_a_job_can_be_pasted_elsewhere(tmp_path: Path) -> None:
    script = write_script(tmp_path / "my env" / "bin")
    job = subprocess.run(
        ["my env/bin/stepscope", "run", "--no-rules", "--out", "my run", "--", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in job.stderr.splitlines() if " show " in line]
    commands = [line.removeprefix("more").strip() for line in lines]
    run = str(tmp_path / "my run")
    assert not (tmp_path / "my run" / "findings" / "rules.json").exists()  # without rules
    views = ["overview", "system"]  # no step was recorded
    assert [shlex.split(c) for c in commands] == [[str(script), "show", run, v] for v in views]
    pasted = subprocess.run(
        ["sh", "-c", commands[-1]], cwd="/", capture_output=True, text=True, check=False
    )
    assert pasted.returncode == 0, pasted.stderr
    assert "cores" in pasted.stdout


def test_the_name_is_enough_where_path_has_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, hidden = write_script(tmp_path / "bin"), write_script(tmp_path / "hidden")
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    monkeypatch.setattr(sys, "argv", [str(script)])
    assert suggest("show", "a run", "steps") == "stepscope show 'a run' steps"
    monkeypatch.setattr(sys, "argv", [str(hidden)])
    assert suggest("ui") == f"{hidden} ui"


def test_a_module_is_started_again_by_its_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/anywhere/stepscope/__main__.py"])
    assert suggest("doctor") == f"{sys.executable} -m stepscope doctor"


def test_locations_are_valid_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("run") == str(tmp_path / "run")
    assert locate("s3://bucket/run") == "s3://bucket/run"
