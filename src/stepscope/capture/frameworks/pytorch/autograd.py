"""Backward passes: `Tensor.backward`, `torch.autograd.backward` and `grad`, where they all meet.

The functions themselves stay what they are: torch.compile knows them by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch import device_clock
from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.frameworks.pytorch.replacing import replace
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("backward passes", coarse=True)


def install() -> None:
    """Replace the one function that enters the autograd engine."""
    autograd: Any = torch.autograd
    replace(autograd.graph, "_engine_run_backward", _timed)
    autograd._engine_run_backward = autograd.graph._engine_run_backward


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    def timed(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        progress.work_goes_on()
        name = "backward" if kwargs.get("accumulate_grad") else "grad"
        span = _probe.begin(Kind.BACKWARD, name)
        device = device_clock.begin("backward")
        try:
            return original(*args, **kwargs)
        finally:
            device_clock.end(device)
            _probe.end(span)

    return timed
