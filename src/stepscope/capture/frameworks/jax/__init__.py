"""Steps and phases of an unmodified JAX script.

`install` runs once, right after `import jax`. It replaces `jax.jit` by a function whose results
behave like those of the original and record their calls; and methods of arrays that wait for the
device. Functions that JAX itself compiles, such as those of `jax.numpy`, are left alone, and under
a transformation (`jit`, `grad`, `vmap`, `scan`) the originals run.

    calls           calls of compiled functions, of which one ends steps; compilations
    device_times    when the device is busy, and waits of the host for results

`JaxProfiler` records windows with `jax.profiler`.
"""

from __future__ import annotations

from typing import Any

import jax

from stepscope.capture import session
from stepscope.capture.frameworks import windows
from stepscope.capture.frameworks.jax import calls, device_times
from stepscope.capture.frameworks.progress import progress, record_versions, watch_steps
from stepscope.capture.frameworks.tables import JAX
from stepscope.capture.frameworks.xplane import XPlaneProfiler, guard_start
from stepscope.capture.guard import Probe, install_parts
from stepscope.capture.patching import patch_in_place
from stepscope.job_environment import read_ranks

_probe = Probe("JAX")
_window_probe = Probe("windows of JAX", coarse=True)


def install() -> None:
    """Patch the imported jax."""
    install_parts(
        "JAX",
        calls.install, device_times.install_waits, calls.install_compilations, _install_windows,
    )  # fmt: skip
    watch_steps()
    record_versions(lambda: {"jax": jax.__version__})
    progress.on_some_boundaries(_probe.protect(_record_rank))


def _record_rank() -> None:
    """Record the rank of a process that JAX has joined to others since its start."""
    current, count = session.current(), jax.process_count()
    if current is not None and count > 1 and read_ranks().rank is None:
        _probe.fact("rank", rank=jax.process_index(), world_size=count)


@_window_probe.protect
def _install_windows() -> None:
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
