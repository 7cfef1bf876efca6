"""Check of losses that never waits for a device."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.device_clock import is_capturing
from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies

MAX_COPIES = 16
"""Losses on their way from a device; more are not checked meanwhile."""


class LossWatch:
    """Watch over the losses of a process.

    Args:
        notify: takes the step and value of a loss that is not finite.
    """

    def __init__(self, notify: Callable[[int, float], None]) -> None:
        self._notify = notify
        self._copies: HostCopies[int] = HostCopies()

    def add(self, loss: torch.Tensor) -> None:
        """Check a loss, one on a device at a later call."""
        for step, (copy,) in self._copies.take_arrived():
            self._check(step, copy.item())
        is_inside_transform = torch._C._functorch.maybe_current_level() is not None
        if is_inside_transform or loss.is_meta or loss.numel() != 1 or is_capturing():
            return
        if not loss.is_floating_point():
            return
        if loss.device.type == "cpu":
            self._check(progress.step_count, loss.item())
        elif len(self._copies) < MAX_COPIES:
            self._copies.start(progress.step_count, [loss.detach()])

    def finish(self) -> None:
        """Check the losses that still arrive in time; the process ends."""
        for step, (copy,) in self._copies.await_arrival():
            self._check(step, copy.item())

    def _check(self, step: int, value: float) -> None:
        if not math.isfinite(value):
            self._notify(step, value)
