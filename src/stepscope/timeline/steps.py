"""Steps of the job's processes, as far as they can be found quickly."""

from __future__ import annotations

from stepscope.analysis import Steps, find_steps
from stepscope.run import Run
from stepscope.schema import ProcessInfo

MOST_SPANS = 3_000_000
"""That steps are found by, of all processes; it takes a few seconds."""


def watched_steps(run: Run) -> tuple[list[tuple[ProcessInfo, Steps]], list[ProcessInfo]]:
    """The steps of training processes, and those processes that were not looked at because those
    before have had so many spans."""
    found: list[tuple[ProcessInfo, Steps]] = []
    main = [process for process in run.processes if process.role == "main"]
    looked_at = 0
    for place, process in enumerate(main):
        if looked_at > MOST_SPANS:
            return found, main[place:]
        spans = run.step_spans(process)
        looked_at += len(spans)
        steps = find_steps(spans)
        if steps is not None:
            found.append((process, steps))
    return found, []


def steps_of_process(run: Run, name: str) -> Steps | None:
    """The steps of one process; None for one that does not train."""
    process = next((p for p in run.processes if p.process == name and p.role == "main"), None)
    return find_steps(run.step_spans(process)) if process else None
