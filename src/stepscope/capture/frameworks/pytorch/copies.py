"""Host-to-device copies: `Tensor.to` and `Tensor.cuda`, only on a machine with a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("host-to-device copies", coarse=True)


def device_driver_present() -> bool:
    """Return True if a GPU driver is loaded that this torch was built for, without calling it.

    A call of CUDA would initialise it, and the job could not fork after that.
    """
    version = torch.version
    nvidia = version.cuda is not None and os.path.exists("/proc/driver/nvidia/version")
    return nvidia or (version.hip is not None and os.path.exists("/dev/kfd"))


def install() -> None:
    """Patch the copying methods; does nothing on a machine without a device."""
    if device_driver_present():
        patch(torch.Tensor, "to", _timed_to)
        patch(torch.Tensor, "cuda", _timed_cuda)


def _timed_to(original: Callable[..., Any]) -> Callable[..., Any]:
    return _timed(original, is_copy_to_device)


def _timed_cuda(original: Callable[..., Any]) -> Callable[..., Any]:
    return _timed(original, lambda args, kwargs: True)


def _timed(
    original: Callable[..., Any], is_copy: Callable[[tuple[Any, ...], dict[str, Any]], bool]
) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    def timed(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not self.is_cpu or not is_copy(args, kwargs):
            return original(self, *args, **kwargs)
        kind, size = _describe(self)
        span = _probe.start(Kind.H2D, kind, size)
        try:
            return original(self, *args, **kwargs)
        finally:
            _probe.end(span)

    return timed


def is_copy_to_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a call of `to` copies to a device; most calls only change the type."""
    target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if isinstance(target, torch.Tensor):
        return not target.is_cpu
    if isinstance(target, torch.dtype) or target is None:
        return False
    return not str(target).startswith(("cpu", "meta"))


def _describe(tensor: torch.Tensor) -> tuple[str, int]:
    """Return the kind of memory of a tensor, pinned or pageable, and its size in bytes."""
    try:
        pinned = torch.cuda.is_initialized() and tensor.is_pinned()
        return "pinned" if pinned else "pageable", tensor.numel() * tensor.element_size()
    except (RuntimeError, NotImplementedError, TypeError):  # sparse, nested, a subclass
        return "pageable", 0
