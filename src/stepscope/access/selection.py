"""Names and times as callers give them, checked: a wrong one is an error that lists the right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from stepscope.errors import UsageError

__all__ = ["Moment", "Names", "chosen_names", "moment_ns"]

Moment = int | datetime | timedelta
"""Nanoseconds since 1970, a time with its zone, or the time since the run began."""
Names = str | re.Pattern[str] | Sequence[str]
"""A name, several, or a compiled pattern that whole names match."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def moment_ns(moment: Moment | None, begin_ns: int) -> int | None:
    """A moment in nanoseconds since 1970, exact; None stays None.

    Args:
        moment: as the caller gave it.
        begin_ns: when the run began.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise UsageError(
                f"{moment} names no time zone: give datetime(..., tzinfo=...), nanoseconds since "
                "1970, or the time since the run began as a timedelta."
            )
        return (moment - _EPOCH) // _MICROSECOND * 1000
    if isinstance(moment, timedelta):
        return begin_ns + moment // _MICROSECOND * 1000
    return moment


def chosen_names(what: str, wanted: Names | None, known: Iterable[str]) -> list[str] | None:
    """The known names that were asked for, None when all were.

    Raises:
        UsageError: a name is none of the known.
    """
    if wanted is None:
        return None
    names = list(known)
    if isinstance(wanted, re.Pattern):
        return [name for name in names if wanted.fullmatch(name)]
    given = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in given:
        if name not in names:
            raise UsageError(f"There is no {what} {name!r}; there are {_listed(names)}.")
    return given


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"
