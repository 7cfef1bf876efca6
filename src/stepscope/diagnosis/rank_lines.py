"""Lines of the script in which a rank spends its steps."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from stepscope import analysis
from stepscope.diagnosis.traces.trace_python import measure_functions
from stepscope.run import Run, divide_traces

MAX_LINES = 5
MIN_RATIO = 0.01
"""Smallest share of a step of a line that is listed."""
PHASE_NAMES = {"backward": "backward, with its communication", "other": "other work"}


class RankLine(msgspec.Struct, frozen=True, kw_only=True):
    """Line of the script, or Python function of a trace."""

    frame: str
    """File, line and function, such as `train.py(24): preprocess`."""
    activity: str | None
    """Phase of the step, in words; null for a function of a trace."""
    mean_ns: float
    """Time per step; that of a function without the functions that it calls."""


def list_rank_lines(run: Run, index: int) -> list[RankLine]:
    """List the lines in which a rank spends most of its steps, the longest first.

    None without stack samples of the job, or stacks in the traces.

    Args:
        run: a run with ranks, or with traces of ranks.
        index: index of the rank; its number where the run has traces only.
    """
    return _list_sampled(run, index) if run.ranks else _list_traced(run, index)


def _list_sampled(run: Run, index: int) -> list[RankLine]:
    rank = run.ranks[index]
    steps, measured = rank.steps, rank.steps.measured()
    shares = analysis.measure_script_lines(run.stack_samples(rank.process), rank.spans, steps)
    mean_ns: dict[tuple[str, str | None], float] = {
        (f"{at.file}({at.line}): {at.function or '<module>'}", at.phase): share
        * float(steps.phase_ns[at.phase][measured].mean())
        for at, share in shares.items()
    }
    return _select(mean_ns, float(steps.wall_ns[measured].mean()))


def _list_traced(run: Run, number: int) -> list[RankLine]:
    traces = [one for one in divide_traces(run) if one.trace.rank == number]
    step_count = sum(len(one.steps.names) for one in traces)
    totals: dict[tuple[str, str | None], float] = {}
    for one in traces:
        for name, time_ns in measure_functions(one):
            totals[name, None] = totals.get((name, None), 0.0) + time_ns / step_count
    return _select(totals, sum(int(one.steps.wall_ns.sum()) for one in traces) / max(1, step_count))


def _select(mean_ns: Mapping[tuple[str, str | None], float], step_ns: float) -> list[RankLine]:
    longest = sorted(mean_ns.items(), key=lambda item: -item[1])[:MAX_LINES]
    return [
        RankLine(
            frame=frame,
            activity=PHASE_NAMES.get(activity, activity.replace("_", " ")) if activity else None,
            mean_ns=time_ns,
        )
        for (frame, activity), time_ns in longest
        if time_ns >= MIN_RATIO * step_ns
    ]
