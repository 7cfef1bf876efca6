"""Other systems than Linux: runs are read, and recording names what it needs."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from stepscope.capture import library
from stepscope.cli import COMMANDS
from stepscope.diagnosis.death_causes import LinuxSignal
from tests.support.access_run import draw
from tests.support.command import run_command
from tests.support.kineto_files import trace, training

FOREIGN_SYSTEMS = Path(__file__).parents[2] / "support" / "foreign_systems"
COMMAND_LINES = """
import contextlib, io, json, sys
from stepscope.cli import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["stepscope", *command]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            main()
        except SystemExit as end:
            print(json.dumps([command[0], end.code]), file=sys.__stdout__)
"""
RECORDING = ("run -- true", "attach 1", "doctor", "try run", "recover run")


def imitate(system: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(FOREIGN_SYSTEMS), "IMITATED_SYSTEM": system}


@pytest.mark.slow("processes that import what they would import later")
@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_runs_are_read_without_linux(tmp_path: Path, system: str) -> None:
    draw(tmp_path / "run").write()
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    reading = [
        ["import", "trace.json", "-o", "imported"], ["show", "imported", "kernels"],
        ["show", "run"], ["diagnose", "run"], ["sql", "run", "SHOW TABLES"],
        ["report", "run", "-o", "report.html"], ["compare", "run", "run"], ["fleet", "."],
        ["export", "run", "--to", "speedscope", "-o", "run.json"], ["cost", "run"],
        *([name, "--help"] for name, command in COMMANDS.items() if not command.needs_linux),
    ]  # fmt: skip
    recording = [words.split() for words in RECORDING]
    done = subprocess.run(
        [sys.executable, "-c", COMMAND_LINES, json.dumps([*reading, *recording])],
        cwd=tmp_path, capture_output=True, text=True, env=imitate(system), timeout=300,
    )  # fmt: skip
    codes = [json.loads(line) for line in done.stdout.splitlines()]
    expected = [[words[0], 0] for words in reading] + [[words[0], 2] for words in recording]
    assert codes == expected, done.stderr
    assert done.stderr.count(" needs Linux, as recording does.") == len(recording)
    assert (tmp_path / "report.html").stat().st_size > 100_000

    command = [sys.executable, "-m", "stepscope", "ui", ".", "--no-browser"]
    options = {"cwd": tmp_path, "env": imitate(system), "text": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, **options) as server:
        try:
            address, _, token = server.stdout.readline().strip().partition("?token=")
            for path in ("", "api/jobs", "api/views/overview?run=run"):
                headers = {"Authorization": f"Bearer {token}"}
                request = urllib.request.Request(address + path, headers=headers)
                with urllib.request.urlopen(request, timeout=120) as response:
                    assert response.status == 200
        finally:
            server.terminate()


def test_recording_needs_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    importlib.import_module("psutil")  # that of Linux
    monkeypatch.setattr(sys, "platform", "darwin")
    for command in RECORDING:
        done = run_command(tmp_path, *command.split())
        assert done.returncode == 2
        name = command.split()[0]
        assert COMMANDS[name].needs_linux
        assert f"stepscope {name} needs Linux, as recording does. Runs that were" in done.stderr
    monkeypatch.chdir(tmp_path)
    library.start_profiling()
    assert "the job is not recorded: recording needs Linux" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_signals_have_the_numbers_of_linux() -> None:
    names = {item.name: item.value for item in signal.Signals}
    real_time = {"SIGRTMIN", "SIGRTMAX"}
    assert {item.name: item.value for item in LinuxSignal} == {
        name: number for name, number in names.items() if name not in real_time
    }
