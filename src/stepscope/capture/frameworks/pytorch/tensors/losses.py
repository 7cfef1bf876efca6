"""Losses: the values of the tensors on which the script calls `backward()`.

They are written as scalars, at every backward pass. A loss on a device is copied into a buffer
there; the buffer is copied to pinned memory when it is full, or older than a second, and read when
that copy has ended.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.device_clock import is_capturing
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies
from stepscope.capture.frameworks.pytorch.tensors.selection import is_recorded_rank
from stepscope.capture.guard import Probe
from stepscope.spool import TensorPlan

LOSS_PREFIX = "loss/"
"""Prefix of the name of a loss; the function that computes it follows: `loss/NllLoss`."""
BUFFER_SIZE = 64
MAX_AGE_NS = 1_000_000_000
_BACKWARD = re.compile(r"Backward\d*$")
_probe = Probe("losses")


class _DeviceBuffer:
    """Losses of one device that are not copied to the host yet."""

    def __init__(self, device: torch.device) -> None:
        self._values = torch.zeros(BUFFER_SIZE, dtype=torch.float64, device=device)
        self._labels: list[tuple[str, int]] = []
        self._copies: HostCopies[list[tuple[str, int]]] = HostCopies()

    def add(self, name: str, t_ns: int, loss: torch.Tensor) -> None:
        self._values[len(self._labels)].copy_(loss)
        self._labels.append((name, t_ns))
        is_old = t_ns - self._labels[0][1] >= MAX_AGE_NS
        if is_old or len(self._labels) == BUFFER_SIZE:
            self._start_copy()
        _write_all(self._copies.take_arrived())

    def finish(self) -> None:
        """Write all losses that arrive in time, because the process ends."""
        if self._labels:
            self._start_copy()
        _write_all(self._copies.await_arrival())

    def _start_copy(self) -> None:
        self._copies.start(self._labels, [self._values])
        self._labels = []


class ScaledLosses:
    """Losses before a GradScaler has multiplied them."""

    def __init__(self) -> None:
        self._scaled: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None

    def note(self, loss: Any, scaled: Any) -> None:
        """Remember the loss that a GradScaler has multiplied."""
        if isinstance(loss, torch.Tensor) and isinstance(scaled, torch.Tensor):
            self._scaled = weakref.ref(scaled), loss

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
        self._buffers: dict[torch.device, _DeviceBuffer] = {}
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
            loss = (loss if to_local is None else to_local()).detach().reshape(())
            if loss.device.type == "cpu":
                _probe.scalar(name, loss.item(), t_ns)
                return
            buffer = self._buffers.get(loss.device)
            if buffer is None:
                buffer = self._buffers[loss.device] = _DeviceBuffer(loss.device)
            buffer.add(name, t_ns, loss)

    def finish(self) -> None:
        """Write the losses that are still on a device; the process ends."""
        for buffer in self._buffers.values():
            buffer.finish()


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


def _write_all(copies: Iterable[tuple[list[tuple[str, int]], list[torch.Tensor]]]) -> None:
    for labels, (values,) in copies:
        for (name, t_ns), value in zip(labels, values.tolist(), strict=False):
            _probe.scalar(name, value, t_ns)
