"""Checkpoint saves: `torch.save`, safetensors' `save_file` and distributed checkpoints' `save`."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.patching import patch, patch_internal, read_path
from stepscope.capture.guard import Probe
from stepscope.spool import Kind

_probe = Probe("checkpoint saves", coarse=True)
_saving: set[int] = set()
"""Threads that are inside a save: a distributed checkpoint calls `torch.save` for its parts."""


def install() -> None:
    """Patch `torch.save`."""
    patch(torch, "save", _timed)


def install_safetensors() -> None:
    """Patch `safetensors.torch.save_file`."""
    patch(sys.modules["safetensors.torch"], "save_file", _timed)


def install_distributed() -> None:
    """Patch `torch.distributed.checkpoint.save`, before PyTorch 2.2 `save_state_dict`. Asynchronous
    saves do not block the job."""
    patch_internal("save_distributed", _timed)


def _timed(original: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        thread = threading.get_ident()
        # Pickle saves a tensor's storage: that is not a checkpoint.
        if thread in _saving or (args and torch.is_storage(args[0])):
            return original(*args, **kwargs)
        _saving.add(thread)
        span = _probe.start(Kind.CHECKPOINT, original.__name__)
        try:
            return original(*args, **kwargs)
        finally:
            _saving.discard(thread)
            path = args[1] if len(args) > 1 else kwargs.get("f", kwargs.get("filename"))
            _probe.end(span, value=_size(path))

    return timed


def _size(target: object) -> int:
    """Return the size of a file, 0 if it is unknown."""
    path = read_path(target)
    if path is not None:
        try:
            return os.stat(path).st_size if os.path.isfile(path) else 0
        except (OSError, ValueError):
            pass
    return 0
