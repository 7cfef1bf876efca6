"""Losses: the values of the tensors on which the script calls `backward()`.

They are written as scalars, at every backward pass.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.device_clock import is_capturing
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.frameworks.pytorch.tensors.device_scalars import DeviceScalars
from stepscope.capture.frameworks.pytorch.tensors.selection import is_recorded_rank
from stepscope.capture.guard import Probe
from stepscope.spool import TensorPlan

LOSS_PREFIX = "loss/"
"""Prefix of the name of a loss; the function that computes it follows: `loss/NllLoss`."""
_BACKWARD = re.compile(r"Backward\d*$")
_probe = Probe("losses")


class ScaledLosses:
    """Losses before a GradScaler has multiplied them.

    A loss holds the memory of its graph, so it is kept only while the script has the scaled one.
    """

    def __init__(self) -> None:
        self._scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None

    def note(self, loss: Any, scaled: Any) -> None:
        """Remember the loss that a GradScaler has multiplied."""
        if isinstance(loss, torch.Tensor) and isinstance(scaled, torch.Tensor):
            self._scaled = weakref.ref(scaled, self._forget), loss

    def _forget(self, scaled: weakref.ref[torch.Tensor]) -> None:
        if self._scaled is not None and self._scaled[0] is scaled:
            self._scaled = None

    def unscale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss before scaling, or the loss itself if it is not the scaled one."""
        scaled, self._scaled = self._scaled, None
        return scaled[1] if scaled is not None and scaled[0]() is loss else loss


class LossRecorder:
    """Recorder of the losses of one process.

    Args:
        plan: ranks that record.
    """

    def __init__(self, plan: TensorPlan) -> None:
        self._plan = plan
        self._scalars = DeviceScalars(_probe)
        self._scaled = ScaledLosses()
        self.note_scaled = self._scaled.note

    def add(self, outputs: Any) -> None:
        """Record the loss of a backward pass; a tensor with more elements is none.

        Args:
            outputs: the tensors on which the script calls `backward()`.
        """
        if not isinstance(outputs, tuple | list) or len(outputs) != 1:
            return
        if not is_recorded_rank(self._plan):
            return
        loss, t_ns = self._scaled.unscale(outputs[0]), time.monotonic_ns()
        # Inside `torch.func` a tensor is no number.
        if torch._C._functorch.maybe_current_level() is not None or is_capturing():
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
            if loss.numel() != 1 or not loss.is_floating_point() or loss.is_meta:
                return
            function = type(loss.grad_fn).__name__ if loss.grad_fn is not None else "loss"
            name = f"{LOSS_PREFIX}{_BACKWARD.sub('', function)}"
            placements = getattr(loss, "placements", ())  # of a DTensor
            if not all(placement.is_replicate() for placement in placements):
                return  # ranks would have to communicate
            to_local = getattr(loss, "to_local", None)
            self._scalars.add(name, loss if to_local is None else to_local(), t_ns)

    def finish(self) -> None:
        """Write the losses that are still on a device; the process ends."""
        self._scalars.finish()


def patch_scaler(note_scaled: Callable[[Any, Any], None]) -> None:
    """Patch `GradScaler.scale`.

    Args:
        note_scaled: called with what is scaled and the result; must not raise.
    """

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(self: Any, outputs: Any) -> Any:
            result = original(self, outputs)
            note_scaled(outputs, result)
            return result

        return scale

    patch(torch.amp.GradScaler, "scale", make_wrapper)
