"""Output of commands without a console, and commands that messages suggest."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import click
import msgspec

from stepscope import output_files, queries, store


def json_text(payload: object) -> str:
    """Encode a payload as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(payload)).decode()


def print_json(payload: object) -> None:
    """Print a payload as JSON on stdout."""
    click.echo(json_text(payload).encode())


def print_rows(
    payload: msgspec.Struct | msgspec.Raw,
    source: str,
    options: Mapping[str, object] = MappingProxyType({}),
    *,
    has_ids: bool = True,
) -> None:
    """Print a payload of a run as JSON on stdout, in which each row has its id.

    Args:
        payload: the payload, or its JSON.
        source: start of the ids; see `queries.make_payload`.
        options: options of the command that the payload depends on; those without a value, empty
            or false count as not set.
        has_ids: False where it depends on more, so that no id would lead back.
    """
    if not has_ids:
        print_json(payload)
        return
    texts = {
        name: queries.LIST_SEPARATOR.join(value) if isinstance(value, tuple) else str(value)
        for name, value in options.items()
        if value is not None and value is not False and value != ()
    }
    print_json(queries.with_ids(payload, queries.make_id(source, texts)))


def print_json_line(payload: object) -> None:
    """Print a payload as one line of JSON on stdout."""
    click.echo(msgspec.json.encode(payload))


def say(text: str) -> None:
    """Print a message on stderr, if stderr can be written."""
    try:
        click.echo(f"stepscope: {text}", err=True)
    except (OSError, ValueError):  # closed or full: the exit status of a job must not depend on it
        pass


STDOUT = "-"
"""Name of a file that stands for standard output."""


def write_file(output: str, text: str) -> None:
    """Write a text to a file or to standard output."""
    if output == STDOUT:
        click.echo(text.encode(), nl=False)
        return
    with output_files.atomic_write(Path(output)) as file:
        file.write(text.encode())


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
    return str(run) if store.is_remote(run) else str(Path(run).absolute())


_SUGGESTED = re.compile(rf"`{NAME} ([^`]*\bRUN\b[^`]*)`|^{NAME} (show RUN [\w-]+)$")
"""Commands on a run that messages of all surfaces suggest."""


def complete_commands(text: str, location: str | Path) -> list[tuple[int, int, str]]:
    """Complete the commands in a text that name no run.

    Args:
        text: one message.
        location: the run.

    Returns:
        Start and end of each command in the text, and the command to run.
    """
    commands = []
    for match in _SUGGESTED.finditer(text):
        group = 1 if match[1] is not None else 2
        try:
            words = shlex.split(match[group])
        except ValueError:  # of a quotation that ends elsewhere
            continue
        words = [locate(location) if word == "RUN" else word for word in words]
        commands.append((match.start(group) - len(NAME) - 1, match.end(group), suggest(*words)))
    return commands


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
