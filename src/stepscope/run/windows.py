"""What processes said of the detailed windows that they carried out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from stepscope.schema import ProcessInfo, WindowFact

WindowKey = tuple[str | None, int | None]
"""Process and number; an imported recording has neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window of one process."""

    reason: str
    """Why it was opened: `automatic`, `scheduled`, `requested` or `slower`."""
    depth: Literal["light", "full"]
    options: tuple[str, ...]
    """What it holds besides operators: `shapes`, `stacks`, `memory`, `flops`, `modules`."""
    first_step: int
    """Steps of the process that had ended before it, so the number of its first one."""
    step_count: int


def windows_of(processes: Iterable[ProcessInfo]) -> dict[WindowKey, Window]:
    """Every window that was carried out, by process and number."""
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
