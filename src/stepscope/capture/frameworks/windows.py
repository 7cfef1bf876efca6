"""Detailed windows of a few steps, opened and closed at step boundaries.

The monitor plans windows and writes a plan into the directory of the process; this module opens and
closes the window exactly at step boundaries, on every rank at the same step. Recorders are those of
the framework that trains: PyTorch's libkineto, in its threads, or the framework's profiler. Steps
in a window are marked with a span and excluded from all step statistics.

Windows that are scheduled by steps are in the spool before the job starts; the heartbeat announces
later changes. The monitor plans them for libkineto if there is time for it; otherwise this module
opens them itself, at exactly their step, with the framework's profiler.

A process can have only one active profiler. While the job uses one, a window waits; when the job
starts one during a window, the window is closed first.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from stepscope.capture import session
from stepscope.capture.frameworks.profilers import FrameworkProfiler, WindowRecorder
from stepscope.capture.frameworks.progress import NEVER, Idle, progress
from stepscope.capture.guard import OpenSpan, Probe
from stepscope.spool import (
    BOUNDARY_WORD,
    DATA_WAIT_WORD,
    ISSUED_WORD,
    STEPS_WORD,
    Heartbeat,
    Kind,
    Recorder,
    ScheduledWindows,
    WindowPlan,
    WindowState,
    next_window,
    read_schedules,
)

WINDOW_VARIABLE = "STEPSCOPE_WINDOW"
START_TIMEOUT_NS = 30_000_000_000
"""Maximum time that a window due to start waits for its recorder, or for the job's profiler."""
FINISH_TIMEOUT_S = 30.0
"""Maximum time that the job's exit, or its profiler, waits for the file of a window."""

_probe = Probe("detailed windows", coarse=True)
_heartbeat_probe = Probe("the progress of training", coarse=True)
_close_probe = Probe("the end of detailed windows", coarse=True)
"""A separate probe, because the job cannot exit with an open window if the other one has failed."""
_now = time.monotonic_ns
T = TypeVar("T")


def install(profiler: FrameworkProfiler) -> None:
    """Follow the monitor's plans with the profiler of a framework.

    A process has one window at a time, also where several frameworks are imported.
    """
    _follower.profilers.append(profiler)
    if len(_follower.profilers) > 1:
        return
    beat = _heartbeat_probe.protect(_follower.beat)
    follow_plans = _probe.protect(_follower.follow_plans)
    progress.on_boundary(beat, Idle)
    progress.on_boundary(follow_plans, _follower.find_idle)
    for act in (beat, follow_plans):
        progress.on_work(act)
    os.register_at_fork(after_in_child=_close_probe.protect(_follower.leave_to_parent))


def is_enabled() -> bool:
    """Return True unless windows are disabled."""
    return os.environ.get(WINDOW_VARIABLE) != "off"


def is_open() -> bool:
    """Return True while a window is prepared or records."""
    return _follower.is_open


def is_opening() -> bool:
    """Return True while a recorder starts the framework's profiler."""
    return _follower.opening


def finish(reason: str = "the recording ended") -> None:
    """Close an open window and wait for its file.

    Args:
        reason: why it ends now, as a clause.
    """
    _close_probe.protect(_follower.close)(reason)


class Window:
    """A plan in progress. It ends if its recorder fails; later plans are carried out."""

    def __init__(
        self, plan: WindowPlan, profiler: FrameworkProfiler, directory: str, heartbeat: Heartbeat
    ) -> None:
        self.plan = plan
        self.prepared = False
        self._profiler = profiler
        self._directory = directory
        self._heartbeat = heartbeat
        self._probe = Probe(f"detailed window {plan.number}", coarse=True)
        self._advance_protected = self._probe.protect(self._advance)
        self._thread = threading.get_ident()
        self._due_ns = 0
        self._first_step = 0
        self._start_ns = 0
        self._span: OpenSpan | None = None
        self._obstacle = "its process learned of it too late"
        self.state = WindowState.NONE
        self._enter(WindowState.WAITING)

    @functools.cached_property
    def _recorder(self) -> WindowRecorder:
        return self._profiler.make_recorder(self.plan, self._directory)

    def advance(self, step: int, now: int) -> None:
        """Do the work that is due at a step boundary.

        Args:
            step: number of steps that have ended.
            now: monotonic nanoseconds.
        """
        if self._is_owner_thread():
            self._advance_protected(step, now)
            self._end_if_failed()

    def close(self, reason: str) -> None:
        """End the window now and wait for its file.

        Args:
            reason: why it ends now, as a clause.
        """
        self._probe.protect(self._close)(reason)
        self._end_if_failed()

    def _end_if_failed(self) -> None:
        if self._probe.alive or self.state == WindowState.OVER:
            return
        _probe.abandon(self._span)
        self._miss("its recorder failed")
        if self.prepared:
            _close_probe.protect(self._recorder.release)()

    def _advance(self, step: int, now: int) -> None:
        if self.state == WindowState.WAITING:
            self._wait(step, now)
        elif self.state == WindowState.RECORDING:
            self._record(step, now)
        if self.state == WindowState.WRITING and self._recorder.is_written():
            self._end()

    def is_scheduled_for(self, step: int) -> bool:
        """Return True if this is the window of the schedule that starts at a step."""
        return self.plan.reason == "scheduled" and self.plan.first_step == step

    def _is_owner_thread(self) -> bool:
        """Return True if this thread may advance the window: operator callbacks are per thread."""
        thread = threading.get_ident()
        if thread != self._thread and self._thread not in {t.ident for t in threading.enumerate()}:
            self._thread = thread  # the thread that started the window has ended
        return thread == self._thread

    def _close(self, reason: str) -> None:
        step = progress.finished_step_count
        if self.prepared and self.state == WindowState.WAITING:
            self._start(step, _now())
        if self.state == WindowState.RECORDING:
            self._stop(step, reason)
        if self.state == WindowState.WRITING:
            if not self._recorder.finish(FINISH_TIMEOUT_S):
                _probe.fact("window_unfinished", number=self.plan.number, after_s=FINISH_TIMEOUT_S)
                return
            self._end()

    def _wait(self, step: int, now: int) -> None:
        plan = self.plan
        if self.prepared:
            if plan.first_step is None or step >= plan.first_step:
                self._start(step, now)
            return
        warm_up = max(self._recorder.warm_up_steps, plan.warmup_steps)
        is_early = plan.first_step is not None and step < plan.first_step - warm_up
        if is_early or now < plan.start_ns:
            return
        self._due_ns = self._due_ns or now
        is_busy = self._profiler.is_active()
        if is_busy:
            self._obstacle = "the job's own profiler was active"
        if not is_busy and _open(self._recorder.prepare):
            self.prepared = True
            if not warm_up:
                self._start(step, now)
            return
        if not is_busy:
            self._obstacle = "libkineto did not respond in time"
        if now - self._due_ns > START_TIMEOUT_NS:
            self._miss(self._obstacle)

    def _miss(self, why: str) -> None:
        plan = self.plan
        _probe.fact(
            "window_missed",
            number=plan.number,
            first_step=plan.first_step,
            reason=plan.reason,
            request=plan.request,
            why=why,
        )
        self._enter(WindowState.OVER)

    def _start(self, step: int, now: int) -> None:
        self._span = _probe.start(Kind.WINDOW, self.plan.reason, self.plan.number)
        _open(self._recorder.start)
        self._first_step, self._start_ns = step, now
        self._enter(WindowState.RECORDING)

    def _record(self, step: int, now: int) -> None:
        plan = self.plan
        has_all_steps = plan.steps is not None and step - self._first_step >= plan.steps
        is_too_long = plan.longest_ns is not None and now - self._start_ns >= plan.longest_ns
        if has_all_steps or is_too_long:
            self._stop(step, "the steps took too long")

    def _stop(self, step: int, reason: str) -> None:
        _probe.end(self._span)
        self._span = None
        recording = _probe.start(Kind.MODE, "RECORDING")
        try:
            self._recorder.stop()
        finally:
            _probe.end(recording)
        plan, step_count = self.plan, step - self._first_step
        is_late = plan.first_step is not None and self._first_step > plan.first_step
        is_short = plan.steps is not None and step_count < plan.steps
        reasons = [self._obstacle] * is_late + [reason] * is_short
        _probe.fact(
            "window",
            number=plan.number,
            reason=plan.reason,
            recorder=self._recorder.kind,
            depth=plan.depth,
            options=list(plan.options),
            first_step=self._first_step,
            step_count=step_count,
            request=plan.request,
            planned_first_step=plan.first_step,
            planned_step_count=plan.steps,
            deviation=" and ".join(reasons) or None,
        )
        self._enter(WindowState.WRITING)

    def _end(self) -> None:
        self._enter(WindowState.OVER)
        self._recorder.release()

    def _enter(self, state: int) -> None:
        self.state = state
        self._heartbeat.window = self.plan.number, state


class _Follower:
    """Writer of the heartbeat, which carries out one plan after another."""

    def __init__(self) -> None:
        self.profilers: list[FrameworkProfiler] = []
        self.opening = False
        """True while a recorder of stepscope starts the framework's profiler."""
        self._generation = 0
        self._directory = ""
        self._heartbeat: Heartbeat | None = None
        self._is_new_process = False
        self._plans_read = 0
        self._issued_word = 0
        """Last value of the word that the monitor writes, and its parts: the number of the
        schedules, and that of the plans."""
        self._schedule_number = 0
        self._plans_issued = 0
        self._window: Window | None = None
        self._spool = ""
        self._schedules: list[ScheduledWindows] = []
        self._due_step: float = math.inf
        """Step at which the next scheduled window warms up or starts; inf without one."""
        self._next: tuple[ScheduledWindows, int] | None = None
        """Schedule and first step of that window."""
        self._pace_start: tuple[int, int] | None = None
        """Number and time of the first step boundary; None before it."""
        self._has_exit_handler = False

    @property
    def is_open(self) -> bool:
        """True while a window is prepared or records."""
        return self._window is not None and self._window.prepared

    def beat(self) -> None:
        """Update the heartbeat, at a step boundary or at work without steps."""
        if self._generation != session.generation:
            self._start_generation()
        if self._heartbeat is not None:
            words, step = self._heartbeat.words, progress.step_count
            words[DATA_WAIT_WORD] = progress.data_wait_ns
            words[STEPS_WORD] = step
            words[BOUNDARY_WORD] = _now()
            progress.reports_work = not step

    def follow_plans(self) -> None:
        """Advance the window, after the heartbeat."""
        heartbeat = self._heartbeat
        if heartbeat is None or self._generation != session.generation:
            return
        if self._is_new_process:
            self._start_process()
        words, step = heartbeat.words, progress.step_count
        now = words[BOUNDARY_WORD]
        if words[ISSUED_WORD] != self._issued_word:
            self._read_issued(heartbeat, step)
        if step >= self._due_step:
            self._follow_schedule(heartbeat, step, now)
        if self._pace_start is None and step:
            self._pace_start = step, now
        window = self._window
        if window is None:
            if self._plans_issued <= self._plans_read:
                return
            window = self._next_window(heartbeat)
        if window is not None:
            window.advance(step, now)
            # Work without steps, such as a long evaluation, must not be recorded without limit.
            is_over = window.state == WindowState.OVER
            progress.reports_work = not step or (window.prepared and not is_over)
            if is_over:
                self._window = None

    def find_idle(self) -> Idle | None:
        """Return until when only the heartbeat is to be written; None while a window is planned."""
        heartbeat = self._heartbeat
        is_idle = self._window is None and self._pace_start is not None
        if heartbeat is None or self._generation != session.generation or not is_idle:
            return None
        if self._plans_issued > self._plans_read or not _heartbeat_probe.alive:
            return None
        due_step = NEVER if math.isinf(self._due_step) else int(self._due_step)
        words = heartbeat.words
        return Idle(due_step, (words, ISSUED_WORD, self._issued_word), words)

    def close(self, reason: str) -> None:
        """Close an open window of this process."""
        if self._window is not None and self._generation == session.generation:
            self._window.close(reason)
            if self._window.state == WindowState.OVER:
                self._window = None

    def close_at_exit(self) -> None:
        """Close an open window before the process exits: libkineto would crash otherwise."""
        window, is_current = self._window, self._generation == session.generation
        if window is not None and is_current:
            self.close("the job ended")
            if window.state != WindowState.OVER and window.prepared:
                for profiler in self.profilers:
                    profiler.exit_without_cleanup()

    def leave_to_parent(self) -> None:
        """Drop an open window in a forked child: it belongs to the parent."""
        if self._window is not None and self._window.prepared:
            for profiler in self.profilers:
                profiler.leave_to_parent()
        self._window = None

    def _start_generation(self) -> None:
        """Create a heartbeat page for this process, which may be a forked one."""
        self._generation = session.generation
        self._window, self._heartbeat, self._plans_read = None, None, 0
        self._issued_word = self._schedule_number = self._plans_issued = 0
        self._due_step, self._pace_start = math.inf, None
        current = session.current()
        self._is_new_process = current is not None
        if current is not None:
            self._directory = current.directory
            self._heartbeat = Heartbeat.create(current.directory)
            self._spool = current.tree.root

    def _start_process(self) -> None:
        self._is_new_process = False
        for profiler in self.profilers:
            profiler.start_process()
        self._read_schedules(progress.step_count)

    def _read_issued(self, heartbeat: Heartbeat, step: int) -> None:
        """Read what the monitor has announced: plans, or a change of the schedules."""
        self._issued_word = heartbeat.words[ISSUED_WORD]
        number, self._plans_issued = heartbeat.issued
        if number != self._schedule_number:
            self._schedule_number = number
            self._read_schedules(step)

    def _read_schedules(self, step: int) -> None:
        self._schedules = read_schedules(self._spool)
        self._await_scheduled(step)

    def _await_scheduled(self, step: int) -> None:
        """Await the first scheduled window that starts at a step or later."""
        self._next = next_window(self._schedules, step)
        if self._next is None:
            self._due_step = math.inf
        else:
            schedule, start = self._next
            self._due_step = start - schedule.warmup_count

    def _follow_schedule(self, heartbeat: Heartbeat, step: int, now: int) -> None:
        """Open the scheduled window that is due, unless the monitor has planned it."""
        if self._next is None:
            return
        schedule, start = self._next
        if self._window is None and self._plans_issued > self._plans_read:
            self._next_window(heartbeat)
        if self._window is None:
            if not step and not any(profiler.will_train() for profiler in self.profilers):
                return
            step_ns = None
            if self._pace_start is not None and step > self._pace_start[0]:
                step_ns = (now - self._pace_start[1]) / (step - self._pace_start[0])
            plan = schedule.plan(self._plans_read, start, Recorder.PROFILER, step_ns)
            try:
                plan.write(self._directory)
            except FileExistsError:  # the monitor has just written one, which is the next
                pass
            self._next_window(heartbeat)
        window = self._window
        is_open = window is not None and window.is_scheduled_for(start)
        if not is_open and step < start:
            return
        if not is_open:
            why = "another window was still open"
            _probe.fact("window_missed", first_step=start, reason="scheduled", why=why)
        self._await_scheduled(max(step, start) + 1)

    def _next_window(self, heartbeat: Heartbeat) -> Window | None:
        number = self._plans_read
        self._plans_read += 1
        plan = WindowPlan.read(self._directory, number)
        if plan is None:
            return None
        if not self._has_exit_handler:
            self._has_exit_handler = True
            atexit.register(_close_probe.protect(self.close_at_exit))
        self._window = Window(plan, self._choose_profiler(plan), self._directory, heartbeat)
        return self._window

    def _choose_profiler(self, plan: WindowPlan) -> FrameworkProfiler:
        """Choose the profiler of the framework that trains, or else works, or that the plan names.

        Of several, it is that of the framework that was imported first.
        """
        return max(
            self.profilers,
            key=lambda p: (p.will_train(), p.has_worked(), plan.recorder in p.recorders),
        )


_follower = _Follower()


def _open(action: Callable[[], T]) -> T:
    """Call a recorder that may start the framework's profiler for a window."""
    _follower.opening = True
    recording = _probe.start(Kind.MODE, "RECORDING")
    try:
        return action()
    finally:
        _follower.opening = False
        _probe.end(recording)
