"""Defaults of options, from the environment and from the nearest pyproject.toml that has any.

    STEPSCOPE_RUN_INTERVAL=100    the option --interval of `stepscope run`

    [tool.stepscope.run]          the same in the file
    interval = 100

An option on the command line comes first, then the environment, then the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from stepscope.cli.working_directory import working_directory
from stepscope.errors import UsageError, name_similar

TABLE = "tool.stepscope"


def set_defaults(
    context: click.Context, name: str, command: click.Command, commands: Iterable[str]
) -> None:
    """Let a command take defaults of its options from the environment and the file.

    Args:
        context: that of the command line as a whole.
        name: name of the command.
        command: receives the names of its variables.
        commands: names of all commands, which may have tables in the file.

    Raises:
        UsageError: the file has an unknown name or a value of another type.
    """
    _name_variables(f"STEPSCOPE_{name}", command)
    path, tables = _read_tables(working_directory())
    for table in tables:
        if table not in commands:
            raise UsageError(
                f"{path}: {TABLE}.{table} is not a command.{name_similar(table, commands)}"
            )
    if name in tables:
        context.default_map = {name: map_options(command, tables[name], f"{path}: {TABLE}.{name}")}


def _name_variables(prefix: str, command: click.Command) -> None:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            _name_variables(f"{prefix}_{name}", inner)
    for flag, option in _options(command).items():
        if option.envvar is None:
            option.envvar = f"{prefix}_{flag}".replace("-", "_").upper()


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options by each of their long flags, without the dashes."""
    return {
        flag.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for flag in option.opts
        if flag.startswith("--")
    }


def _read_tables(directory: Path) -> tuple[Path, dict[str, Any]]:
    """Read the tables of the nearest file, in a directory or above, that has any."""
    for parent in (directory, *directory.parents):
        path = parent / "pyproject.toml"
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if TABLE.encode() not in content:
            continue
        import tomllib  # most projects set no defaults

        try:
            tables = tomllib.loads(content.decode()).get("tool", {}).get("stepscope")
        except ValueError as error:
            raise UsageError(f"{path} cannot be read: {error}.") from None
        if isinstance(tables, dict):
            return path, tables
    return directory, {}


def map_options(command: click.Command, table: Any, table_name: str) -> dict[str, Any]:
    """Return the values of a table by the names of the command's parameters."""
    if not isinstance(table, Mapping):
        raise UsageError(f"{table_name} is not a table of options.")
    inner = command.commands if isinstance(command, click.Group) else {}
    options = _options(command)
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in inner:
            values[key] = map_options(inner[key], value, f"{table_name}.{key}")
        elif key in options:
            values[str(options[key].name)] = _value(options[key], value, f"{table_name}.{key}")
        else:
            names = [*options, *inner]
            raise UsageError(f"{table_name} has no option {key}.{name_similar(key, names)}")
    return values


def _value(option: click.Option, value: Any, table_name: str) -> Any:
    """Return a value as the command line would have it: text, or a truth value for a flag."""
    if option.is_flag != isinstance(value, bool):
        raise UsageError(
            f"{table_name} must be {'true or false' if option.is_flag else 'a value'}."
        )
    if isinstance(value, bool):
        return value
    items = value if isinstance(value, list) and option.multiple else [value]
    if any(isinstance(item, bool) or not isinstance(item, str | int | float) for item in items):
        form = "text, a number or a list of them" if option.multiple else "text or a number"
        raise UsageError(f"{table_name} must be {form}.")
    texts = [str(item) for item in items]
    return texts if option.multiple else texts[0]
