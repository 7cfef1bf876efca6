"""Commands of stepscope, run inside the process of a test."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from stepscope.cli import main


def run_command(
    directory: Path, *arguments: str, encoding: str = "utf-8"
) -> subprocess.CompletedProcess[str]:
    """Run `stepscope ARGUMENTS` in a directory and return its exit code and its output.

    The streams are those of a terminal with this encoding. What reaches an ASCII terminal is
    decoded as UTF-8, of which ASCII is a part, because documents for programs are always UTF-8.

    A new process takes most of a second to import what a command needs. Use one where the subject
    is a process: signals, closed streams, jobs that a command starts, variables of the environment.
    An import from or into an object store gets one: it forks, and the client of the store that
    other tests have started here has threads.
    """
    if arguments[:1] == ("import",) and any("://" in argument for argument in arguments):
        return run_process(directory, *arguments)
    out, err = io.BytesIO(), io.BytesIO()
    code: object = None
    with (
        contextlib.chdir(directory),
        contextlib.redirect_stdout(io.TextIOWrapper(out, encoding, write_through=True)),
        contextlib.redirect_stderr(io.TextIOWrapper(err, encoding, write_through=True)),
        mock.patch.object(sys, "argv", ["stepscope", *arguments]),
    ):
        try:
            main()
        except SystemExit as error:
            code = error.code
        written = "utf-8" if encoding == "ascii" else encoding
        texts = (out.getvalue().decode(written), err.getvalue().decode(written))
    assert isinstance(code, int)
    return subprocess.CompletedProcess(["stepscope", *arguments], code, *texts)


def run_process(
    directory: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m stepscope ARGUMENTS` in a directory, with more variables of the environment,
    and return its exit code and its output."""
    return subprocess.run(
        [sys.executable, "-m", "stepscope", *arguments],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=directory,
        env={**os.environ, **variables},
    )


def without_ids(value: Any) -> Any:
    """Leave the ids of rows out of a payload that a command has printed."""
    if isinstance(value, dict):
        return {key: without_ids(item) for key, item in value.items() if key != "at"}
    return [without_ids(item) for item in value] if isinstance(value, list) else value
