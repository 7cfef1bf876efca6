"""Forward passes: the outermost module call of a thread of execution.

Only `torch.nn.Module.__call__` is patched. Inner calls cost one attribute test; the outermost
one is recorded. Loss modules and modules used as data transforms are not forward passes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch import (
    collectives,
    device_clock,
    models,
    tensors,
    updates,
)
from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind, pack_forward

_SIZED = Flag.SIZED
_SIZED_IN_EVAL_MODE = Flag.SIZED | Flag.EVAL_MODE
_probe = Probe("forward passes", coarse=True)
SELECTION_NAMES = ("_compiled_call_impl", "_call_impl")
"""Names that `torch.nn.Module.__call__` uses: the compiled implementation, if any, or the other."""


class ReentryGuard(threading.local):
    """Flag of one thread: an outermost call is active, so calls inside it are not recorded.

    The flag is thread-local: a thread that loads batches in the background must not hide the
    forward passes of another thread.
    """

    active = False


module_call = ReentryGuard()
"""Active during module calls, and during batch fetches, in which modules are data transforms."""


def install() -> None:
    """Patch `torch.nn.Module.__call__`."""
    original = torch.nn.Module.__call__
    patch(torch.nn.Module, "__call__", _timed)
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        compiler: Any = sys.modules.get(name)  # if loaded already, it refers to the original
        if getattr(compiler, "unpatched_nn_module_call", None) is original:
            compiler.unpatched_nn_module_call = torch.nn.Module.__call__


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling
    is_grad_enabled = torch.is_grad_enabled
    loss_class = torch.nn.modules.loss._Loss

    # The original only selects one of two implementations. The wrapper does the same instead of
    # calling it, because a frame more per nested module costs time, most of all where the job
    # records stacks (anomaly detection, profilers).
    is_selection = original.__code__.co_names == SELECTION_NAMES

    def __call__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if module_call.active:
            if is_selection and self._compiled_call_impl is None:
                return self._call_impl(*args, **kwargs)
            return original(self, *args, **kwargs)
        if is_compiling():
            return original(self, *args, **kwargs)
        return outermost_call(self, args, kwargs)

    def outermost_call(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if isinstance(module, loss_class):
            module_call.active = True
            try:
                return original(module, *args, **kwargs)
            finally:
                module_call.active = False
        progress.notify_work_start()
        name = type(module).__name__
        if name == collectives.PARALLEL_CLASS:
            collectives.count_parallel_pass(module)
        value = pack_forward(id(module), models.count_elements(args, kwargs))
        span = _probe.start(Kind.FORWARD, name, value)
        device = device_clock.start("forward") if device_clock.clock is not None else None
        flags = _SIZED_IN_EVAL_MODE if models.is_in_eval_mode(module) else _SIZED
        if not is_grad_enabled():
            flags |= Flag.NO_GRAD
        call = None
        if tensors.calls is not None:
            is_evaluation = flags != _SIZED
            call = tensors.start_call(module, args, kwargs, is_evaluation=is_evaluation)
        module_call.active = True
        try:
            result = original(module, *args, **kwargs)
        finally:
            module_call.active = False
            if call is not None:
                call.remove_hooks()
            if device is not None:
                device_clock.end(device)
            _probe.end(span, flags=flags)
        if call is not None:
            tensors.end_call(call, result)
        if span is not None:  # a lazy module has its parameters only after the call
            models.describe(module, args, kwargs)
            if tensors.recorder is not None:
                tensors.add_model(module)
            if progress.watches_updates and not flags & Flag.NO_GRAD:
                updates.add(module)
        return result

    return __call__
