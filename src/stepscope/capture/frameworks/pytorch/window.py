"""A few steps under the framework's own profiler, once per run, where coarse times need it.

Phases say that a step is spent computing, not whether in large operators or in the overhead
around thousands of small ones. Unless the job plainly waits for data, rank 0 profiles a few
steps past warm-up; the monitor turns the profiler's file into a table. Steps inside the window
are marked and left out of all step statistics. There is one profiler in a process: where the job
uses its own, the window stays shut, or shuts at once.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from stepscope.capture import session
from stepscope.capture.frameworks.pytorch.copies import device_driver_present
from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.guard import OpenSpan, Probe
from stepscope.spool import Kind

WINDOW_VARIABLE = "STEPSCOPE_WINDOW"
FIRST_STEP = 12
WARM_STEPS = 5
MIN_TRAINING_NS = 1_000_000_000
WINDOW_STEPS = 3
LONG_WINDOW_NS = 2_000_000_000
MAX_DATA_WAIT_SHARE = 0.5

_probe = Probe("the profiler window", coarse=True)
_now = time.monotonic_ns


def install() -> None:
    """Watch step boundaries for the moment to open the window."""
    if os.environ.get(WINDOW_VARIABLE, "auto") == "auto" and os.environ.get("RANK", "0") == "0":
        progress.on_boundary(_probe.protect(_AutomaticWindow().on_boundary))


class _AutomaticWindow:
    def __init__(self) -> None:
        self._done = False
        self._warm_ns = 0
        self._warm_wait_ns = 0
        self._profiler: Any = None
        self._prepare: Any = None
        self._opened_ns = 0
        self._opened_step = 0
        self._span: OpenSpan | None = None

    def on_boundary(self) -> None:
        if self._done:
            return
        step, now = progress.step_count, _now()
        if self._profiler is not None:
            steps = step - self._opened_step
            if steps >= WINDOW_STEPS or now - self._opened_ns > LONG_WINDOW_NS:
                self._close()
        elif step == WARM_STEPS:
            self._warm_ns, self._warm_wait_ns = now, progress.data_wait_ns
        elif step >= FIRST_STEP and now - self._warm_ns >= MIN_TRAINING_NS:
            waited = progress.data_wait_ns - self._warm_wait_ns
            if waited < MAX_DATA_WAIT_SHARE * (now - self._warm_ns):
                self._open()

    def _open(self) -> None:
        if torch._C._autograd._profiler_enabled():  # the job profiles itself: leave it alone
            self._done = True
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device_driver_present():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(activities=activities)
        self._span = _probe.begin(Kind.WINDOW, "automatic", 0)
        profiler.start()
        self._profiler = profiler
        self._opened_ns, self._opened_step = _now(), progress.step_count
        self._watch_for_others()

    def _watch_for_others(self) -> None:
        """While the window is open, have it shut before a profiler of the job's own starts."""
        self._prepare = prepare = torch.autograd.profiler.profile._prepare_trace

        def prepare_trace(profiler: Any) -> None:
            self._give_way()
            prepare(profiler)

        torch.autograd.profiler.profile._prepare_trace = prepare_trace

    def _give_way(self) -> None:
        if self._profiler is not None:
            _probe.protect(self._close)(keep=False)

    def _close(self, *, keep: bool = True) -> None:
        profiler, self._profiler = self._profiler, None
        self._done = True
        torch.autograd.profiler.profile._prepare_trace = self._prepare
        try:
            profiler.stop()
            current = session.current()
            if keep and current is not None:
                path = f"{current.directory}/window-0.json"
                profiler.export_chrome_trace(path + ".new")
                os.rename(path + ".new", path)
        finally:
            _probe.end(self._span)
