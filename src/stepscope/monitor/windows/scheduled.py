"""Sentences about scheduled windows that are missing, or have other steps than planned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from stepscope.monitor.config import WindowSchedule
from stepscope.quantities import duration
from stepscope.schema import ProcessInfo, WindowFact, WindowMissedFact

F = TypeVar("F", WindowFact, WindowMissedFact)


def describe_scheduled(
    schedule: WindowSchedule, processes: Iterable[ProcessInfo], last_step: int
) -> list[str]:
    """Describe what differs from a schedule after the end of the job, each difference once.

    Args:
        processes: training processes of the node.
        last_step: number of the latest step of the job, from 0.
    """
    processes = list(processes)
    windows = _select_scheduled(processes, WindowFact)
    missed = _select_scheduled(processes, WindowMissedFact)
    notes = [_describe_deviation(schedule, fact) for fact in windows if fact.deviation]
    notes += [
        f"{_describe_plan(schedule, fact.first_step)} was not recorded: {fact.why}"
        for fact in missed
    ]
    if not windows and not missed:
        end = "the job ended before it could start"
        if schedule.first_step is not None and last_step:
            end = f"the job ended in step {last_step}"
        notes.append(f"{_describe_plan(schedule, schedule.first_step)} was not recorded: {end}")
    return list(dict.fromkeys(notes))


def _select_scheduled(processes: Iterable[ProcessInfo], kind: type[F]) -> list[F]:
    facts = (fact for process in processes for fact in process.facts_of(kind))
    return [fact for fact in facts if fact.reason == "scheduled"]


def _describe_plan(schedule: WindowSchedule, first_step: int | None) -> str:
    if schedule.start_s is not None:
        return f"the window scheduled for {duration(1e9 * schedule.start_s)} after the start"
    return f"the window scheduled for {_format_steps(first_step or 0, schedule.step_count or 1)}"


def _describe_deviation(schedule: WindowSchedule, fact: WindowFact) -> str:
    plan = _describe_plan(schedule, fact.planned_first_step)
    if fact.step_count == 0:
        return f"{plan} has no complete step: {fact.deviation}"
    if fact.first_step == fact.planned_first_step:
        last = fact.first_step + fact.step_count - 1
        return f"{plan} ends after step {last}: {fact.deviation}"
    recorded = _format_steps(fact.first_step, fact.step_count)
    return f"{plan} was recorded at {recorded}: {fact.deviation}"


def _format_steps(first: int, count: int) -> str:
    return f"step {first}" if count == 1 else f"steps {first} to {first + count - 1}"
