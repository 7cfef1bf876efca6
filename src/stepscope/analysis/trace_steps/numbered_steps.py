"""Steps of a trace as those of a rank, which are drawn over their numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stepscope.analysis.steps.steps import Steps
from stepscope.analysis.trace_steps.trace_steps import TraceSteps
from stepscope.intervals import EMPTY, Int


def number_trace_steps(steps: TraceSteps, category_ns: Mapping[str, Int], *, clock: str) -> Steps:
    """Make steps of a rank of those of a trace; phases are the categories.

    Steps have the numbers that the trace names, or else are counted from 0.

    Args:
        steps: at least one.
        category_ns: time of each category in each step; sums to the duration of the step.
        clock: `device` if the trace has device work, else `host`.
    """
    names, count = steps.names, len(steps.names)
    has_numbers = names[0].isdecimal() and names == [str(int(names[0]) + i) for i in range(count)]
    return Steps(
        source="marked",
        clock=clock,
        thread=0,
        start=steps.extent.start,
        end=steps.extent.end,
        wall_ns=steps.wall_ns,
        phase_ns=category_ns,
        fetches=np.zeros(count, dtype=np.int64),
        profiled=np.zeros(count, dtype=np.bool_),
        evaluation=EMPTY,
        first=int(names[0]) if has_numbers else 0,
    )
