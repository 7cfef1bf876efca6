"""Host-to-device copies: `Tensor.to` and `Tensor.cuda`, only where there is a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.replacing import replace
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("host-to-device copies", coarse=True)


def device_driver_present() -> bool:
    """True when a GPU driver is loaded and this torch was built for it; asks no driver.

    Asking CUDA itself would initialise it, after which the job could not fork.
    """
    version = torch.version
    nvidia = version.cuda is not None and os.path.exists("/proc/driver/nvidia/version")
    return nvidia or (version.hip is not None and os.path.exists("/dev/kfd"))


def install() -> None:
    """Replace the copying methods; does nothing on a machine without a device."""
    if device_driver_present():
        replace(torch.Tensor, "to", _timed_to)
        replace(torch.Tensor, "cuda", _timed_cuda)


def _timed_to(original: Callable[..., Any]) -> Callable[..., Any]:
    return _timed(original, goes_to_device)


def _timed_cuda(original: Callable[..., Any]) -> Callable[..., Any]:
    return _timed(original, lambda args, kwargs: True)


def _timed(
    original: Callable[..., Any], goes: Callable[[tuple[Any, ...], dict[str, Any]], bool]
) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    def timed(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not self.is_cpu or not goes(args, kwargs):
            return original(self, *args, **kwargs)
        kind, size = _describe(self)
        span = _probe.begin(Kind.H2D, kind, size)
        try:
            return original(self, *args, **kwargs)
        finally:
            _probe.end(span)

    return timed


def goes_to_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """What `to` is asked for: False for the many calls that only change a type."""
    target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if isinstance(target, torch.Tensor):
        return not target.is_cpu
    if isinstance(target, torch.dtype) or target is None:
        return False
    return not str(target).startswith(("cpu", "meta"))


def _describe(tensor: torch.Tensor) -> tuple[str, int]:
    """How the tensor lies in memory, and its bytes."""
    try:
        pinned = torch.cuda.is_initialized() and tensor.is_pinned()
        return "pinned" if pinned else "pageable", tensor.numel() * tensor.element_size()
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested, a subclass
        return "pageable", 0
