"""Opening of runs."""

from __future__ import annotations

from pathlib import Path

from stepscope import store
from stepscope.run.run import Run


def open_run(location: str | Path) -> Run:
    """Open a run at a path or URL.

    Raises:
        StepscopeError: see `stepscope.store.open_run`.
    """
    return Run(store.open_run(location))


def reopen_run(run: Run) -> Run:
    """Create a read model of the current state of a growing run; its reader keeps the old segments.

    Raises:
        StepscopeError: see `stepscope.store.open_run`.
    """
    run.reader.refresh()
    return Run(run.reader)
