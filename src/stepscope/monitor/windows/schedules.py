"""Scheduled windows of one node, their changes, and sentences about missing ones."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from stepscope import errors, schema
from stepscope.monitor.windows.planner import Planner, TrainingProcess, WindowSpec, select_stepping
from stepscope.monitor.windows.requests import RequestHandler
from stepscope.quantities import duration, number
from stepscope.spool import ScheduledWindows, next_window, write_schedules

SCHEDULE_MARGIN_NS = 1_000_000_000
"""Time before the latest assignment of a window scheduled by steps from which it is assigned."""


class Schedules:
    """Schedules of the windows of one node.

    Training processes follow schedules in steps by themselves. Those in time are planned here, and
    those in steps as well if libkineto can record their windows.

    Args:
        schedules: schedules at the start of the job.
        spool: directory of the spool.
        planner: assigns windows to processes.
        requests: agrees with other nodes.
        started_ns: start of the job on the monotonic clock.
    """

    def __init__(
        self,
        schedules: Iterable[schema.WindowSchedule],
        *,
        spool: str,
        planner: Planner,
        requests: RequestHandler,
        started_ns: int,
    ) -> None:
        self.current = list(schedules)
        self.until_ns = math.inf
        """Time until the next window; inf without one."""
        self.notes: dict[str, str] = {}
        """Windows that were skipped, one sentence each."""
        self._number = 0
        self._spool = spool
        self._planner = planner
        self._requests = requests
        self._started_ns = started_ns
        self._next_index: dict[str, int] = {}

    def admit(
        self, schedules: Sequence[schema.WindowSchedule], processes: Sequence[TrainingProcess]
    ) -> list[schema.WindowSchedule]:
        """Return the schedules, with the earliest start of the windows of those that are new.

        Raises:
            UsageError: all windows of a new schedule are in the past.
        """
        stepping = select_stepping(processes)
        min_step = self._planner.find_start(stepping).first_step or 0
        last_step = max((process.steps for process in stepping), default=0)
        now_s = (time.monotonic_ns() - self._started_ns) / 1e9
        min_start_s = now_s + self._planner.lead_ns(stepping) / 1e9
        admitted = []
        for schedule in schedules:
            if schedule in self.current:
                admitted.append(schedule)
            elif schedule.first_step is None:
                added = msgspec.structs.replace(schedule, min_start=min_start_s)
                if not _follows(added):
                    raise errors.UsageError(
                        f"the window {number(schedule.start_s)} s after the start of the job is in "
                        f"the past: the job has run for {duration(1e9 * now_s)}, and windows "
                        f"can be added from {duration(1e9 * min_start_s)} on"
                    )
                admitted.append(added)
            else:
                added = msgspec.structs.replace(schedule, min_start=min_step)
                if ScheduledWindows.copy(added).next_start(0) is None:
                    raise errors.UsageError(
                        f"the window after {schedule.first_step} steps is in the past: the job is "
                        f"in step {last_step}, and windows can be added from step {min_step} on"
                    )
                admitted.append(added)
        return admitted

    def replace(self, schedules: Sequence[schema.WindowSchedule], change: int) -> None:
        """Replace the schedules; a window that is planned already is still recorded.

        Args:
            schedules: as returned by `admit`.
            change: number of the change, to announce it to the processes.

        Raises:
            OSError: the spool cannot be written.
        """
        if list(schedules) == self.current:
            return
        write_schedules(self._spool, _select_by_steps(schedules))
        self.current = list(schedules)
        self._number = change

    def restore(self) -> None:
        """Write the schedules into a spool that was deleted and created again.

        Raises:
            OSError: the spool cannot be written.
        """
        write_schedules(self._spool, _select_by_steps(self.current))

    def announce(self, processes: Iterable[TrainingProcess]) -> None:
        """Announce a change to the processes."""
        for process in processes:
            process.announce_schedules(self._number)

    def open(self, alive: list[TrainingProcess], now_ns: int) -> None:
        """Assign the windows that are due."""
        by_steps = _select_by_steps(self.current)
        by_time = (schedule for schedule in self.current if schedule.first_step is None)
        self.until_ns = min(
            self._open_at_step(by_steps, alive),
            *(self._open_at_time(schedule, alive, now_ns) for schedule in by_time),
            math.inf,
        )

    def _open_at_step(
        self, schedules: list[ScheduledWindows], alive: list[TrainingProcess]
    ) -> float:
        """Assign the next window for libkineto, if there is time for it and the step time is known.

        The processes open it themselves otherwise. A later window is not assigned before it: it
        would keep the process busy.

        Returns:
            Nanoseconds until the window; inf without one.
        """
        last_step = max(process.steps for process in alive)
        following = next_window(schedules, last_step + 1)
        if following is None:
            return math.inf
        windows, first_step = following
        step_ns = min((process.step_ns or 0.0) for process in alive)
        until_ns = (first_step - windows.warmup_count - last_step) * step_ns
        lead_ns = self._planner.lead_ns(alive)
        is_due = lead_ns <= until_ns < lead_ns + max(SCHEDULE_MARGIN_NS, step_ns)
        if is_due and all(process.is_warm and not process.is_busy for process in alive):
            self._planner.assign_scheduled(windows, alive, first_step)
        return until_ns

    def _open_at_time(
        self, schedule: schema.WindowSchedule, alive: list[TrainingProcess], now_ns: int
    ) -> float:
        """Assign the next window when it is due; returns the nanoseconds until it."""
        index = self._find_index(schedule, alive[0])
        if index >= _count_windows(schedule):
            return math.inf
        lead_ns = self._planner.lead_ns(alive)
        waited_ns = now_ns - max(process.found_ns for process in alive)
        has_step_times = all(process.step_ns for process in alive) or waited_ns > lead_ns
        start_ns = self._started_ns + round(1e9 * _start_s(schedule, index))
        until_ns = start_ns - now_ns
        if until_ns >= lead_ns or not has_step_times:
            return until_ns
        name = f"{name_windows(schedule)}{index + 1}"
        if any(process.is_busy for process in alive):
            if until_ns <= 0:
                self._next_index[name_windows(schedule)] = index + 1
                self.notes[name] = (
                    f"scheduled window {index + 1} was skipped: another window was still open"
                )
            return until_ns
        start = self._requests.agree(name, self._planner.find_start(alive))
        self._planner.assign(_make_spec(schedule, name), alive, start)
        self._next_index[name_windows(schedule)] = index + 1
        return until_ns

    def _find_index(self, schedule: schema.WindowSchedule, process: TrainingProcess) -> int:
        """Find the number of windows of a schedule before the next one."""
        prefix = name_windows(schedule)
        if prefix not in self._next_index:
            # An earlier monitor may have planned some.
            names = (plan.request or "" for plan in process.plans())
            planned = [int(n.removeprefix(prefix)) for n in names if n.startswith(prefix)]
            self._next_index[prefix] = max(planned, default=0)
        late_s = schedule.min_start - (schedule.start_s or 0)
        passed_count = 0 if late_s <= 0 else math.ceil(late_s / (schedule.interval or math.inf))
        return max(self._next_index[prefix], passed_count)


def _start_s(schedule: schema.WindowSchedule, index: int) -> float:
    return (schedule.start_s or 0) + index * (schedule.interval or 0)


def _count_windows(schedule: schema.WindowSchedule) -> float:
    if schedule.interval is None:
        return 1
    return math.inf if schedule.repeat_count is None else schedule.repeat_count


def _select_by_steps(schedules: Iterable[schema.WindowSchedule]) -> list[ScheduledWindows]:
    return [ScheduledWindows.copy(s) for s in schedules if s.first_step is not None]


def _follows(schedule: schema.WindowSchedule) -> bool:
    """Return True if a window of a schedule in time starts at its earliest start or later."""
    last = _count_windows(schedule) - 1
    return last == math.inf or _start_s(schedule, int(last)) >= schedule.min_start


def _make_spec(schedule: schema.WindowSchedule, name: str) -> WindowSpec:
    seconds = schedule.duration_s
    return WindowSpec(
        reason="scheduled",
        depth=schedule.depth,
        options=tuple(schedule.options),
        duration_ns=None if seconds is None else round(1e9 * seconds),
        request=name,
    )


F = TypeVar("F", schema.WindowFact, schema.WindowMissedFact)


def name_windows(schedule: schema.WindowSchedule) -> str:
    """Return the common part of the names of the windows of a schedule in time.

    The name is that of the agreement of all nodes on the start; the number of the window follows.
    """
    return f"scheduled-{schedule.start_s}-"


def describe_scheduled(
    schedules: Sequence[schema.WindowSchedule],
    processes: Iterable[schema.ProcessInfo],
    last_step: int,
) -> list[str]:
    """Describe what differs from the schedules after the end of the job, each difference once.

    Args:
        schedules: those that applied at the end of the job.
        processes: training processes of the node.
        last_step: number of the latest step of the job, from 0.
    """
    processes = list(processes)
    notes: list[str] = []
    attempted: list[schema.WindowSchedule | None] = []
    for window in _select_scheduled(processes, schema.WindowFact):
        schedule = _find_schedule(schedules, window.planned_first_step, window.request)
        attempted.append(schedule)
        if window.deviation:
            notes.append(_describe_deviation(schedule, window))
    for missed in _select_scheduled(processes, schema.WindowMissedFact):
        schedule = _find_schedule(schedules, missed.first_step, missed.request)
        attempted.append(schedule)
        step_count = None if schedule is None else schedule.step_count
        plan = _describe_plan(schedule, missed.first_step, step_count)
        notes.append(f"{plan} was not recorded: {missed.why}")
    notes += [_describe_absence(s, last_step) for s in schedules if s not in attempted]
    return list(dict.fromkeys(notes))


def _select_scheduled(processes: Iterable[schema.ProcessInfo], kind: type[F]) -> list[F]:
    facts = (fact for process in processes for fact in process.facts_of(kind))
    return [fact for fact in facts if fact.reason == "scheduled"]


def _find_schedule(
    schedules: Iterable[schema.WindowSchedule], first_step: int | None, request: str | None
) -> schema.WindowSchedule | None:
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
    schedule: schema.WindowSchedule | None, first_step: int | None, step_count: int | None
) -> str:
    if schedule is not None and schedule.start_s is not None:
        return f"the window scheduled for {duration(1e9 * schedule.start_s)} after the start"
    return f"the window scheduled for {_format_steps(first_step or 0, step_count or 1)}"


def _describe_absence(schedule: schema.WindowSchedule, last_step: int) -> str:
    """Describe that the job ended before the first window of a schedule."""
    end, first_step = "the job ended before it could start", None
    if schedule.first_step is not None:
        first_step = ScheduledWindows.copy(schedule).next_start(0)
        if last_step:
            end = f"the job ended in step {last_step}"
    return f"{_describe_plan(schedule, first_step, schedule.step_count)} was not recorded: {end}"


def _describe_deviation(schedule: schema.WindowSchedule | None, fact: schema.WindowFact) -> str:
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
