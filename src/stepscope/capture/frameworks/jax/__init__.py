"""Steps and phases of an unmodified JAX script.

`install` runs once, right after `import jax`. It replaces `jax.jit` by a function whose results
behave like those of the original and record their calls; and methods of arrays that wait for the
device. Functions that JAX itself compiles, such as those of `jax.numpy`, are left alone, and under
a transformation (`jit`, `grad`, `vmap`, `scan`) the originals run.

    calls           calls of compiled functions, of which one ends steps; compilations
    device_times    when the device is busy, and waits of the host for results
    profiler        recorder of windows: `jax.profiler`
"""

from __future__ import annotations

import jax

from stepscope.capture import session
from stepscope.capture.frameworks.jax import calls, device_times, profiler
from stepscope.capture.frameworks.progress import progress, record_versions, watch_steps
from stepscope.capture.guard import Probe
from stepscope.job_environment import read_ranks

_probe = Probe("JAX")


def install() -> None:
    """Patch the imported jax."""
    for install_part in (
        calls.install, device_times.install_waits, calls.install_compilations, profiler.install,
    ):  # fmt: skip
        _probe.protect(install_part)()
    watch_steps()
    record_versions(lambda: {"jax": jax.__version__})
    progress.on_some_boundaries(_probe.protect(_record_rank))


def _record_rank() -> None:
    """Record the rank of a process that JAX has joined to others since its start."""
    current, count = session.current(), jax.process_count()
    if current is not None and count > 1 and read_ranks().rank is None:
        _probe.fact("rank", rank=jax.process_index(), world_size=count)
