"""A few steps in detail: carries out what the monitor plans, at step boundaries.

The monitor decides when (`monitor.windows`) and puts a plan into the process's directory; here
it is opened and shut exactly at step boundaries, on every rank at the same step. Two recorders do
the recording: libkineto's own threads, or the framework's profiler. Steps inside a window are
marked with a span and left out of all step statistics.

There is one profiler in a process. While the job uses its own, a window waits; when the job
starts its own during a window, the window is shut first.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.pytorch import libkineto
from stepscope.capture.frameworks.pytorch.libkineto import LibkinetoRecorder
from stepscope.capture.frameworks.pytorch.profiler import ProfilerRecorder
from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.frameworks.pytorch.replacing import replace
from stepscope.capture.guard import OpenSpan, Probe
from stepscope.spool import (
    BOUNDARY_WORD,
    DATA_WAIT_WORD,
    PLANS_WORD,
    STEPS_WORD,
    Kind,
    Pulse,
    Recorder,
    WindowPlan,
    WindowState,
)

WINDOW_VARIABLE = "STEPSCOPE_WINDOW"
PATIENCE_NS = 30_000_000_000
"""How long a window that is due waits for its recorder, or for the job's own profiler."""
FINISH_S = 30.0
"""How long the job's end, or its own profiler, waits for the file of a window."""

_probe = Probe("detailed windows", coarse=True)
_shutting = Probe("the end of detailed windows", coarse=True)
"""Has to work when the other has failed: the job could not end with a window open."""
_now = time.monotonic_ns


def install() -> None:
    """Follow the monitor's plans, unless windows are off."""
    if os.environ.get(WINDOW_VARIABLE) == "off":
        return
    libkineto.install()
    follow = _probe.protect(_follower.on_boundary)
    progress.on_boundary(follow)
    progress.on_work(follow)
    replace(torch.autograd.profiler.profile, "_prepare_trace", _guarded)
    os.register_at_fork(after_in_child=_shutting.protect(_follower.leave_to_parent))


def finish() -> None:
    """Shut what is open and wait for its file: the recording ends."""
    _shutting.protect(_follower.shut)()


class Window:
    """One plan being carried out."""

    def __init__(self, plan: WindowPlan, directory: str, pulse: Pulse) -> None:
        recorder = LibkinetoRecorder if plan.recorder == Recorder.LIBKINETO else ProfilerRecorder
        self.plan = plan
        self.prepared = False
        self._recorder = recorder(plan, directory)
        self._pulse = pulse
        self._thread = threading.get_ident()
        self._due_ns = 0
        self._first_step = 0
        self._began_ns = 0
        self._span: OpenSpan | None = None
        self.state = WindowState.NONE
        self._enter(WindowState.WAITING)

    def advance(self, step: int, now: int) -> None:
        """A step boundary: do what is due.

        Args:
            step: how many steps have ended.
            now: monotonic nanoseconds.
        """
        if not self._mine():
            return
        if self.state == WindowState.WAITING:
            self._wait(step, now)
        elif self.state == WindowState.RECORDING:
            self._record(step, now)
        if self.state == WindowState.WRITING and self._recorder.written():
            self._end()

    def _mine(self) -> bool:
        """Whether this thread may go on with it: operator callbacks are a thread's own."""
        this = threading.get_ident()
        if this != self._thread and self._thread not in {t.ident for t in threading.enumerate()}:
            self._thread = this  # the one that began it has ended
        return this == self._thread

    def shut(self) -> None:
        """End it now and wait for its file."""
        if self.prepared and self.state == WindowState.WAITING:
            self._start(progress.step_count, _now())
        if self.state == WindowState.RECORDING:
            self._stop(progress.step_count)
        if self.state == WindowState.WRITING:
            if not self._recorder.finish(FINISH_S):
                _probe.fact("window_unfinished", number=self.plan.number, after_s=FINISH_S)
                return
            self._end()

    def _wait(self, step: int, now: int) -> None:
        plan = self.plan
        if self.prepared:
            if plan.first_step is None or step >= plan.first_step:
                self._start(step, now)
            return
        warm_up = self._recorder.warm_up_steps
        early = plan.first_step is not None and step < plan.first_step - warm_up
        if early or now < plan.start_ns:
            return
        self._due_ns = self._due_ns or now
        busy = _job_profiles_itself()
        if not busy and self._recorder.prepare():
            self.prepared = True
            if not warm_up:
                self._start(step, now)
        elif now - self._due_ns > PATIENCE_NS:
            why = "the job's own profiler was at work" if busy else "libkineto did not answer"
            _probe.fact("window_missed", number=plan.number, why=why)
            self._enter(WindowState.OVER)

    def _start(self, step: int, now: int) -> None:
        self._span = _probe.begin(Kind.WINDOW, self.plan.reason, self.plan.number)
        _follower.opening = True
        try:
            self._recorder.start()
        finally:
            _follower.opening = False
        self._first_step, self._began_ns = step, now
        self._enter(WindowState.RECORDING)

    def _record(self, step: int, now: int) -> None:
        plan = self.plan
        enough = plan.steps is not None and step - self._first_step >= plan.steps
        too_long = plan.longest_ns is not None and now - self._began_ns >= plan.longest_ns
        if enough or too_long:
            self._stop(step)

    def _stop(self, step: int) -> None:
        _probe.end(self._span)
        self._recorder.stop()
        plan = self.plan
        _probe.fact(
            "window",
            number=plan.number,
            reason=plan.reason,
            recorder=plan.recorder,
            depth=plan.depth,
            options=list(plan.options),
            first_step=self._first_step,
            step_count=step - self._first_step,
            request=plan.request,
        )
        self._enter(WindowState.WRITING)

    def _end(self) -> None:
        self._recorder.release()
        self._enter(WindowState.OVER)

    def _enter(self, state: int) -> None:
        self.state = state
        self._pulse.window = self.plan.number, state


class _Follower:
    """Beats the pulse, and follows one plan after another."""

    def __init__(self) -> None:
        self.opening = False
        """True while a recorder of ours starts the framework's profiler."""
        self._generation = 0
        self._directory = ""
        self._pulse: Pulse | None = None
        self._plans_read = 0
        self._window: Window | None = None
        self._asked_at_exit = False

    def on_boundary(self) -> None:
        """A step boundary, or work in a job that has no steps."""
        if self._generation != session.generation:
            self._begin()
        pulse = self._pulse
        if pulse is None:
            return
        words, step, now = pulse.words, progress.step_count, _now()
        words[DATA_WAIT_WORD] = progress.data_wait_ns
        words[STEPS_WORD] = step
        words[BOUNDARY_WORD] = now
        progress.work_counts = not step
        window = self._window
        if window is None:
            if words[PLANS_WORD] == self._plans_read:
                return
            window = self._next_window(pulse)
        if window is not None:
            window.advance(step, now)
            # Work without steps, a long evaluation, must not be recorded for ever.
            over = window.state == WindowState.OVER
            progress.work_counts = not step or (window.prepared and not over)
            if over:
                self._window = None

    def shut(self) -> None:
        """Shut a window of this process that is open."""
        if self._window is not None and self._generation == session.generation:
            self._window.shut()
            if self._window.state == WindowState.OVER:
                self._window = None

    def shut_at_exit(self) -> None:
        """The job ends: libkineto would not survive that with a window open."""
        window, mine = self._window, self._generation == session.generation
        if window is not None and mine:
            self.shut()
            if window.state != WindowState.OVER and window.prepared:
                libkineto.end_at_once()

    def leave_to_parent(self) -> None:
        """This is a forked child: a window that is open is its parent's."""
        if self._window is not None and self._window.prepared:
            libkineto.end_at_once()
            torch._C._autograd._enable_record_function(False)  # or it records for ever, in memory
        self._window = None

    def _begin(self) -> None:
        """Make a page for this process, which may be a forked one."""
        self._generation = session.generation
        self._window, self._pulse, self._plans_read = None, None, 0
        current = session.current()
        if current is not None:
            libkineto.begin_counting()
            self._directory = current.directory
            self._pulse = Pulse.create(current.directory)

    def _next_window(self, pulse: Pulse) -> Window | None:
        number = self._plans_read
        self._plans_read += 1
        plan = WindowPlan.read(self._directory, number)
        if plan is None:
            return None
        if not self._asked_at_exit:
            self._asked_at_exit = True
            atexit.register(_shutting.protect(self.shut_at_exit))
        self._window = Window(plan, self._directory, pulse)
        return self._window


_follower = _Follower()
_jobs_profiler: weakref.ref[Any] | None = None


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    def _prepare_trace(self: Any) -> Any:
        global _jobs_profiler
        if not _follower.opening:
            finish()
            _jobs_profiler = weakref.ref(self)
        return original(self)

    return _prepare_trace


def _job_profiles_itself() -> bool:
    """True while a profiler of the job's own records, or warms up to."""
    prepared = _jobs_profiler() if _jobs_profiler is not None else None
    warming_up = prepared is not None and prepared.kineto_results is None
    return warming_up or torch._C._autograd._profiler_enabled()
