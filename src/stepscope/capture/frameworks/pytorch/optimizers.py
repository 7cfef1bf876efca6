"""Optimizer steps, through torch's global hooks, and steps of GradScaler, which may skip them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from stepscope.capture.frameworks import objects
from stepscope.capture.frameworks.internals import PYTORCH
from stepscope.capture.frameworks.progress import progress
from stepscope.capture.frameworks.pytorch import device_clock, tensors
from stepscope.capture.frameworks.pytorch.modules import training
from stepscope.capture.frameworks.pytorch.patching import is_compiling, patch, patch_grad_scaler
from stepscope.capture.guard import OpenSpan, Probe
from stepscope.spool import Kind, OptimizerBase

if TYPE_CHECKING:
    from stepscope.capture.frameworks.pytorch.tensors.recorder import OpenStep

_probe = Probe("optimizer steps", coarse=True)
_describe_probe = Probe("optimizer descriptions")
_states: dict[int, _OptimizerState] = {}
"""By identity: a `WeakKeyDictionary` takes ten times as long, at every step."""


class _OptimizerState(OptimizerBase):
    """One optimizer, and its step that has not ended."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.reference = weakref.ref(optimizer)
        self.name = type(optimizer).__name__
        self.is_stepping = False
        self.span: OpenSpan | None = None
        self.device: device_clock.OpenPhase | None = None
        self.tensors: OpenStep | None = None
        self.step_count = 0
        self.inner_count = 0
        """Nested steps of the same optimizer: a class may call `step` of its base class."""


def install() -> None:
    """Register the hooks and patch `GradScaler.step`."""
    # Before PyTorch 2.3, which has `is_compiling`, torch.compile removes the hooks of optimizers.
    hooks = PYTORCH.find_all("is_compiling", "step_pre_hook", "step_post_hook")
    if hooks is not None:
        _, register_pre_hook, register_post_hook = hooks
        register_pre_hook(_before)
        register_post_hook(_after)
    patch(torch.optim.Optimizer, "__init__", _noticed if hooks is not None else _noticed_and_timed)
    patch_grad_scaler("step", _timed_scaler)


def _noticed(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        progress.has_optimizer = True
        original(self, *args, **kwargs)

    return __init__


def _noticed_and_timed(original: Callable[..., Any]) -> Callable[..., Any]:
    """For releases without hooks that stay: patch the steps of an optimizer's classes, before
    PyTorch wraps them for its profiler, because torch.compile removes that wrapper."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        progress.has_optimizer = True
        _time_steps(type(self))
        original(self, *args, **kwargs)

    return __init__


def _time_steps_or_fail(optimizer_class: type) -> None:
    for base in optimizer_class.__mro__:
        if "step" in vars(base) and base not in _timed_classes:
            _timed_classes.add(base)
            patch(base, "step", _timed_step)


_timed_classes: set[type] = {torch.optim.Optimizer}
_time_steps = _probe.protect(_time_steps_or_fail)


def _timed_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        _before(self, (self, *args), kwargs)
        result = original(self, *args, **kwargs)
        _after(self, (self, *args), kwargs)
        return result

    return step


def _before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if is_compiling():  # hooks are traced; what they call must not become part of a graph
        return
    _start_step(optimizer, args, kwargs)


def _before_in_python(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    key = id(optimizer)
    state = _states.get(key)
    if state is None or state.reference() is not optimizer:
        state = _states[key] = _OptimizerState(optimizer)
        objects.optimizers.note(optimizer, state.name, key)
        _describe(optimizer)
        if training is not None:
            training.note_optimizer(state)
    elif state.is_stepping:
        if _is_inner(optimizer, sys._getframe(2)):
            state.inner_count += 1
            return
        _probe.abandon(state.span)  # the step raised, so the post hook did not run
        state.inner_count = 0
    state.is_stepping = True
    if tensors.recorder is not None:
        has_closure = (args[1] if len(args) > 1 else kwargs.get("closure")) is not None
        state.tensors = tensors.start_step(optimizer, state.step_count, has_closure=has_closure)
    state.span = _probe.start(Kind.OPTIMIZER, state.name, key)
    if device_clock.clock is not None:
        state.device = device_clock.start("optimizer")


def _after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if is_compiling():
        return
    _end_step(optimizer, args, kwargs)


def _after_in_python(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    state = _states.get(id(optimizer))
    if state is None or not state.is_stepping:
        return
    if state.inner_count:
        state.inner_count -= 1
        return
    state.is_stepping = False
    if state.device is not None:
        device_clock.end(state.device)
        state.device = None
    _probe.end(state.span)
    state.step_count += 1
    if state.tensors is not None:
        tensors.end_step(state.tensors)
        state.tensors = None
    progress.notify_optimizer_step()


_start_step, _end_step = _before_in_python, _after_in_python
if training is not None:
    training.optimizer_probe = _probe
    training.before_slow, training.after_slow = _before_in_python, _after_in_python
    _start_step, _end_step = training.before_step, training.after_step


def _is_inner(optimizer: torch.optim.Optimizer, caller: FrameType) -> bool:
    """Return True if the function that calls the hooks is on the stack twice for an optimizer."""
    frame = caller.f_back
    while frame is not None:
        if frame.f_code is caller.f_code and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False


def _timed_scaler(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        # A skipped step is still an iteration. This span represents it; the span of the optimizer
        # step, if there is one, is nested in it.
        span = _probe.start(Kind.OPTIMIZER, "GradScaler", id(optimizer))
        try:
            return original(self, optimizer, *args, **kwargs)
        finally:
            _probe.end(span)
            progress.notify_optimizer_step()

    return step


def _describe_or_fail(optimizer: torch.optim.Optimizer) -> None:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    group = optimizer.param_groups[0]
    _describe_probe.fact(
        "optimizer",
        name=type(optimizer).__name__,
        parameter_count=sum(p.numel() for p in parameters),
        tensor_count=len(parameters),
        devices=sorted({p.device.type for p in parameters}),
        dtypes=sorted({str(p.dtype).removeprefix("torch.") for p in parameters}),
        foreach=group.get("foreach"),
        fused=group.get("fused"),
        intra_op_threads=torch.get_num_threads(),
    )


_describe = _describe_probe.protect(_describe_or_fail)
