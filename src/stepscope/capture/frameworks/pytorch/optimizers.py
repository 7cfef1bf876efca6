"""Optimizer steps, through torch's own global hooks, and GradScaler's, which may skip them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from stepscope.capture.frameworks.pytorch import device_clock
from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.frameworks.pytorch.replacing import replace
from stepscope.capture.guard import OpenSpan, Probe
from stepscope.spool import Kind

_probe = Probe("optimizer steps", coarse=True)
_describe_probe = Probe("the description of optimizers")
_is_compiling = torch.compiler.is_compiling
_open: dict[int, tuple[OpenSpan | None, device_clock.OpenPhase | None]] = {}


def install() -> None:
    """Register the hooks and wrap `GradScaler.step`."""
    register_optimizer_step_pre_hook(_before)
    register_optimizer_step_post_hook(_after)
    replace(torch.amp.GradScaler, "step", _timed_scaler)


def _before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if _is_compiling():  # hooks are traced: what follows is no part of anybody's graph
        return
    key = id(optimizer)
    unended = _open.pop(key, None)
    if unended is not None:  # its step raised, so its post hook never ran
        _probe.abandon(unended[0])
    _describe(optimizer)
    span = _probe.begin(Kind.OPTIMIZER, type(optimizer).__name__, key)
    _open[key] = (span, device_clock.begin("optimizer"))


def _after(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if _is_compiling():
        return
    span, device = _open.pop(id(optimizer), (None, None))
    device_clock.end(device)
    _probe.end(span)
    progress.optimizer_stepped()


def _timed_scaler(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        # A skipped step is an iteration all the same: this span stands for it, and the
        # optimizer's own, where there is one, lies inside.
        span = _probe.begin(Kind.OPTIMIZER, "GradScaler", id(optimizer))
        try:
            return original(self, optimizer, *args, **kwargs)
        finally:
            _probe.end(span)
            progress.optimizer_stepped()

    return step


_described: set[int] = set()


def _describe(optimizer: torch.optim.Optimizer) -> None:
    if id(optimizer) in _described or len(_described) > 1000:
        return
    _described.add(id(optimizer))
    _describe_protected(optimizer)


def _describe_once(optimizer: torch.optim.Optimizer) -> None:
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


_describe_protected = _describe_probe.protect(_describe_once)
