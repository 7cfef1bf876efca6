"""Checkpoint saves: `torch.save`, and safetensors' `save_file` where the job imports it."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("checkpoint saves", coarse=True)


def install() -> None:
    """Replace `torch.save`."""
    import torch

    torch.save = _timed(torch.save, path_position=1)


def install_safetensors() -> None:
    """Replace `safetensors.torch.save_file`."""
    module: Any = sys.modules["safetensors.torch"]
    module.save_file = _timed(module.save_file, path_position=1)


def _timed(original: Callable[..., Any], *, path_position: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def timed(*args: Any, **kwargs: Any) -> Any:
        span = _probe.begin(Kind.CHECKPOINT, original.__name__)
        try:
            return original(*args, **kwargs)
        finally:
            path = (
                args[path_position]
                if len(args) > path_position
                else kwargs.get("f", kwargs.get("filename"))
            )
            _probe.end(span, value=_size(path))

    return timed


def _size(path: object) -> int:
    if isinstance(path, str | os.PathLike):
        try:
            return os.stat(path).st_size
        except OSError:
            pass
    return 0
