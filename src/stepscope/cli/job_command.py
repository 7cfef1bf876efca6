"""Check of the command of a job before anything is created for it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from stepscope.cli.working_directory import working_directory
from stepscope.errors import UsageError


def check_command(command: Sequence[str]) -> None:
    """Find mistakes before the run directory is created.

    Raises:
        UsageError: the command or the script cannot be found.
    """
    program = command[0]
    if shutil.which(program) is None:
        script = Path(program)
        if script.suffix == ".py" and script.is_file():
            python = "python" if shutil.which("python") else "python3"
            raise UsageError(
                f"{program} is not executable. Run it with: stepscope run -- {python} {program}"
            )
        if program == "python" and shutil.which("python3"):
            suggestion = shlex.join(["python3", *command[1:]])
            raise UsageError(
                f"python: command not found. python3 is available: stepscope run -- {suggestion}"
            )
        raise UsageError(f"Command {program!r} not found; check its spelling and PATH.")
    if Path(program).name.startswith("python"):
        script_name = next((word for word in command[1:] if not word.startswith("-")), None)
        direct = len(command) > 1 and command[1] == script_name
        if direct and script_name and not Path(script_name).exists():
            raise UsageError(f"The script {script_name} does not exist in {working_directory()}.")
