"""Output of a command on a run that has ended, stored with it and printed again.

    results/<name>.json         the payload, which all surfaces share (`stepscope.run.recall`)
    results/<name>-text.json    its text, as the terminal of the last look had it

Printing it imports neither what computes the payload nor what lays it out: most of the time of a
command is that of its imports.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stepscope import cost, run, store
from stepscope.cli.output import locate, print_rows, suggest

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

_VARIABLES = (
    "COLUMNS", "LINES", "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE",
    "TTY_INTERACTIVE", "TZ",
)  # fmt: skip
"""Variables by which rich lays out text, and the time zone."""

_STYLE = re.compile(r"\x1b\[[\d;]*m")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Characters by which a name could command the terminal: `cli.text` writes none of them."""


class _StoredText(msgspec.Struct, frozen=True, kw_only=True):
    layout: list[str | None]
    """What the text depends on in addition to the payload: `_describe_layout`."""
    text: str


def print_stored(location: str, name: str, form: str = "", *, source: str, as_json: bool) -> bool:
    """Print a result as it was stored; False, and nothing is printed, where it is not.

    Args:
        location: RUN. Of a trace, and of a run in a bucket, nothing is looked for.
        name: name of the result.
        form: form of the text; that of the last look is stored.
        source: start of the ids of its rows.
        as_json: print the payload, not its text.
    """
    if not (Path(location) / store.RUN_KEY).is_file() or cost.ENVIRONMENT in os.environ:
        return False
    for uses_findings in (True, False):
        results = run.find_results(location, uses_findings=uses_findings)
        if results is None:
            continue
        if as_json and (payload := results.get(name, msgspec.Raw)) is not None:
            print_rows(payload, source)
            return True
        stored = None if as_json else results.get(_text_name(name), _StoredText)
        if (
            stored is not None
            and stored.layout == _describe_layout(location, form)
            and not _CONTROL.search(_STYLE.sub("", stored.text))
        ):
            _print(stored.text)
            return True
    return False


def print_text(
    write: Callable[[Console], None],
    location: str,
    opened: run.Run,
    name: str | None,
    form: str = "",
) -> None:
    """Print a result as text, and store the text where the result is stored.

    Args:
        write: writes the text.
        location: RUN.
        opened: the run.
        name: name of the result; None for one that depends on more than the run.
        form: form of the text.
    """
    from stepscope.cli.text import console

    out = console(location)
    with out.capture() as capture:
        write(out)
    text = capture.get()
    _print(text)
    if name is None or not Path(location).is_dir():
        return
    for uses_findings in (True, False):
        results = run.results_of(opened, uses_findings=uses_findings)
        if results is not None and results.get(name, msgspec.Raw) is not None:
            stored = _StoredText(layout=_describe_layout(location, form), text=text)
            results.put(_text_name(name), msgspec.json.encode(stored))


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _text_name(name: str) -> str:
    return f"{name}-text"


def _describe_layout(location: str, form: str) -> list[str | None]:
    """Describe the terminal, the name of the run, and the commands that the text suggests."""
    is_terminal = sys.stdout.isatty()
    size = os.get_terminal_size(sys.stdout.fileno()) if is_terminal else ""
    variables = [os.environ.get(name) for name in _VARIABLES]
    name, command = store.run_name(location, ""), suggest("show", locate(location))
    return [form, name, command, str(size), sys.stdout.encoding, *variables]
