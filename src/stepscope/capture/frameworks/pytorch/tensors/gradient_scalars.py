"""Scale of a GradScaler and clipping of gradients, as scalars of the run.

    grad_scaler/scale                  scale after an update of the scaler
    gradient_clipping/norm             total norm of the gradients before `clip_grad_norm_`
    gradient_clipping/norm_ratio       that divided by its `max_norm`: above 1, it is clipped
    gradient_clipping/clipped_ratio    share of the elements that `clip_grad_value_` has left at its
                                       limit, at the steps of which tensors are recorded

Names of a second scaler, or of a second list of parameters that is clipped by itself, end in `#2`.
The script computes the scale and the norm anyway. They are read without waiting for a device.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.frameworks.pytorch.tensors.device_scalars import DeviceScalars
from stepscope.capture.frameworks.pytorch.tensors.host_copies import choose_device
from stepscope.capture.frameworks.pytorch.tensors.plain_execution import is_plain_execution
from stepscope.capture.frameworks.pytorch.tensors.selection import is_recorded_rank
from stepscope.capture.guard import Probe
from stepscope.spool import TensorPlan

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
        patch(torch.amp.GradScaler, "update", self._patched_update)
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
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self._scalars.add(SCALE_NAME + self._scalers.suffix(scaler), scale)

    def _add_norm(self, parameters: Any, max_norm: Any, total_norm: Any) -> None:
        # The norm of sharded gradients (DTensor) is known only after communication.
        if type(total_norm) is not torch.Tensor or total_norm.is_meta or not self._records():
            return
        with torch.no_grad(), torch._C.DisableTorchFunction():
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
        with torch.no_grad(), torch._C.DisableTorchFunction():
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
    return parameters[0] if isinstance(parameters, list | tuple) and parameters else None
