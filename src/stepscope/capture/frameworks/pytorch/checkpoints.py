"""Checkpoint saves: `torch.save`, and safetensors' `save_file` where the job imports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.replacing import replace
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("checkpoint saves", coarse=True)


def install() -> None:
    """Replace `torch.save`."""
    replace(torch, "save", _timed)


def install_safetensors() -> None:
    """Replace `safetensors.torch.save_file`."""
    replace(sys.modules["safetensors.torch"], "save_file", _timed)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        if args and torch.is_storage(args[0]):  # how pickle sees a tensor: no checkpoint
            return original(*args, **kwargs)
        span = _probe.begin(Kind.CHECKPOINT, original.__name__)
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
