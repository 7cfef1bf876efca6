"""Host-to-device copies: `Tensor.to` and `Tensor.cuda`, only where there is a device."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch

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
        torch.Tensor.to = _timed(torch.Tensor.to)
        torch.Tensor.cuda = _timed(torch.Tensor.cuda)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def timed(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or not self.is_cpu or not _to_device(args, kwargs):
            return original(self, *args, **kwargs)
        span = _probe.begin(Kind.H2D, "pinned" if _is_pinned(self) else "pageable")
        try:
            return original(self, *args, **kwargs)
        finally:
            _probe.end(span, value=self.numel() * self.element_size())

    return timed


def _to_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """False for the many calls of `to` that only change a type."""
    target = kwargs.get("device", args[0] if args else "cuda")
    if isinstance(target, torch.Tensor):
        return not target.is_cpu
    if isinstance(target, torch.dtype) or target is None:
        return False
    return not str(target).startswith("cpu")


def _is_pinned(tensor: torch.Tensor) -> bool:
    return bool(torch.cuda.is_initialized() and tensor.is_pinned())
