"""Samplers that an adapter starts with the first step of a process."""

from __future__ import annotations

import functools

from stepscope.capture import stacks
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe

_probe = Probe("stack samples and garbage collections")
_is_watching = False


def watch_steps() -> None:
    """Do the same as `watch_training` at every step boundary from now on. Idempotent."""
    global _is_watching
    if not _is_watching:
        _is_watching = True
        progress.on_boundary(functools.partial(stacks.watch_this_thread, stacks.MAIN_PERIOD_S))
        progress.on_some_boundaries(_probe.protect(stacks.watch_this_process))


@_probe.protect
def watch_training() -> None:
    """Sample the stacks of this thread, and record garbage collections. To call after every step,
    because a fork of the job stops the sampler."""
    stacks.watch_this_thread(stacks.MAIN_PERIOD_S)
    stacks.watch_this_process()
