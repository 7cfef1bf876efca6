"""Errors of queries that users write."""

from __future__ import annotations

import re

from stepscope.errors import UsageError
from stepscope.schema import TABLES

_EXCERPT = re.compile(r"^LINE (\d+): (.*)\n( *)\^", re.M)
"""Line number, a part of the line between dots, and blanks up to the marked position."""


def query_error(query: str, message: str) -> UsageError:
    """Make the error of a query from the message of DuckDB.

    >>> query_error("SELECT nme FROM spans", 'Binder Error: no column "nme"').args[0][:58]
    'The query cannot be run: Binder Error: no column "nme". Ta'
    """
    reason = " ".join(message.partition("\nLINE ")[0].split()).rstrip(".!")
    tables = ", ".join(TABLES)
    return UsageError(
        f"The query cannot be run: {reason}{_position(query, message)}. Tables: {tables}."
    )


def _position(query: str, message: str) -> str:
    """Find the position that DuckDB marks below its excerpt of a line; '' without one."""
    match = _EXCERPT.search(message)
    lines = query.splitlines()
    if match is None or not 0 < int(match[1]) <= len(lines):
        return ""
    number, excerpt, blanks = int(match[1]), match[2], match[3]
    text = excerpt.removeprefix("...").removesuffix("...")
    before = len(f"LINE {number}: ") + len(excerpt) - len(excerpt.removeprefix("..."))
    column = lines[number - 1].find(text) + len(blanks) - before + 1
    return f" (line {number}, column {column})"
