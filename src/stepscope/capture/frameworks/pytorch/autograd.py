"""Backward passes: the common entry of `Tensor.backward`, `torch.autograd.backward` and `grad`.

The public functions are not patched: torch.compile recognizes them by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch import device_clock
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("backward passes", coarse=True)


def install() -> None:
    """Patch the function that enters the autograd engine."""
    autograd: Any = torch.autograd
    patch(autograd.graph, "_engine_run_backward", _timed)
    autograd._engine_run_backward = autograd.graph._engine_run_backward


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    def timed(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(*args, **kwargs)
        progress.notify_work()
        name = "backward" if kwargs.get("accumulate_grad") else "grad"
        span = _probe.start(Kind.BACKWARD, name)
        device = device_clock.start("backward")
        try:
            return original(*args, **kwargs)
        finally:
            device_clock.end(device)
            _probe.end(span)

    return timed
