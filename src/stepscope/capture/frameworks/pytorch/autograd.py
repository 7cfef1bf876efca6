"""Backward passes: `torch.autograd.backward` (which `Tensor.backward` calls) and `grad`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch import device_clock
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("backward passes", coarse=True)


def install() -> None:
    """Replace the two entry points of the autograd engine."""
    torch.autograd.backward = _timed(torch.autograd.backward)
    torch.autograd.grad = _timed(torch.autograd.grad)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        span = _probe.begin(Kind.BACKWARD, original.__name__)
        device = device_clock.begin("backward")
        try:
            return original(*args, **kwargs)
        finally:
            device_clock.end(device)
            _probe.end(span)

    return timed
