"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorated = Callable[..., Any]


def json_option(command: Decorated) -> Decorated:
    """`--json`: the payload as JSON on stdout."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def run_argument(command: Decorated) -> Decorated:
    """RUN: a run directory."""
    return click.argument("run", metavar="RUN")(command)


def parse_bytes(context: click.Context, parameter: click.Parameter, text: str) -> int:
    """A size such as 256MB, 1GiB or 4096.

    >>> parse_bytes(None, None, "64KiB")
    65536
    """
    units = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
    units |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}
    number = text.rstrip("bBkKmMgGiI ")
    unit = text[len(number) :].strip().lower()
    if unit not in units or not number.replace(".", "", 1).isdigit():
        raise click.BadParameter(f"{text!r} is no size; give one such as 256MB or 1GiB.")
    return int(float(number) * units[unit])
