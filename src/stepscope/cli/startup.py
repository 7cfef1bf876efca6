"""Start of a command: standard streams, threads of NumPy, defaults of options.

All text goes through here, that of click included. Documents for programs (JSON, CSV, Markdown,
XML) are written as bytes of UTF-8 whatever the terminal is.

Defaults of options, from the environment and from the nearest pyproject.toml that has any:

    STEPSCOPE_RUN_INTERVAL=100    the option --interval of `stepscope run`

    [tool.stepscope.run]          the same in the file
    interval = 100

An option on the command line comes first, then the environment, then the file.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from stepscope import errors

_ERRORS = "stepscope.transliterate"
_ASCII = "stepscope_ascii"
_SPELLINGS = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–−─·", "-"),  # noqa: RUF001 - hyphens, dashes, minus
        "—": "--",
        "…": "...",
        "×": "x",  # noqa: RUF001 - a multiplication sign
        "→": "->",
        "±": "+/-",
        "≤": "<=",
        "≥": ">=",
        "≠": "!=",
        "≪": "<<",
        "µ": "u",
        "μ": "u",
        "σ": "sigma",  # noqa: RUF001 - a Greek letter
        "Σ": "sum",
        "²": "^2",
        "°": " deg ",
        "\xa0": " ",
        **dict.fromkeys("‘’", "'"),  # noqa: RUF001 - quotation marks
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("├└│", "|"),
        **dict(zip("▁▂▃▄▅▆▇█▒", ".:-=+*%#/", strict=True)),  # levels of a curve, cells of a bar
        **dict(zip("▓░▚▖", "=-%_", strict=True)),  # cells of phases
        "▲": "^",
        "▼": "v",
        **{chr(0x2400 + code): f"^{chr(code ^ 0x40)}" for code in range(0x20)},
        "␡": "^?",
        "\ufffd": "?",
    }
)
"""Spellings in ASCII of what stepscope itself writes; names of users are escaped."""


def prepare_streams() -> None:
    """Make stdout and stderr safe to write to.

    Python sets a stream to None if it was closed when the process started. Output to it is
    discarded; the null device also occupies its file descriptor, and that of stdin, so that no file
    of stepscope gets it.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - open until exit
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open until exit
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until exit
    codecs.register_error(_ERRORS, _transliterate)
    codecs.register(_find_codec)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            is_ascii = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding=_ASCII if is_ascii else None, errors=_ERRORS)


def _transliterate(error: UnicodeError) -> tuple[str | bytes, int]:
    """Spell the characters that a stream cannot encode.

    Blanks after a longer spelling make up for it, so that the columns of a table stay aligned.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    spelled = text.translate(_SPELLINGS).encode("ascii", "backslashreplace").decode()
    rest = error.object[error.end :]
    blanks = len(rest) - len(rest.lstrip(" "))
    return spelled, error.end + min(len(spelled) - len(text), max(0, blanks - 1))


def _find_codec(name: str) -> codecs.CodecInfo | None:
    """Find ASCII under a name that click does not know: it would write UTF-8 instead."""
    if name != _ASCII:
        return None
    ascii_codec = codecs.lookup("ascii")
    return codecs.CodecInfo(
        ascii_codec.encode,
        ascii_codec.decode,
        incrementalencoder=ascii_codec.incrementalencoder,
        incrementaldecoder=ascii_codec.incrementaldecoder,
        name=_ASCII,
    )


@contextmanager
def one_thread_in_numpy() -> Iterator[None]:
    """Keep NumPy from starting a thread per core when it is imported in the body.

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
            raise errors.UsageError(
                f"{path}: {TABLE}.{table} is not a command.{errors.name_similar(table, commands)}"
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
            raise errors.UsageError(f"{path} cannot be read: {error}.") from None
        if isinstance(tables, dict):
            return path, tables
    return directory, {}


def map_options(command: click.Command, table: Any, table_name: str) -> dict[str, Any]:
    """Return the values of a table by the names of the command's parameters."""
    if not isinstance(table, Mapping):
        raise errors.UsageError(f"{table_name} is not a table of options.")
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
            raise errors.UsageError(
                f"{table_name} has no option {key}.{errors.name_similar(key, names)}"
            )
    return values


def _value(option: click.Option, value: Any, table_name: str) -> Any:
    """Return a value as the command line would have it: text, or a truth value for a flag."""
    if option.is_flag != isinstance(value, bool):
        raise errors.UsageError(
            f"{table_name} must be {'true or false' if option.is_flag else 'a value'}."
        )
    if isinstance(value, bool):
        return value
    items = value if isinstance(value, list) and option.multiple else [value]
    if any(isinstance(item, bool) or not isinstance(item, str | int | float) for item in items):
        form = "text, a number or a list of them" if option.multiple else "text or a number"
        raise errors.UsageError(f"{table_name} must be {form}.")
    texts = [str(item) for item in items]
    return texts if option.multiple else texts[0]


def working_directory() -> Path:
    """Return the working directory; if it was deleted, the path that it had."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD", "/"))
