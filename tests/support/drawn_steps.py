"""Steps of drawn jobs. Times are milliseconds."""

from __future__ import annotations

from stepscope.analysis import Steps, find_steps
from stepscope.testing import Drawing

MS = 1_000_000
Phases = dict[str, float]


def steps_of(*lines: str, times: int = 1, end_kinds: tuple[str, ...] | None = None) -> Steps:
    """Draw lines one after another, as many times, and find the steps."""
    drawing = Drawing()
    for line in lines * times:
        drawing.draw(line)
    return steps_in(drawing, end_kinds)


def steps_in(drawing: Drawing, end_kinds: tuple[str, ...] | None = None) -> Steps:
    steps = find_steps(drawing.table(), *([] if end_kinds is None else [end_kinds]))
    assert steps is not None
    return steps


def walls(steps: Steps) -> list[float]:
    return [wall / MS for wall in steps.wall_ns.tolist()]


def phases(steps: Steps, step: int = -1) -> Phases:
    """Return milliseconds of each phase of one step."""
    times = {phase: int(times[step]) / MS for phase, times in steps.phase_ns.items()}
    return {phase: time for phase, time in times.items() if time}
