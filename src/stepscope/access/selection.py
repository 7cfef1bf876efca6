"""Names and times as callers give them, checked: a wrong one is an error that lists the right."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from stepscope.errors import UsageError
from stepscope.quantities import count

Moment = int | datetime | timedelta
"""Nanoseconds since 1970, a time with its zone, or the time since the run began."""
Names = str | re.Pattern[str] | Sequence[str]
"""A name, several, or a compiled pattern that whole names match."""
MAX_LISTED = 100
"""Names that an error message lists."""
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
                "1970, or the time since the run started as a timedelta."
            )
        return (moment - _EPOCH) // _MICROSECOND * 1000
    if isinstance(moment, timedelta):
        return begin_ns + moment // _MICROSECOND * 1000
    return moment


def chosen_names(kind: str, requested: Names | None, available: Iterable[str]) -> list[str] | None:
    """Return the requested names; None for all.

    Raises:
        UsageError: a requested name is not available.
    """
    if requested is None:
        return None
    names = list(available)
    if isinstance(requested, re.Pattern):
        return [name for name in names if requested.fullmatch(name)]
    requested_names = [requested] if isinstance(requested, str) else list(requested)
    for name in requested_names:
        if name not in names:
            raise UsageError(f"There is no {kind} {name!r}; there are {_listed(names)}.")
    return requested_names


def _listed(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:MAX_LISTED]) or "none"
    omitted_count = len(names) - MAX_LISTED
    return listed if omitted_count <= 0 else f"{listed} and {count(omitted_count)} more"
