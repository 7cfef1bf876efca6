"""Samplers that an adapter starts with the first step of a process."""

from __future__ import annotations

from stepscope.capture import garbage, stacks
from stepscope.capture.guard import Probe

_probe = Probe("stack samples and garbage collections")


@_probe.protect
def watch_training() -> None:
    """Sample the stacks of this thread, and record garbage collections. To call after every step,
    because a fork of the job stops the sampler."""
    stacks.watch_this_thread(stacks.MAIN_PERIOD_S)
    garbage.watch_this_process()
