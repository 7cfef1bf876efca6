"""Facts that processes reported of their detailed windows."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.schema import ProcessInfo, WindowFact

WindowKey = tuple[str | None, int | None]
"""Process and number; an imported trace has neither."""


def windows_of(processes: Iterable[ProcessInfo]) -> dict[WindowKey, WindowFact]:
    """Collect every completed window, by process and number."""
    return {
        (process.process, fact.number): fact
        for process in processes
        for fact in process.facts_of(WindowFact)
    }
