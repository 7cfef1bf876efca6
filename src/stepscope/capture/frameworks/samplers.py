"""Samplers that watch the training thread of any framework, from its first step on."""

from __future__ import annotations

from stepscope.capture import garbage, stacks
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.guard import Probe

_probe = Probe("garbage collections")
_installed = False


def install() -> None:
    """Start the samplers at step boundaries. Idempotent."""
    global _installed
    if _installed:
        return
    _installed = True
    progress.on_boundary(_watch_stacks)
    progress.on_some_boundaries(_probe.protect(garbage.watch_this_process))


def _watch_stacks() -> None:
    """Start the stack sampler. Called at every step, because a fork of the job stops it."""
    stacks.watch_this_thread(stacks.MAIN_PERIOD_S)
