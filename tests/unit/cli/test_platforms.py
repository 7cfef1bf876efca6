"""Other systems than Linux: runs are read, and recording names what it needs."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import stepscope
from stepscope.capture import library
from stepscope.cli import COMMANDS
from tests.support.access_run import draw
from tests.support.command import run_command
from tests.support.kineto_files import trace, training

AS_ON_MACOS = """
import asyncio, contextlib, io, json, multiprocessing, os, signal, subprocess, sys
import psutil
for module, names in (
    (os, "sched_getaffinity sched_setaffinity posix_fadvise memfd_create pidfd_open eventfd"
         " getxattr copy_file_range splice setns unshare O_TMPFILE"),
    (signal, "sigtimedwait sigwaitinfo"),
):
    for name in names.split():
        vars(module).pop(name, None)
sys.platform = "darwin"
from stepscope.cli import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["stepscope", *command]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        try:
            main()
        except SystemExit as end:
            print(json.dumps([command[0], end.code, output.getvalue()[:80]]), file=sys.__stdout__)
"""
"""Commands in a process that lacks what Python has on Linux only; the standard library, which has
chosen its implementation before, and psutil are those of Linux."""


def test_runs_are_read_without_linux(tmp_path: Path) -> None:
    draw(tmp_path / "run").write()
    (tmp_path / "trace.json").write_bytes(trace(*training()))
    commands = [
        ["import", "trace.json", "-o", "imported"], ["show", "imported", "kernels"],
        ["show", "run"], ["diagnose", "run"], ["sql", "run", "SHOW TABLES"],
        ["report", "run", "-o", "report.html"], ["compare", "run", "run"],
    ]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_MACOS, json.dumps(commands)],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    codes = [json.loads(line)[:2] for line in done.stdout.splitlines()]
    assert codes == [[command[0], 0] for command in commands], done.stderr
    assert (tmp_path / "report.html").stat().st_size > 100_000


def test_recording_needs_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    importlib.import_module("psutil")  # that of Linux
    monkeypatch.setattr(sys, "platform", "darwin")
    for command in ("run -- true", "attach 1", "doctor", "try run", "recover run"):
        done = run_command(tmp_path, *command.split())
        assert done.returncode == 2
        name = command.split()[0]
        assert COMMANDS[name].needs_linux
        assert f"stepscope {name} needs Linux, as recording does. Runs that were" in done.stderr
    monkeypatch.chdir(tmp_path)
    library.start_profiling()
    assert "the job is not recorded: recording needs Linux" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_windows_names_the_way_to_use_stepscope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    code = Path(stepscope.__file__).read_text()
    with pytest.raises(ImportError, match=r"does not run on Windows: use it in WSL 2, .*report"):
        exec(compile(code, "stepscope/__init__.py", "exec"), {"__name__": "stepscope"})  # noqa: S102
