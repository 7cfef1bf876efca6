"""Backward passes: the common entry of `Tensor.backward`, `torch.autograd.backward` and `grad`.

The public functions are not patched: torch.compile recognizes them by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch import device_clock, nan_search, tensors, updates
from stepscope.capture.frameworks.pytorch.modules import ReentryGuard, module_call
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind

_probe = Probe("backward passes", coarse=True)
backward_pass = ReentryGuard()


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
        if progress.reports_work:
            progress.notify_work()
        accumulates = kwargs.get("accumulate_grad")
        if tensors.add_loss is not None and args and accumulates:
            tensors.add_loss(args[0])
        if nan_search.before_backward is not None and args and accumulates:
            nan_search.before_backward(args[0])
        name = "backward" if accumulates else "grad"
        # A pass inside another one, or inside a module, ends no step.
        watches = progress.watches_updates and not (module_call.active or backward_pass.active)
        changes = 0
        if watches:
            changes, backward_pass.active = updates.before_backward(), True
        span = _probe.start(Kind.BACKWARD, name, changes)
        device = device_clock.start("backward") if device_clock.clock is not None else None
        try:
            return original(*args, **kwargs)
        finally:
            if device is not None:
                device_clock.end(device)
            _probe.end(span, flags=0 if progress.has_optimizer else Flag.NO_OPTIMIZER)
            if watches:
                backward_pass.active = False
                updates.after_backward()

    return timed
