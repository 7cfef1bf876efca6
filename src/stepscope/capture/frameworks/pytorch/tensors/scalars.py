"""Single numbers as scalars of the run: losses, scale of a GradScaler, clipping of gradients.

A number on a device is copied into a buffer there; the buffer is copied to pinned memory when it is
full, or older than a second, and read when that copy has ended.

Scale of a GradScaler and clipping of gradients, as scalars of the run:

    grad_scaler/scale                  scale after an update of the scaler
    gradient_clipping/norm             total norm of the gradients before `clip_grad_norm_`
    gradient_clipping/norm_ratio       that divided by its `max_norm`: above 1, it is clipped
    gradient_clipping/clipped_ratio    share of the elements that `clip_grad_value_` has left at its
                                       limit, at the steps of which tensors are recorded

Names of a second scaler, or of a second list of parameters that is clipped by itself, end in `#2`.
The script computes the scale and the norm anyway. They are read without waiting for a device.

Losses: the values of the tensors on which the script calls `backward()`. They are written as
scalars, at every backward pass. Validation losses: what loss modules return without gradients.
"""

from __future__ import annotations

import re
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.device_clock import is_capturing
from stepscope.capture.frameworks.pytorch.patching import (
    patch,
    patch_grad_scaler,
    without_functions,
)
from stepscope.capture.frameworks.pytorch.tensors.host_copies import HostCopies, choose_device
from stepscope.capture.frameworks.pytorch.tensors.selection import (
    is_inside_transform,
    is_plain_execution,
    is_recorded_rank,
)
from stepscope.capture.guard import Probe
from stepscope.spool import TensorPlan

BUFFER_SIZE = 64
MAX_AGE_NS = 1_000_000_000
_Label = tuple[str, int]


class DeviceScalars:
    """Recorder of numbers that may be on devices. It never waits for one, except at the end.

    Args:
        probe: writes the scalars.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._buffers: dict[torch.device, _DeviceBuffer] = {}

    def add(self, name: str, number: torch.Tensor, t_ns: int | None = None) -> None:
        """Record a tensor of one element.

        Args:
            name: name of the scalar.
            number: real number, on any device but the meta device.
            t_ns: monotonic time; now by default.
        """
        t_ns = time.monotonic_ns() if t_ns is None else t_ns
        number = number.detach().reshape(())
        if number.device.type == "cpu":
            self._probe.scalar(name, number.item(), t_ns)
            return
        buffer = self._buffers.get(number.device)
        if buffer is None:
            buffer = self._buffers[number.device] = _DeviceBuffer(number.device)
        self._write_all(buffer.add((name, t_ns), number))

    def finish(self) -> None:
        """Write the numbers that are still on a device; the process ends."""
        for buffer in self._buffers.values():
            self._write_all(buffer.finish())

    def _write_all(self, copies: Iterable[tuple[list[_Label], list[torch.Tensor]]]) -> None:
        for labels, (values,) in copies:
            for (name, t_ns), value in zip(labels, values.tolist()):
                self._probe.scalar(name, value, t_ns)


class _DeviceBuffer:
    """Numbers of one device that are not copied to the host yet."""

    def __init__(self, device: torch.device) -> None:
        self._values = torch.zeros(BUFFER_SIZE, dtype=torch.float64, device=device)
        self._labels: list[_Label] = []
        self._copies: HostCopies[list[_Label]] = HostCopies()

    def add(
        self, label: _Label, number: torch.Tensor
    ) -> Iterable[tuple[list[_Label], list[torch.Tensor]]]:
        """Add a number, and return the copies that have arrived on the host."""
        self._values[len(self._labels)].copy_(number)
        self._labels.append(label)
        is_old = label[1] - self._labels[0][1] >= MAX_AGE_NS
        if is_old or len(self._labels) == BUFFER_SIZE:
            self._start_copy()
        return self._copies.take_arrived()

    def finish(self) -> Iterable[tuple[list[_Label], list[torch.Tensor]]]:
        """Return the copies that arrive in time, because the process ends."""
        if self._labels:
            self._start_copy()
        return self._copies.await_arrival()

    def _start_copy(self) -> None:
        self._copies.start(self._labels, [self._values])
        self._labels = []


SCALE_NAME = "grad_scaler/scale"
NORM_NAME = "gradient_clipping/norm"
NORM_RATIO_NAME = "gradient_clipping/norm_ratio"
CLIPPED_NAME = "gradient_clipping/clipped_ratio"
MAX_OWNERS = 16
"""Owners with a number of their own; a script may make a list of parameters in every step."""

_probe = Probe("gradient clipping and loss scales")


class GradientScalars:
    """Recorder of one process.

    Args:
        plan: ranks that record, and steps in which the elements at the limit of `clip_grad_value_`
            are counted.
    """

    def __init__(self, plan: TensorPlan) -> None:
        self._plan = plan
        self._scalars = DeviceScalars(_probe)
        self._scalers = _Numbers()
        self._clipped = _Numbers()
        self.finish = _probe.protect(self._scalars.finish)

    def install(self) -> None:
        """Patch the functions that scripts call."""
        patch_grad_scaler("update", self._patched_update)
        clipping: Any = torch.nn.utils.clip_grad
        if hasattr(clipping, "_clip_grads_with_norm_"):  # torch >= 2.6
            # Both public functions call it. The first one warns with the line of its caller, which
            # a wrapper around it would change.
            patch(clipping, "_clip_grads_with_norm_", self._patched_norm_clipping)
            utilities: Any = torch.nn.utils
            utilities.clip_grads_with_norm_ = clipping._clip_grads_with_norm_
        for owner in (clipping, torch.nn.utils):
            patch(owner, "clip_grad_value_", self._patched_value_clipping)

    def _patched_update(self, original: Callable[..., Any]) -> Callable[..., Any]:
        add_scale = _probe.protect(self._add_scale)

        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, *args, **kwargs)
            add_scale(scaler)
            return result

        return update

    def _patched_norm_clipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        add_norm = _probe.protect(self._add_norm)

        def clip(parameters: Any, max_norm: Any, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(parameters, max_norm, total_norm, *args, **kwargs)
            add_norm(parameters, max_norm, total_norm)
            return result

        return clip

    def _patched_value_clipping(self, original: Callable[..., Any]) -> Callable[..., Any]:
        add_clipped = _probe.protect(self._add_clipped)

        def clip(parameters: Any, clip_value: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._plan.records_step(progress.step_count) or not _probe.alive:
                return original(parameters, clip_value, *args, **kwargs)
            if not isinstance(parameters, torch.Tensor):
                parameters = list(parameters)  # it may be an iterator, which ends once
            result = original(parameters, clip_value, *args, **kwargs)
            add_clipped(parameters, clip_value)
            return result

        return clip

    def _records(self) -> bool:
        return is_plain_execution() and is_recorded_rank(self._plan)

    def _add_scale(self, scaler: Any) -> None:
        scale = getattr(scaler, "_scale", None)  # none if it is disabled
        if type(scale) is torch.Tensor and self._records():
            with torch.no_grad(), without_functions():
                self._scalars.add(SCALE_NAME + self._scalers.suffix(scaler), scale)

    def _add_norm(self, parameters: Any, max_norm: Any, total_norm: Any) -> None:
        # The norm of sharded gradients (DTensor) is known only after communication.
        if type(total_norm) is not torch.Tensor or total_norm.is_meta or not self._records():
            return
        with torch.no_grad(), without_functions():
            suffix = self._clipped.suffix(_find_first(parameters))
            self._scalars.add(NORM_NAME + suffix, total_norm)
            limit = _read_limit(max_norm)
            if isinstance(limit, torch.Tensor) or limit > 0:
                self._scalars.add(NORM_RATIO_NAME + suffix, total_norm.double() / limit)

    def _add_clipped(self, parameters: Any, clip_value: Any) -> None:
        if not self._records():
            return
        limit = _read_limit(clip_value)
        parameters = [parameters] if isinstance(parameters, torch.Tensor) else parameters
        gradients = [p.grad for p in parameters if type(p.grad) is torch.Tensor and p.grad.numel()]
        if not gradients or any(gradient.is_meta for gradient in gradients):
            return
        with torch.no_grad(), without_functions():
            device = choose_device(gradient.device for gradient in gradients)
            counts = [(g.abs() >= limit).sum().to(device, non_blocking=True) for g in gradients]
            element_count = sum(gradient.numel() for gradient in gradients)
            share = torch.stack(counts).sum().double() / element_count
            self._scalars.add(CLIPPED_NAME + self._clipped.suffix(_find_first(parameters)), share)


class _Numbers:
    """Suffixes of the names of several owners: none for the first one, then `#2` and so on."""

    def __init__(self) -> None:
        self._suffixes: dict[int, tuple[weakref.ref[Any], str]] = {}

    def suffix(self, owner: Any) -> str:
        """Return the suffix of an owner; none for one that is not known."""
        if owner is None:
            return ""
        reference, suffix = self._suffixes.get(id(owner), (None, ""))
        if reference is not None and reference() is owner:
            return suffix
        alive = {key: entry for key, entry in self._suffixes.items() if entry[0]() is not None}
        self._suffixes = alive
        if len(alive) >= MAX_OWNERS:
            return ""
        used = {suffix for _, suffix in alive.values()}
        candidates = ["", *(f"#{number}" for number in range(2, MAX_OWNERS + 2))]
        suffix = next(text for text in candidates if text not in used)
        alive[id(owner)] = weakref.ref(owner), suffix
        return suffix


def _read_limit(limit: Any) -> torch.Tensor | float:
    """Return a limit as a number; one on a device as it is, because reading it would wait."""
    return limit.detach() if isinstance(limit, torch.Tensor) else float(limit)


def _find_first(parameters: Any) -> Any:
    """Return the first parameter of a list; None for an iterator, which must not be read."""
    if isinstance(parameters, torch.Tensor):
        return parameters
    return parameters[0] if isinstance(parameters, (list, tuple)) and parameters else None


LOSS_PREFIX = "loss/"
"""Prefix of the name of a loss; the function that computes it follows: `loss/NllLoss`."""
VALIDATION_PREFIX = "validation_loss/"
"""Prefix of the name of a validation loss; that of the same training loss follows."""
_BACKWARD = re.compile(r"Backward\d*$")
_loss_probe = Probe("losses")


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
        self._scalars = DeviceScalars(_loss_probe)
        self._scaled = ScaledLosses()
        self.note_scaled = self._scaled.note
        self._functions: dict[type, str] = {}

    def add(self, outputs: Any) -> None:
        """Record the loss of a backward pass; a tensor with more elements is none.

        Args:
            outputs: the tensors on which the script calls `backward()`.
        """
        if isinstance(outputs, (tuple, list)) and len(outputs) == 1:
            loss = self._scaled.unscale(outputs[0])
            self._record(f"{LOSS_PREFIX}{_name_function(loss) or 'loss'}", loss)

    def add_of_module(self, module: torch.nn.Module, loss: Any, evaluates: bool) -> None:
        """Record what a loss module has returned, if it evaluates and no backward pass can follow.

        Args:
            module: the loss module.
            loss: what it returned.
            evaluates: the model before it was called in eval mode, or without gradients.
        """
        if not isinstance(loss, torch.Tensor):
            return
        name = type(module).__name__
        if loss.requires_grad:
            self._functions[type(module)] = _name_function(loss) or name
        elif evaluates:
            function = self._functions.get(type(module), name)
            self._record(f"{VALIDATION_PREFIX}{function}", loss)

    def _record(self, name: str, loss: torch.Tensor) -> None:
        t_ns = time.monotonic_ns()
        if not is_recorded_rank(self._plan) or is_inside_transform() or is_capturing():
            return
        with torch.no_grad(), without_functions():
            if loss.numel() != 1 or not loss.is_floating_point() or loss.is_meta:
                return
            placements = getattr(loss, "placements", ())  # of a DTensor
            if not all(placement.is_replicate() for placement in placements):
                return  # ranks would have to communicate
            to_local = getattr(loss, "to_local", None)
            self._scalars.add(name, loss if to_local is None else to_local(), t_ns)

    def finish(self) -> None:
        """Write the losses that are still on a device; the process ends."""
        self._scalars.finish()


def _name_function(loss: torch.Tensor) -> str:
    """Name the function that computed a loss; empty if it is not known."""
    return _BACKWARD.sub("", type(loss.grad_fn).__name__) if loss.grad_fn is not None else ""


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

    patch_grad_scaler("scale", make_wrapper)
