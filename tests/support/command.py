"""Commands of stepscope, run inside the process of a test."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from unittest import mock

from stepscope.cli import main


def run_command(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `stepscope ARGUMENTS` in a directory and return its exit code and its output.

    A new process takes most of a second to import what a command needs. Use one where the subject
    is a process: signals, closed streams, jobs that a command starts, variables of the environment.
    """
    out, err = io.BytesIO(), io.BytesIO()
    code: object = None
    with (
        contextlib.chdir(directory),
        contextlib.redirect_stdout(io.TextIOWrapper(out, "utf-8", write_through=True)),
        contextlib.redirect_stderr(io.TextIOWrapper(err, "utf-8", write_through=True)),
        mock.patch.object(sys, "argv", ["stepscope", *arguments]),
    ):
        try:
            main()
        except SystemExit as error:
            code = error.code
        texts = (out.getvalue().decode(), err.getvalue().decode())
    assert isinstance(code, int)
    return subprocess.CompletedProcess(["stepscope", *arguments], code, *texts)
