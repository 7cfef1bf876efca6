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
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepscope.monitor.windows.kineto_peer import KinetoPeer
from stepscope.monitor.windows.training_processes import TrainingProcess
from stepscope.spool import (
    Depth,
    Recorder,
    ScheduledWindows,
    WindowPlan,
    limit_duration,
    window_file,
)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """Specification of a window, without its start."""

    reason: str
    depth: str = Depth.FULL
    options: tuple[str, ...] = ()
    step_count: int | None = None
    duration_ns: int | None = None
    request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStart:
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
        intervals = [MAX_POLL_S if self._by_duration else DEFAULT_POLL_S]
        if self._peer is not None:
            measured = [self._peer.poll_interval_s(process.pid) for process in processes]
            intervals += [
                min(interval, MAX_POLL_S) for interval in measured if interval is not None
            ]
        has_other_nodes = any(process.world_size > len(processes) for process in processes)
        polls = LEAD_POLLS + self._by_duration  # a late response counts for the next request
        seconds = polls * max(intervals) + LEAD_S + TIMED_WARMUP_S * self._by_duration
        return round(1e9 * (seconds + NODE_AGREEMENT_S * has_other_nodes))

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
        self, windows: ScheduledWindows, processes: Iterable[TrainingProcess], first_step: int
    ) -> None:
        """Assign the window of a schedule that starts at a step to the processes in which libkineto
        can record it. The others open it themselves.

        Raises:
            OSError: a spool directory cannot be written.
        """
        for process in processes:
            if "memory" not in windows.options and self.is_served_by_libkineto(process):
                number, step_ns = process.plan_count, process.step_ns
                plan = windows.plan(number, first_step, Recorder.LIBKINETO, step_ns)
                self._assign(process, plan)

    def _assign(self, process: TrainingProcess, plan: WindowPlan) -> None:
        process.assign(plan)
        if plan.recorder == Recorder.LIBKINETO:
            self._offer(process, plan)

    def resume(self, process: TrainingProcess) -> None:
        """Offer the plans again that an earlier monitor may not have delivered."""
        for plan in process.plans():
            if process.is_waiting_for(plan) and plan.recorder == Recorder.LIBKINETO:
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
    ) -> WindowPlan:
        steps, timeout_ns = spec.step_count, spec.duration_ns
        if steps is None and timeout_ns is not None and start.first_step is not None:
            # Complete steps, the same number on every rank.
            steps = max(1, math.ceil(timeout_ns / (process.step_ns or timeout_ns)))
            timeout_ns = None
        if steps is not None and timeout_ns is None and process.step_ns is not None:
            timeout_ns = limit_duration(steps, process.step_ns)
        return WindowPlan(
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
            return Recorder.LIBKINETO
        is_available = self.is_served_by_libkineto(process) and "memory" not in spec.options
        is_automatic = spec.reason == "automatic"
        return Recorder.LIBKINETO if is_available and not is_automatic else Recorder.PROFILER

    def is_served_by_libkineto(self, process: TrainingProcess) -> bool:
        """Check whether the process's libkineto polls the daemon."""
        if self._peer is None:
            return False
        last_s = self._peer.last_poll(process.pid)
        interval_s = self._peer.poll_interval_s(process.pid) or DEFAULT_POLL_S
        return last_s is not None and time.monotonic() - last_s < MAX_MISSED_POLLS * interval_s + 1

    def _offer(self, process: TrainingProcess, plan: WindowPlan) -> None:
        if self._peer is not None:
            make = make_timed_configuration if self._by_duration else make_configuration
            self._peer.offer(process.pid, make(plan, str(process.directory)))
            self._offers[process.pid] = process, plan.number


def make_configuration(plan: WindowPlan, directory: str) -> str:
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


def make_timed_configuration(plan: WindowPlan, directory: str) -> str:
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


def _write_configuration(plan: WindowPlan, directory: str, limits: dict[str, str]) -> str:
    options = plan.options
    keys = {"ACTIVITIES_LOG_FILE": window_file(directory, plan.number), **limits}
    if plan.depth == Depth.LIGHT:
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
