"""Facts that processes reported of their detailed windows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stepscope.schema import ProcessInfo, WindowFact

WindowKey = tuple[str | None, int | None]
"""Process and number; an imported trace has neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of one process."""

    reason: str
    """Reason for opening it: `automatic`, `scheduled`, `requested` or `slower`."""
    depth: Literal["light", "full"]
    options: tuple[str, ...]
    """Content in addition to operators: `shapes`, `stacks`, `memory`, `flops`, `modules`."""
    first_step: int
    """Number of its first step: steps of the process that ended before it."""
    step_count: int


def windows_of(processes: Iterable[ProcessInfo]) -> dict[WindowKey, Window]:
    """Collect every completed window, by process and number."""
    return {
        (process.process, fact.number): Window(
            reason=fact.reason,
            depth=fact.depth,
            options=tuple(fact.options),
            first_step=fact.first_step,
            step_count=fact.step_count,
        )
        for process in processes
        for fact in process.facts_of(WindowFact)
    }
