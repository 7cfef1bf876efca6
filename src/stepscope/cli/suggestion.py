"""Commands that messages suggest: they work when pasted, from any directory."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from stepscope.store import is_remote

NAME = "stepscope"


def suggest(subcommand: str, *words: str) -> str:
    """Return a command line of this installation of stepscope, quoted for a shell.

    Args:
        subcommand: command of stepscope.
        words: its arguments; make the location of a run complete with `locate`.
    """
    return shlex.join([*_own_command(), subcommand, *words])


def locate(run: str | Path) -> str:
    """Return the location of a run so that it is valid in any directory: a URL, or an absolute
    path."""
    return str(run) if is_remote(run) else str(Path(run).absolute())


def _own_command() -> list[str]:
    """Return the words that start this program again: `stepscope` where PATH has it, otherwise the
    path of the script, or its interpreter with `-m`."""
    started, on_path = Path(sys.argv[0]), shutil.which(NAME)
    if started.parts[-2:] == (NAME, "__main__.py"):
        return [sys.executable, "-m", NAME]
    is_script = started.name == NAME and started.is_file()
    if is_script and not (on_path and Path(on_path).samefile(started)):
        return [str(started.absolute())]
    return [NAME]
