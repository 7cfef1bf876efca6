"""Planning of windows: the processes that record one, and the step at which it starts.

There are four reasons for a window: `automatic` (the first few steps after warm-up of rank 0,
unless the job spends most of its time waiting for data), `scheduled`, `requested` and `slower` (the
step time has increased). A `WindowSpec` describes the window; `assign` turns it into plans that
start at the same step on all ranks, far enough ahead for each rank's libkineto to poll for its
configuration. A window scheduled by steps starts at its step in any case: its processes know the
schedule, and open it themselves if it has not been assigned for libkineto.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from stepscope import schema, spool
from stepscope.monitor.windows.kineto_peer import KinetoPeer

DEFAULT_POLL_S = 1.0
MAX_POLL_S = 5.0
MAX_MISSED_POLLS = 3
"""libkineto serves a process if its last poll is at most this many intervals old."""
LEAD_POLLS = 2
LEAD_S = 0.5
TIMED_WARMUP_S = 1
"""Time for which libkineto warms up before a window that it starts by itself."""
NODE_AGREEMENT_S = 2.0
"""Time that monitors of other nodes need to read the start of a window."""
ROUND_STEPS = 10
MAX_ROUNDING_NS = 2_000_000_000
"""The first step is rounded up to a multiple of ten if ten steps take no longer than this."""
RANK_START_NS = 1_000_000_000
"""Maximum time between the starts of two ranks."""

LIGHT_ACTIVITIES = "kernel,gpu_memcpy,gpu_memset,cuda_runtime,cuda_driver,overhead"


class WindowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specification of a window, without its start."""

    reason: str
    depth: str = spool.Depth.FULL
    options: tuple[str, ...] = ()
    step_count: int | None = None
    duration_ns: int | None = None
    request: str | None = None


class WindowStart(msgspec.Struct, frozen=True, kw_only=True):
    """Start of a window: after a number of steps, and not before a monotonic time."""

    first_step: int | None
    start_ns: int = 0


class Planner:
    """Planner that assigns windows to processes.

    Args:
        peer: daemon for libkineto; None if unavailable.
        by_duration: libkineto itself ends windows after a duration.
    """

    def __init__(self, peer: KinetoPeer | None, *, by_duration: bool = False) -> None:
        self._peer = peer
        self._by_duration = by_duration
        self._offers: dict[int, tuple[TrainingProcess, int]] = {}

    def find_start(self, processes: Sequence[TrainingProcess], *, min_step: int = 0) -> WindowStart:
        """Find the earliest start of a window, at the same step of all processes.

        Args:
            min_step: minimum number of steps before the window.
        """
        now_ns = time.monotonic_ns()
        lead_ns = self.lead_ns(processes)
        stepping = [process for process in processes if process.steps]
        if not stepping:
            return WindowStart(first_step=None, start_ns=now_ns + lead_ns)
        # A process without an observation is as fast as the others: ranks wait for each other.
        estimates = [process.estimate_step_ns(now_ns) for process in stepping]
        step_times = [estimate for estimate in estimates if estimate]
        step_ns = max(1.0, min(step_times, default=float(lead_ns)))
        last_step = max(process.steps for process in stepping)
        first_step = last_step + 1 + math.ceil(lead_ns / step_ns)
        if min_step >= first_step:
            return WindowStart(first_step=min_step)
        if ROUND_STEPS * step_ns <= MAX_ROUNDING_NS:
            first_step = math.ceil(first_step / ROUND_STEPS) * ROUND_STEPS
        return WindowStart(first_step=first_step)

    def lead_ns(self, processes: Sequence[TrainingProcess]) -> int:
        """Time before a window after which every process knows its plan."""
        peer = self._peer
        measured = [] if peer is None else [peer.poll_interval_s(item.pid) for item in processes]
        has_other_nodes = any(process.world_size > len(processes) for process in processes)
        agreement_ns = round(1e9 * NODE_AGREEMENT_S * has_other_nodes)
        return make_lead_ns(measured, is_timed=self._by_duration) + agreement_ns

    def assign(
        self, spec: WindowSpec, processes: Sequence[TrainingProcess], start: WindowStart
    ) -> list[tuple[TrainingProcess, int]]:
        """Assign a window to processes; returns each with the number of its window.

        Raises:
            OSError: a spool directory cannot be written.
        """
        plans = [(process, self._make_plan(spec, process, start)) for process in processes]
        for process, plan in plans:
            self._assign(process, plan)
        return [(process, plan.number) for process, plan in plans]

    def assign_scheduled(
        self, windows: spool.ScheduledWindows, processes: Iterable[TrainingProcess], first_step: int
    ) -> None:
        """Assign the window of a schedule that starts at a step to the processes in which libkineto
        can record it. The others open it themselves.

        Raises:
            OSError: a spool directory cannot be written.
        """
        for process in processes:
            if "memory" not in windows.options and self.is_served_by_libkineto(process):
                number, step_ns = process.plan_count, process.step_ns
                plan = windows.plan(number, first_step, spool.Recorder.LIBKINETO, step_ns)
                self._assign(process, plan)

    def _assign(self, process: TrainingProcess, plan: spool.WindowPlan) -> None:
        process.assign(plan)
        if plan.recorder == spool.Recorder.LIBKINETO:
            self._offer(process, plan)

    def resume(self, process: TrainingProcess) -> None:
        """Offer the plans again that an earlier monitor may not have delivered."""
        for plan in process.plans():
            if process.is_waiting_for(plan) and plan.recorder == spool.Recorder.LIBKINETO:
                self._offer(process, plan)

    def withdraw_unused(self) -> None:
        """Withdraw offers that a process did not fetch before it gave up their plans."""
        if self._peer is None:
            return
        for pid, (process, number) in list(self._offers.items()):
            is_obsolete = process.plan_count - 1 > number or not process.is_busy
            if is_obsolete:
                self._peer.withdraw(pid)
                del self._offers[pid]

    def _make_plan(
        self, spec: WindowSpec, process: TrainingProcess, start: WindowStart
    ) -> spool.WindowPlan:
        steps, timeout_ns = spec.step_count, spec.duration_ns
        if steps is None and timeout_ns is not None and start.first_step is not None:
            # Complete steps, the same number on every rank.
            steps = max(1, math.ceil(timeout_ns / (process.step_ns or timeout_ns)))
            timeout_ns = None
        if steps is not None and timeout_ns is None and process.step_ns is not None:
            timeout_ns = spool.limit_duration(steps, process.step_ns)
        return spool.WindowPlan(
            number=process.plan_count,
            reason=spec.reason,
            recorder=self._choose_recorder(spec, process),
            depth=spec.depth,
            options=spec.options,
            first_step=start.first_step,
            steps=steps,
            start_ns=start.start_ns,
            longest_ns=timeout_ns,
            request=spec.request,
        )

    def _choose_recorder(self, spec: WindowSpec, process: TrainingProcess) -> str:
        """Choose libkineto if it is available. A process that has recorded a window with it takes a
        second or two longer to end, which is too much for an automatic window of a few steps."""
        if self._by_duration:  # only processes that poll are known, and they have no other recorder
            return spool.Recorder.LIBKINETO
        is_available = self.is_served_by_libkineto(process) and "memory" not in spec.options
        is_automatic = spec.reason == "automatic"
        return (
            spool.Recorder.LIBKINETO
            if is_available and not is_automatic
            else spool.Recorder.PROFILER
        )

    def is_served_by_libkineto(self, process: TrainingProcess) -> bool:
        """Check whether the process's libkineto polls the daemon."""
        if self._peer is None:
            return False
        last_s = self._peer.last_poll(process.pid)
        interval_s = self._peer.poll_interval_s(process.pid) or DEFAULT_POLL_S
        return last_s is not None and time.monotonic() - last_s < MAX_MISSED_POLLS * interval_s + 1

    def _offer(self, process: TrainingProcess, plan: spool.WindowPlan) -> None:
        if self._peer is not None:
            make = make_timed_configuration if self._by_duration else make_configuration
            self._peer.offer(process.pid, make(plan, str(process.directory)))
            self._offers[process.pid] = process, plan.number


def make_lead_ns(poll_intervals_s: Iterable[float | None], *, is_timed: bool) -> int:
    """Time before a window after which libkineto has its configuration in every process.

    Args:
        poll_intervals_s: the measured one of each process, None where it is unknown.
        is_timed: libkineto itself starts the window, after a warm-up.
    """
    measured = [min(interval, MAX_POLL_S) for interval in poll_intervals_s if interval is not None]
    polls = LEAD_POLLS + is_timed  # a late response counts for the next request
    longest_s = max([MAX_POLL_S if is_timed else DEFAULT_POLL_S, *measured])
    return round(1e9 * (polls * longest_s + LEAD_S + TIMED_WARMUP_S * is_timed))


def make_configuration(plan: spool.WindowPlan, directory: str) -> str:
    """Create libkineto's configuration for a plan; the process itself counts the steps.

    `PROFILE_PROFILE_MEMORY` is not among the keys: it costs time but records nothing on demand.
    Modules are named by the Python tracer, which stacks switch on, and FLOPs come from shapes.
    """
    return _write_configuration(
        plan,
        directory,
        {
            "PROFILE_START_ITERATION": "0",
            "ACTIVITIES_WARMUP_ITERATIONS": "1",
            "ACTIVITIES_ITERATIONS": "1",
        },
    )


def make_timed_configuration(plan: spool.WindowPlan, directory: str) -> str:
    """Create libkineto's configuration for a plan with a start and a duration."""
    start_ns = plan.start_ns + time.time_ns() - time.monotonic_ns()
    return _write_configuration(
        plan,
        directory,
        {
            "PROFILE_START_TIME": str(start_ns // 1_000_000),
            "ACTIVITIES_WARMUP_PERIOD_SECS": str(TIMED_WARMUP_S),
            "ACTIVITIES_DURATION_MSECS": str((plan.longest_ns or 0) // 1_000_000),
        },
    )


def _write_configuration(plan: spool.WindowPlan, directory: str, limits: dict[str, str]) -> str:
    options = plan.options
    keys = {"ACTIVITIES_LOG_FILE": spool.window_file(directory, plan.number), **limits}
    if plan.depth == spool.Depth.LIGHT:
        keys["ACTIVITY_TYPES"] = LIGHT_ACTIVITIES
    if "shapes" in options or "flops" in options:
        keys["PROFILE_REPORT_INPUT_SHAPES"] = "true"
    if "stacks" in options or "modules" in options:
        keys["PROFILE_WITH_STACK"] = "true"
    if "flops" in options:
        keys["PROFILE_WITH_FLOPS"] = "true"
    if "modules" in options:
        keys["PROFILE_WITH_MODULES"] = "true"
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def are_complete(processes: Sequence[TrainingProcess], now_ns: int) -> bool:
    """Check whether all ranks have started: no process has been found recently."""
    return bool(processes) and all(now_ns - p.found_ns >= RANK_START_NS for p in processes)


OBSERVATION_NS = 500_000_000
"""Minimum time over which step times are averaged, or one step."""
UNOBSERVED_NS = 2_000_000_000
"""Time after which a process without an observation counts as one with long steps."""
WARMUP_STEPS = 5

_FINISHED = re.compile(r"window-(\d+)_\d+\.(?:json|xplane\.pb)")
_SNAPSHOT = re.compile(r"memory-(\d+)\.pickle")
_UNFINISHED = re.compile(r"window-(\d+)_\d+\.json\.tmp")


class TrainingProcess:
    """One training process."""

    def __init__(self, name: str, directory: Path, heartbeat: spool.Heartbeat, now_ns: int) -> None:
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
        return self._heartbeat.words[spool.STEPS_WORD]

    @property
    def boundary_ns(self) -> int:
        """Monotonic time of the last step boundary."""
        return self._heartbeat.words[spool.BOUNDARY_WORD]

    @property
    def data_wait_ns(self) -> int:
        """Time that the training thread has waited for data."""
        return self._heartbeat.words[spool.DATA_WAIT_WORD]

    @property
    def plan_count(self) -> int:
        """Number of plans that it has, including its own and those of an earlier monitor."""
        number, state = self._heartbeat.window
        return max(self._assigned_count, number + 1 if state else 0)

    @property
    def window_state(self) -> int:
        """`WindowState` of the last plan; NONE before the first."""
        if not self.plan_count:
            return spool.WindowState.NONE
        number, state = self._heartbeat.window
        return state if number == self.plan_count - 1 and state else spool.WindowState.WAITING

    @property
    def is_busy(self) -> bool:
        """True while it carries out a plan."""
        return self.window_state not in {spool.WindowState.NONE, spool.WindowState.OVER}

    def is_alive(self) -> bool:
        """Check whether the process runs; its pid may be reused."""
        return spool.process_is_alive(str(self.directory))

    def assign(self, plan: spool.WindowPlan) -> None:
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

    def plans(self) -> Iterator[spool.WindowPlan]:
        """Read the assigned plans."""
        for number in range(self.plan_count):
            plan = spool.WindowPlan.read(str(self.directory), number)
            if plan is not None:
                yield plan

    def is_waiting_for(self, plan: spool.WindowPlan) -> bool:
        """Check whether the process has not started with one of its plans yet."""
        is_last = plan.number == self.plan_count - 1
        return is_last and self.window_state == spool.WindowState.WAITING

    def observe(self) -> bool:
        """Read the heartbeat; True if there is a new observation of the step time."""
        steps, boundary, wait = self.steps, self.boundary_ns, self.data_wait_ns
        if self.warmup_end is None and steps >= WARMUP_STEPS:
            self.warmup_end = boundary, wait
        if self.window_state in {spool.WindowState.RECORDING, spool.WindowState.WRITING}:
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
            lines, _ = spool.read_journal(str(self.directory / "journal.jsonl"))
        except FileNotFoundError:
            return None
        misses = schema.decode_facts(lines, schema.WindowMissedFact)
        return next((miss.why for miss in misses if miss.number == number), None)


def select_stepping(processes: Iterable[TrainingProcess]) -> list[TrainingProcess]:
    """Select the processes that have finished steps; all of them if none has.

    A process next to the ranks that only runs inference would never reach the first step of a plan.
    """
    processes = list(processes)
    return [process for process in processes if process.steps] or processes


def find_training_processes(
    tree: spool.SpoolTree, processes: dict[str, TrainingProcess], now_ns: int
) -> None:
    """Add the processes that have a heartbeat by now to *processes*."""
    for name, path in tree.process_directories().items():
        if name not in processes:
            heartbeat = spool.Heartbeat.open(path)
            if heartbeat is not None:
                processes[name] = TrainingProcess(name, Path(path), heartbeat, now_ns)


def find_finished_windows(directory: Path) -> Iterator[tuple[int, Path]]:
    """Find the number and the path of every finished file of a process."""
    return _find_captures(directory, _FINISHED)


def find_memory_snapshots(directory: Path) -> Iterator[tuple[int, Path]]:
    """Find the number and the path of every memory snapshot of a process."""
    return _find_captures(directory, _SNAPSHOT)


def close_unfinished_windows(directory: Path) -> list[int]:
    """Finish the files that an ended process has not finished; remove empty ones.

    Returns:
        Numbers of the windows whose files were empty.
    """
    lost = []
    for number, path in _find_captures(directory, _UNFINISHED):
        if path.stat().st_size:
            path.rename(path.with_suffix(""))
        else:
            path.unlink()
            lost.append(number)
    return lost


def _find_captures(directory: Path, pattern: re.Pattern[str]) -> Iterator[tuple[int, Path]]:
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
        lines, _ = spool.read_journal(str(directory / "journal.jsonl"))
    except FileNotFoundError:
        return None
    number = next((line.get(field) for line in lines if line.get("k") == "process"), None)
    return number if isinstance(number, int) else None
