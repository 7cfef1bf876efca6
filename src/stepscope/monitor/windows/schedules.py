"""Scheduled windows of one node, and changes of the schedules while the job runs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

import msgspec

from stepscope.errors import UsageError
from stepscope.monitor.windows.planner import Planner, WindowSpec
from stepscope.monitor.windows.requests import RequestHandler
from stepscope.monitor.windows.scheduled import name_windows
from stepscope.monitor.windows.training_processes import TrainingProcess, select_stepping
from stepscope.quantities import duration, number
from stepscope.schema import WindowSchedule
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
        schedules: Iterable[WindowSchedule],
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
        self, schedules: Sequence[WindowSchedule], processes: Sequence[TrainingProcess]
    ) -> list[WindowSchedule]:
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
                    raise UsageError(
                        f"the window {number(schedule.start_s)} s after the start of the job is in "
                        f"the past: the job has run for {duration(1e9 * now_s)}, and windows "
                        f"can be added from {duration(1e9 * min_start_s)} on"
                    )
                admitted.append(added)
            else:
                added = msgspec.structs.replace(schedule, min_start=min_step)
                if ScheduledWindows.copy(added).next_start(0) is None:
                    raise UsageError(
                        f"the window after {schedule.first_step} steps is in the past: the job is "
                        f"in step {last_step}, and windows can be added from step {min_step} on"
                    )
                admitted.append(added)
        return admitted

    def replace(self, schedules: Sequence[WindowSchedule], change: int) -> None:
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
        self, schedule: WindowSchedule, alive: list[TrainingProcess], now_ns: int
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

    def _find_index(self, schedule: WindowSchedule, process: TrainingProcess) -> int:
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


def _start_s(schedule: WindowSchedule, index: int) -> float:
    return (schedule.start_s or 0) + index * (schedule.interval or 0)


def _count_windows(schedule: WindowSchedule) -> float:
    if schedule.interval is None:
        return 1
    return math.inf if schedule.repeat_count is None else schedule.repeat_count


def _select_by_steps(schedules: Iterable[WindowSchedule]) -> list[ScheduledWindows]:
    return [ScheduledWindows.copy(s) for s in schedules if s.first_step is not None]


def _follows(schedule: WindowSchedule) -> bool:
    """Return True if a window of a schedule in time starts at its earliest start or later."""
    last = _count_windows(schedule) - 1
    return last == math.inf or _start_s(schedule, int(last)) >= schedule.min_start


def _make_spec(schedule: WindowSchedule, name: str) -> WindowSpec:
    seconds = schedule.duration_s
    return WindowSpec(
        reason="scheduled",
        depth=schedule.depth,
        options=tuple(schedule.options),
        duration_ns=None if seconds is None else round(1e9 * seconds),
        request=name,
    )
