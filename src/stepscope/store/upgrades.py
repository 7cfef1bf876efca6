"""Conversion of older schema versions while a run is read.

A recorded run is never rewritten: `run.json` is converted after it is read, and the rows of a
table by the query that reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepscope.schema import SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Conversion from one schema version to the next."""

    run_info: Callable[[dict[str, Any]], dict[str, Any]]
    """Converts the content of the older `run.json`."""
    rows: Callable[[str, str], str]
    """Takes the name of a table and a query of its older rows; returns a query of newer rows."""


UPGRADES: dict[int, Upgrade] = {}
"""Upgrade from each version older than the current one, by that version."""


def upgrades_from(version: int) -> tuple[Upgrade, ...]:
    """Return the upgrades from a version to the current one, in order."""
    return tuple(UPGRADES[older] for older in range(version, SCHEMA_VERSION))
