"""Damage of the files behind a figure of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stepscope.run.run import Run

T = TypeVar("T")


def make_with_damage(run: Run, make: Callable[[Run], T]) -> tuple[T, list[str]]:
    """Make something of a run, and list the unreadable files of the tables that this reads.

    Only reading a file shows that it is damaged, and a run reads a table once for all figures. So
    where a run has damage, this is made of a run that has read nothing yet.
    """
    if not run.reader.damage:
        result = make(run)
        if not run.reader.damage:
            return result, []
    with run.reader.trace_use() as reader:
        return make(run.reread(reader)), reader.damage_used
