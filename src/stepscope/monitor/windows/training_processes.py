"""Training processes of the job, as their heartbeats show them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from stepscope.schema import WindowMissedFact, decode_facts
from stepscope.spool import (
    BOUNDARY_WORD,
    DATA_WAIT_WORD,
    STEPS_WORD,
    Heartbeat,
    SpoolTree,
    WindowPlan,
    WindowState,
    process_is_alive,
    read_journal,
)

OBSERVATION_NS = 500_000_000
"""Minimum time over which step times are averaged, or one step."""
UNOBSERVED_NS = 2_000_000_000
"""Time after which a process without an observation counts as one with long steps."""
WARMUP_STEPS = 5

_FINISHED = re.compile(r"window-(\d+)_\d+\.(?:json|xplane\.pb)")
_UNFINISHED = re.compile(r"window-(\d+)_\d+\.json\.tmp")


class TrainingProcess:
    """One training process."""

    def __init__(self, name: str, directory: Path, heartbeat: Heartbeat, now_ns: int) -> None:
        self.name = name
        self.directory = directory
        self.pid = int(name.partition("-")[0])
        self.rank = read_rank(directory)
        self.world_size = _read_number(directory, "world_size") or 1
        self.found_ns = now_ns
        """Time at which the monitor has found it, on the monotonic clock."""
        self.step_ns: float | None = None
        """Mean step time of the last observation."""
        self.wait_share = 0.0
        """Share of the time of the last observation spent waiting for data."""
        self.warmup_end: tuple[int, int] | None = None
        """Step boundary and data wait at the end of the first steps; None before."""
        self.is_warm = False
        """True if the last observation excludes the first steps, which may take much longer."""
        self._heartbeat = heartbeat
        self._schedule_number, self._assigned_count = heartbeat.issued
        self._mark: tuple[int, int, int] | None = None
        self._initial_steps = self.steps

    @property
    def steps(self) -> int:
        """Number of finished steps."""
        return self._heartbeat.words[STEPS_WORD]

    @property
    def boundary_ns(self) -> int:
        """Monotonic time of the last step boundary."""
        return self._heartbeat.words[BOUNDARY_WORD]

    @property
    def data_wait_ns(self) -> int:
        """Time that the training thread has waited for data."""
        return self._heartbeat.words[DATA_WAIT_WORD]

    @property
    def plan_count(self) -> int:
        """Number of plans that it has, including its own and those of an earlier monitor."""
        number, state = self._heartbeat.window
        return max(self._assigned_count, number + 1 if state else 0)

    @property
    def window_state(self) -> int:
        """`WindowState` of the last plan; NONE before the first."""
        if not self.plan_count:
            return WindowState.NONE
        number, state = self._heartbeat.window
        return state if number == self.plan_count - 1 and state else WindowState.WAITING

    @property
    def is_busy(self) -> bool:
        """True while it carries out a plan."""
        return self.window_state not in {WindowState.NONE, WindowState.OVER}

    def is_alive(self) -> bool:
        """Check whether the process runs; its pid may be reused."""
        return process_is_alive(str(self.directory))

    def assign(self, plan: WindowPlan) -> None:
        """Assign a plan, whose number becomes the next free one from `plan_count`.

        Raises:
            OSError: the spool cannot be written.
        """
        plan.number = self.plan_count
        while True:
            try:
                plan.write(str(self.directory))
                break
            except FileExistsError:  # the process has just opened a window of the schedule
                plan.number += 1
        self._assigned_count = plan.number + 1
        self._heartbeat.issued = self._schedule_number, self._assigned_count

    def announce_schedules(self, number: int) -> None:
        """Announce the schedules in the spool, which have a number, unless they are announced."""
        if number != self._schedule_number:
            self._schedule_number = number
            self._heartbeat.issued = number, self._assigned_count

    def plans(self) -> Iterator[WindowPlan]:
        """Read the assigned plans."""
        for number in range(self.plan_count):
            plan = WindowPlan.read(str(self.directory), number)
            if plan is not None:
                yield plan

    def is_waiting_for(self, plan: WindowPlan) -> bool:
        """Check whether the process has not started with one of its plans yet."""
        is_last = plan.number == self.plan_count - 1
        return is_last and self.window_state == WindowState.WAITING

    def observe(self) -> bool:
        """Read the heartbeat; True if there is a new observation of the step time."""
        steps, boundary, wait = self.steps, self.boundary_ns, self.data_wait_ns
        if self.warmup_end is None and steps >= WARMUP_STEPS:
            self.warmup_end = boundary, wait
        if self.window_state in {WindowState.RECORDING, WindowState.WRITING}:
            self._mark = None
            return False
        if self._mark is None:
            self._mark = steps, boundary, wait
            return False
        elapsed = boundary - self._mark[1]
        if steps <= self._mark[0] or elapsed < OBSERVATION_NS:
            return False
        self.step_ns = elapsed / (steps - self._mark[0])
        self.wait_share = (wait - self._mark[2]) / elapsed
        self.is_warm = self._mark[0] >= WARMUP_STEPS
        self._mark = steps, boundary, wait
        return True

    def estimate_step_ns(self, now_ns: int) -> float | None:
        """Estimate the step time: the last observation, or a lower bound without one.

        Returns:
            None if the process has been watched for too short a time.
        """
        watched_ns = now_ns - self.found_ns
        if self.step_ns is not None or watched_ns < UNOBSERVED_NS:
            return self.step_ns
        return watched_ns / (self.steps - self._initial_steps + 1)

    def read_miss_reason(self, number: int) -> str | None:
        """Read the reason why there is no file of a window; None if the process gives none."""
        try:
            lines, _ = read_journal(str(self.directory / "journal.jsonl"))
        except FileNotFoundError:
            return None
        misses = decode_facts(lines, WindowMissedFact)
        return next((miss.why for miss in misses if miss.number == number), None)


def select_stepping(processes: Iterable[TrainingProcess]) -> list[TrainingProcess]:
    """Select the processes that have finished steps; all of them if none has.

    A process next to the ranks that only runs inference would never reach the first step of a plan.
    """
    processes = list(processes)
    return [process for process in processes if process.steps] or processes


def find_training_processes(
    tree: SpoolTree, processes: dict[str, TrainingProcess], now_ns: int
) -> None:
    """Add the processes that have a heartbeat by now to *processes*."""
    for name, path in tree.process_directories().items():
        if name not in processes:
            heartbeat = Heartbeat.open(path)
            if heartbeat is not None:
                processes[name] = TrainingProcess(name, Path(path), heartbeat, now_ns)


def find_finished_windows(directory: Path) -> Iterator[tuple[int, Path]]:
    """Find the number and the path of every finished file of a process."""
    return _find_windows(directory, _FINISHED)


def close_unfinished_windows(directory: Path) -> list[int]:
    """Finish the files that an ended process has not finished; remove empty ones.

    Returns:
        Numbers of the windows whose files were empty.
    """
    lost = []
    for number, path in _find_windows(directory, _UNFINISHED):
        if path.stat().st_size:
            path.rename(path.with_suffix(""))
        else:
            path.unlink()
            lost.append(number)
    return lost


def _find_windows(directory: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
    try:
        files = sorted(directory.iterdir())
    except FileNotFoundError:
        return
    for path in files:
        match = pattern.fullmatch(path.name)
        if match is not None:
            yield int(match[1]), path


def read_rank(directory: Path) -> int | None:
    """Read the rank of a process; None without one."""
    return _read_number(directory, "rank")


def _read_number(directory: Path, field: str) -> int | None:
    """Read a number from the process's description in its journal."""
    try:
        lines, _ = read_journal(str(directory / "journal.jsonl"))
    except FileNotFoundError:
        return None
    number = next((line.get(field) for line in lines if line.get("k") == "process"), None)
    return number if isinstance(number, int) else None
