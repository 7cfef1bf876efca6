"""Forward passes: the outermost module call of a thread of execution.

Only `torch.nn.Module.__call__` is replaced. Inner calls cost one attribute test; the outermost
one is recorded. Loss modules and modules used as data transforms are not forward passes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch import collectives, device_clock, models
from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.frameworks.pytorch.replacing import replace
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind

_probe = Probe("forward passes", coarse=True)


class Outermost(threading.local):
    """True in a thread while a module call, or work in which such calls do not count, is under way.

    A thread that loads batches in the background must not hide the forward passes of another.
    """

    inside = False


outermost = Outermost()


def install() -> None:
    """Replace `torch.nn.Module.__call__`."""
    original = torch.nn.Module.__call__
    replace(torch.nn.Module, "__call__", _timed)
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        compiler: Any = sys.modules.get(name)  # loaded already, it knows the original
        if getattr(compiler, "unpatched_nn_module_call", None) is original:
            compiler.unpatched_nn_module_call = torch.nn.Module.__call__


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling
    loss_class = torch.nn.modules.loss._Loss

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if outermost.inside or is_compiling():
            return original(self, *args, **kwargs)
        return outermost_call(self, args, kwargs)

    def outermost_call(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        span = device = None
        if not isinstance(module, loss_class):
            progress.work_begins()
            collectives.note_parallel_module(module)
            span = _probe.begin(Kind.FORWARD, type(module).__name__, id(module))
            device = device_clock.begin("forward")
        outermost.inside = True
        try:
            result = original(module, *args, **kwargs)
        finally:
            outermost.inside = False
            device_clock.end(device)
            _probe.end(span, flags=0 if torch.is_grad_enabled() else Flag.NO_GRAD)
        if span is not None:  # only now a lazy module has its parameters
            models.describe(module, args, kwargs)
        return result

    return __call__
