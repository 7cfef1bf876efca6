"""Recorder of windows with JAX's profiler, in-process.

It writes an XPlane file, which the monitor imports. JAX writes it in the thread that stops the
profiler; that time is marked and counts for no step.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable
from typing import Any

import jax

from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.jax import calls
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Depth, Kind, WindowPlan, finished_file

SUFFIX = ".xplane.pb"

_probe = Probe("windows of JAX", coarse=True)


@_probe.protect
def install() -> None:
    """Follow the monitor's plans, unless windows are disabled."""
    if not windows.is_enabled():
        return
    from jax._src import profiler  # here, so that without it only this probe fails

    windows.install(JaxProfiler(profiler._profile_state))
    patch(profiler, "start_trace", _guarded)
    jax.profiler.start_trace = profiler.start_trace


class JaxProfiler:
    """Profiler of JAX; see `windows.FrameworkProfiler`.

    Args:
        state: JAX's own state of its profiler.
    """

    def __init__(self, state: Any) -> None:
        self._state = state

    def make_recorder(self, plan: WindowPlan, directory: str) -> windows.WindowRecorder:
        """Make the only recorder, whatever the plan names."""
        return TraceRecorder(plan, directory)

    def is_active(self) -> bool:
        """Return True while the job records a trace."""
        return self._state.profile_session is not None

    def will_train(self) -> bool:
        """Return True if the process has called compiled functions."""
        return calls.has_calls()

    def start_process(self) -> None:
        """Do nothing."""

    def exit_without_cleanup(self) -> None:
        """Do nothing: an open trace does not keep the process from exiting."""

    def leave_to_parent(self) -> None:
        """Do nothing: JAX does not work in a forked child."""


class TraceRecorder:
    """Recorder of one window."""

    warm_up_steps = 0

    def __init__(self, plan: WindowPlan, directory: str) -> None:
        self._path = finished_file(directory, plan.number, os.getpid(), SUFFIX)
        self._directory = f"{self._path}.trace"
        self._options = jax.profiler.ProfileOptions()
        self._options.python_tracer_level = int("stacks" in plan.options)
        self._options.host_tracer_level = 2 if plan.depth == Depth.FULL else 1

    def prepare(self) -> bool:
        """Return True: there is no warm-up."""
        return True

    def start(self) -> None:
        """Start recording."""
        jax.profiler.start_trace(self._directory, profiler_options=self._options)

    def stop(self) -> None:
        """Stop recording and write the file."""
        span = _probe.start(Kind.MODE, "RECORDING")
        try:
            jax.profiler.stop_trace()
            (file,) = glob.glob(f"{self._directory}/**/*{SUFFIX}", recursive=True)
            os.rename(file, self._path)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
            _probe.end(span)

    def is_written(self) -> bool:
        """Return True: `stop` has written the file."""
        return True

    def release(self) -> None:
        """Do nothing."""

    def finish(self, timeout_s: float) -> bool:
        """Return True: `stop` has written the file."""
        return True


def _guarded(original: Callable[..., Any]) -> Callable[..., Any]:
    def start_trace(*args: Any, **kwargs: Any) -> Any:
        if not windows.is_opening():
            windows.finish("the job started a profiler")
        return original(*args, **kwargs)

    return start_trace
