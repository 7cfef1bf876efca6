"""Options of `stepscope run` for the search for the origin of NaN."""

from __future__ import annotations

import functools
from typing import Any

import click

from stepscope.cli.options import Decorated
from stepscope.spool import AFTER_LOSS, FROM_START


def nan_options(command: Decorated) -> Decorated:
    """Add the options; the command gets the start of the search, or None, as `nan_search`."""

    @functools.wraps(command)
    def with_start(*args: Any, find_nan: bool, on_nan: str | None, **options: Any) -> Any:
        start = FROM_START if find_nan else AFTER_LOSS if on_nan else None
        return command(*args, nan_search=start, **options)

    collected: Decorated = with_start
    for option in reversed(_OPTIONS):
        collected = option(collected)
    return collected


_OPTIONS = (
    click.option("--find-nan", is_flag=True,
                 help="Check the result of every operator, and name the one with the first NaN or "
                 "infinite number that reaches a loss, gradient or parameter. Slow."),
    click.option("--on-nan", type=click.Choice(["find"]),
                 help="Start that search after the first loss that is not finite."),
)  # fmt: skip
