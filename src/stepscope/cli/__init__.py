"""The command line: one file per command, each holding a click command named `command`.

Belongs here: options, wiring, text for people, exit codes. Does not belong here: numbers; they
come from `views` and `diagnosis`. This file only wires, and turns errors into exit codes.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from stepscope._version import __version__
from stepscope.errors import StepscopeError

COMMANDS = {
    "run": "run",
    "attach": "attach",
    "import": "import_traces",
    "export": "export",
    "show": "show",
    "diagnose": "diagnose",
    "try": "try_changes",
    "compare": "compare",
    "cost": "cost",
    "rules": "rules",
    "report": "report",
    "watch": "watch",
    "ui": "ui",
    "capture": "capture",
    "configure": "configure",
    "recover": "recover",
    "doctor": "doctor",
}
"""Command name -> module of this package, imported when the command is used."""


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        with _one_thread_in_numpy():
            command: click.Command = importlib.import_module(f"stepscope.cli.{module}").command
        return command


@contextmanager
def _one_thread_in_numpy() -> Iterator[None]:
    """Keep NumPy's linear algebra, which the commands do not use, from starting a thread per core.

    The variable is removed afterwards: a job that a command starts must not inherit it.
    """
    if "OPENBLAS_NUM_THREADS" in os.environ:
        yield
        return
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stepscope")
def root() -> None:
    """Find the bottleneck of a training job, its cause, and what a fix would save."""


def _database_error() -> type[Exception] | tuple[()]:
    """Return the base class of DuckDB errors, or no class if DuckDB has not been imported.

    Importing it takes 0.1 s.
    """
    duckdb = sys.modules.get("duckdb")
    return duckdb.Error if duckdb else ()


def _replace_missing_streams() -> None:
    """Discard output to a stdout or stderr that was closed when the process started.

    Python sets such a stream to None. The null device also occupies its file descriptor, so that no
    file of stepscope gets it.
    """
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open until exit
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until exit


def main() -> None:
    """Run the command line; errors become one sentence and an exit code."""
    _replace_missing_streams()
    try:
        code = root.main(standalone_mode=False, prog_name="stepscope")
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except StepscopeError as error:
        click.echo(f"stepscope: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader closed the pipe
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        reason = error.strerror or str(error)
        prefix = f"{error.filename}: " if error.filename else ""
        click.echo(f"stepscope: {prefix}{reason}", err=True)
        sys.exit(StepscopeError.exit_code)
    except _database_error() as error:
        click.echo(f"stepscope: the run's tables cannot be read: {error}", err=True)
        sys.exit(StepscopeError.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
