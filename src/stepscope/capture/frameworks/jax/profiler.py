"""Windows with JAX's profiler."""

from __future__ import annotations

from typing import Any

import jax

from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.jax import calls
from stepscope.capture.frameworks.tables import JAX
from stepscope.capture.frameworks.xplane import XPlaneProfiler, guard_start
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch_in_place

_probe = Probe("windows of JAX", coarse=True)


@_probe.protect
def install() -> None:
    """Follow the monitor's plans, unless windows are disabled."""
    if not windows.is_enabled():
        return
    state = JAX.find("profile_state")
    if state is not None:
        windows.install(JaxProfiler(state))
        patch_in_place(jax.profiler.start_trace, guard_start)


class JaxProfiler(XPlaneProfiler):
    """Profiler of JAX.

    Args:
        state: JAX's own state of its profiler.
    """

    framework = "JAX"

    def __init__(self, state: Any) -> None:
        self._state = state

    def start(self, directory: str, *, host_level: int, python_level: int) -> None:
        """Start recording."""
        make_options = JAX.find("profile_options")
        if make_options is None:
            JAX.tell()
            jax.profiler.start_trace(directory)
            return
        options = make_options()
        options.host_tracer_level, options.python_tracer_level = host_level, python_level
        jax.profiler.start_trace(directory, profiler_options=options)

    def stop(self) -> None:
        """Stop recording and write the file."""
        jax.profiler.stop_trace()

    def is_active(self) -> bool:
        """Return True while the job records a trace."""
        return self._state.profile_session is not None

    def will_train(self) -> bool:
        """Return True if the process has called compiled functions."""
        return calls.has_calls()
