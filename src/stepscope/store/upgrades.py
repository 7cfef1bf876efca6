"""How a run of an older schema version is read as if it were of this one.

Nothing rewrites a recorded run: `run.json` is changed after it is read, and the rows of a table
by the query that reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepscope.schema import SCHEMA_VERSION

__all__ = ["STEPS", "Step", "steps_from"]


@dataclass(frozen=True, slots=True)
class Step:
    """From one version to the next."""

    run_info: Callable[[dict[str, Any]], dict[str, Any]]
    """The content of the older `run.json` -> that of the newer."""
    rows: Callable[[str, str], str]
    """Name of a table, query that yields its older rows -> query that yields the newer ones."""


STEPS: dict[int, Step] = {}
"""The step that leads away from each version older than the current one."""


def steps_from(version: int) -> tuple[Step, ...]:
    """The steps from a version to the current one, in order."""
    return tuple(STEPS[each] for each in range(version, SCHEMA_VERSION))
