"""Sentences about scheduled windows that are missing, or have other steps than planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from stepscope.quantities import duration
from stepscope.schema import ProcessInfo, WindowFact, WindowMissedFact, WindowSchedule
from stepscope.spool import ScheduledWindows

F = TypeVar("F", WindowFact, WindowMissedFact)


def name_windows(schedule: WindowSchedule) -> str:
    """Return the common part of the names of the windows of a schedule in time.

    The name is that of the agreement of all nodes on the start; the number of the window follows.
    """
    return f"scheduled-{schedule.start_s}-"


def describe_scheduled(
    schedules: Sequence[WindowSchedule], processes: Iterable[ProcessInfo], last_step: int
) -> list[str]:
    """Describe what differs from the schedules after the end of the job, each difference once.

    Args:
        schedules: those that applied at the end of the job.
        processes: training processes of the node.
        last_step: number of the latest step of the job, from 0.
    """
    processes = list(processes)
    notes: list[str] = []
    attempted: list[WindowSchedule | None] = []
    for window in _select_scheduled(processes, WindowFact):
        schedule = _find_schedule(schedules, window.planned_first_step, window.request)
        attempted.append(schedule)
        if window.deviation:
            notes.append(_describe_deviation(schedule, window))
    for missed in _select_scheduled(processes, WindowMissedFact):
        schedule = _find_schedule(schedules, missed.first_step, missed.request)
        attempted.append(schedule)
        step_count = None if schedule is None else schedule.step_count
        plan = _describe_plan(schedule, missed.first_step, step_count)
        notes.append(f"{plan} was not recorded: {missed.why}")
    notes += [_describe_absence(s, last_step) for s in schedules if s not in attempted]
    return list(dict.fromkeys(notes))


def _select_scheduled(processes: Iterable[ProcessInfo], kind: type[F]) -> list[F]:
    facts = (fact for process in processes for fact in process.facts_of(kind))
    return [fact for fact in facts if fact.reason == "scheduled"]


def _find_schedule(
    schedules: Iterable[WindowSchedule], first_step: int | None, request: str | None
) -> WindowSchedule | None:
    """Find the schedule of a window; None if it was removed while the job ran."""
    for schedule in schedules:
        if request is not None:
            is_found = schedule.start_s is not None and request.startswith(name_windows(schedule))
        elif first_step is None or schedule.first_step is None:
            is_found = False
        else:
            is_found = ScheduledWindows.copy(schedule).next_start(first_step) == first_step
        if is_found:
            return schedule
    return None


def _describe_plan(
    schedule: WindowSchedule | None, first_step: int | None, step_count: int | None
) -> str:
    if schedule is not None and schedule.start_s is not None:
        return f"the window scheduled for {duration(1e9 * schedule.start_s)} after the start"
    return f"the window scheduled for {_format_steps(first_step or 0, step_count or 1)}"


def _describe_absence(schedule: WindowSchedule, last_step: int) -> str:
    """Describe that the job ended before the first window of a schedule."""
    end, first_step = "the job ended before it could start", None
    if schedule.first_step is not None:
        first_step = ScheduledWindows.copy(schedule).next_start(0)
        if last_step:
            end = f"the job ended in step {last_step}"
    return f"{_describe_plan(schedule, first_step, schedule.step_count)} was not recorded: {end}"


def _describe_deviation(schedule: WindowSchedule | None, fact: WindowFact) -> str:
    plan = _describe_plan(schedule, fact.planned_first_step, fact.planned_step_count)
    if fact.step_count == 0:
        return f"{plan} has no complete step: {fact.deviation}"
    if fact.first_step == fact.planned_first_step:
        last = fact.first_step + fact.step_count - 1
        return f"{plan} ends after step {last}: {fact.deviation}"
    recorded = _format_steps(fact.first_step, fact.step_count)
    return f"{plan} was recorded at {recorded}: {fact.deviation}"


def _format_steps(first: int, count: int) -> str:
    return f"step {first}" if count == 1 else f"steps {first} to {first + count - 1}"
