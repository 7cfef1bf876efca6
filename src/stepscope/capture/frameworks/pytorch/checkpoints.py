"""Checkpoint saves: `torch.save`, and safetensors' `save_file` if the job imports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("checkpoint saves", coarse=True)


def install() -> None:
    """Patch `torch.save`."""
    patch(torch, "save", _timed)


def install_safetensors() -> None:
    """Patch `safetensors.torch.save_file`."""
    patch(sys.modules["safetensors.torch"], "save_file", _timed)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        if args and torch.is_storage(args[0]):  # pickle saves a tensor's storage: not a checkpoint
            return original(*args, **kwargs)
        span = _probe.start(Kind.CHECKPOINT, original.__name__)
        try:
            return original(*args, **kwargs)
        finally:
            path = args[1] if len(args) > 1 else kwargs.get("f", kwargs.get("filename"))
            _probe.end(span, value=_size(path))

    return timed


def _size(path: object) -> int:
    if isinstance(path, str | os.PathLike):
        try:
            return os.stat(path).st_size
        except (OSError, ValueError):
            pass
    return 0
