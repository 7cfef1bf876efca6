"""Profile of Python functions, as a frame."""

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
    """Profile Python functions: one row per function and process, the highest self time first.

    Shares are of the selected samples of the process.
    """
    rows = []
    for rank in ranks:
        for process in _processes(run, rank, workers=workers):
            samples = run.stack_samples(process)
            selected = np.ones(len(samples.t_ns), dtype=np.bool_)
            if steps is not None:
                step = find_step_at(samples.t_ns, rank.steps)
                selected &= (step >= steps[0]) & (step < steps[1])
            if phase is not None:
                selected &= find_phase_at(samples.t_ns, rank.spans, rank.steps) == PHASES.index(
                    phase
                )
            profile = profile_functions(samples, selected)
            total_weight = max(1, profile.weight)
            timed = bool(process.facts_of(StackSamplerFact))
            rows += [
                {
                    "rank": rank.name,
                    "process": process.process,
                    "function": function.function,
                    "file": function.file,
                    "library": function.library,
                    "own_ratio": function.own_weight / total_weight,
                    "total_ratio": function.total_weight / total_weight,
                    "own_ns": function.own_weight if timed else None,
                    "total_ns": function.total_weight if timed else None,
                    "own_count": function.own_count,
                    "total_count": function.total_count,
                }
                for function in (profile.functions[:top] if top else profile.functions)
            ]
    return frame_of(rows, _TYPES)


def _processes(run: Run, rank: Rank, *, workers: bool) -> list[ProcessInfo]:
    main_process = rank.process
    if not workers:
        return [main_process]
    return [
        process
        for process in run.processes
        if process.role == "dataloader_worker"
        and (process.node, process.parent_pid) == (main_process.node, main_process.pid)
    ]
