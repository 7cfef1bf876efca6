"""Where Python spent its time, as a frame."""

from __future__ import annotations

import numpy as np

from stepscope.access.frames import Frame, frame_of
from stepscope.analysis import PHASES, find_phase_at, find_step_at, profile_functions
from stepscope.run import Rank, Run
from stepscope.schema import ProcessInfo, StackSamplerFact

_TYPES: dict[str, type] = {
    "rank": str,
    "process": str,
    "function": str,
    "file": str,
    "library": str,
    "own_ratio": float,
    "total_ratio": float,
    "own_ns": int,
    "total_ns": int,
    "own_count": int,
    "total_count": int,
}


def python_profile(
    run: Run,
    ranks: list[Rank],
    *,
    workers: bool,
    phase: str | None,
    steps: tuple[int, int] | None,
    top: int,
) -> Frame:
    """One row per function and process, those with the most time of their own first; shares are of
    the samples chosen in that process."""
    rows = []
    for rank in ranks:
        for process in _processes(run, rank, workers=workers):
            samples = run.stack_samples(process)
            chosen = np.ones(len(samples.t_ns), dtype=np.bool_)
            if steps is not None:
                step = find_step_at(samples.t_ns, rank.steps)
                chosen &= (step >= steps[0]) & (step < steps[1])
            if phase is not None:
                chosen &= find_phase_at(samples.t_ns, rank.spans, rank.steps) == PHASES.index(phase)
            found = profile_functions(samples, chosen)
            whole = max(1, found.weight)
            timed = bool(process.facts_of(StackSamplerFact))
            rows += [
                {
                    "rank": rank.name,
                    "process": process.process,
                    "function": each.function,
                    "file": each.file,
                    "library": each.library,
                    "own_ratio": each.own_weight / whole,
                    "total_ratio": each.total_weight / whole,
                    "own_ns": each.own_weight if timed else None,
                    "total_ns": each.total_weight if timed else None,
                    "own_count": each.own_count,
                    "total_count": each.total_count,
                }
                for each in (found.functions[:top] if top else found.functions)
            ]
    return frame_of(rows, _TYPES)


def _processes(run: Run, rank: Rank, *, workers: bool) -> list[ProcessInfo]:
    own = rank.process
    if not workers:
        return [own]
    return [
        process
        for process in run.processes
        if process.role == "dataloader_worker"
        and (process.node, process.parent_pid) == (own.node, own.pid)
    ]
