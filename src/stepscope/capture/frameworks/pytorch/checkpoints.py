"""Checkpoint saves and loads: `torch.save` and `load`, safetensors' `save_file` and `load_file`,
`save` and `load` of distributed checkpoints.

Batches that a dataset loads are no checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from stepscope.capture.frameworks.pytorch.modules import module_call
from stepscope.capture.frameworks.pytorch.patching import patch, patch_internal, read_path
from stepscope.capture.guard import Probe
from stepscope.capture.stack_texts import sample_entry
from stepscope.spool import Kind

MAX_LABELS = 4096
"""Limit on the different labels of a process: each is an interned name."""
_PARTS = "_load_from_bytes"
"""Function of torch that loads the storage of a tensor that pickle restores."""
_PATH_NAMES = ("f", "filename", "checkpoint_id")
_probe = Probe("checkpoint saves", coarse=True)
_load_probe = Probe("checkpoint loads", coarse=True)
_busy: set[int] = set()
"""Threads that are inside a save or load: a distributed checkpoint calls `torch.save` for its
parts."""
_labels: set[str] = set()


def install() -> None:
    """Patch `torch.save` and `torch.load`."""
    patch(torch, "save", _timed_save)
    patch(torch, "load", _timed_load)


def install_safetensors() -> None:
    """Patch `safetensors.torch.save_file` and `load_file`."""
    module = sys.modules["safetensors.torch"]
    patch(module, "save_file", _timed_save)
    patch(module, "load_file", _timed_load)


def install_distributed() -> None:
    """Patch `torch.distributed.checkpoint.save` and `load`, before PyTorch 2.2 `save_state_dict`
    and `load_state_dict`. Asynchronous saves do not block the job."""
    patch_internal("save_distributed", _timed_save)
    patch_internal("load_distributed", _timed_load)


def _timed_save(original: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        thread = threading.get_ident()
        # Pickle saves a tensor's storage: that is not a checkpoint.
        if thread in _busy or (args and torch.is_storage(args[0])):
            return original(*args, **kwargs)
        _busy.add(thread)
        name = original.__name__
        sample_entry("checkpoint")
        span = _probe.start(Kind.CHECKPOINT, name)
        try:
            return original(*args, **kwargs)
        finally:
            _busy.discard(thread)
            size, labels = _describe(args[1] if len(args) > 1 else None, kwargs)
            if labels:
                _probe.label(span, Kind.CHECKPOINT, name, labels)
            _probe.end(span, value=size)

    return timed


def _timed_load(original: Callable[..., Any]) -> Callable[..., Any]:
    # Distributed checkpoints are loaded into the first argument.
    position = int(original.__module__.startswith("torch.distributed"))

    def timed(*args: Any, **kwargs: Any) -> Any:
        thread = threading.get_ident()
        is_part = module_call.active or sys._getframe(1).f_code.co_name == _PARTS
        if is_part or thread in _busy or torch.utils.data.get_worker_info() is not None:
            return original(*args, **kwargs)
        _busy.add(thread)
        name = original.__name__
        sample_entry("checkpoint")
        span = _load_probe.start(Kind.CHECKPOINT_LOAD, name)
        try:
            return original(*args, **kwargs)
        finally:
            _busy.discard(thread)
            size, labels = _describe(args[position] if len(args) > position else None, kwargs)
            if labels:
                _load_probe.label(span, Kind.CHECKPOINT_LOAD, name, labels)
            _load_probe.end(span, value=size)

    return timed


def _describe(target: object, kwargs: dict[str, Any]) -> tuple[int, str]:
    """Return the size of a file and the labels of its checkpoint, 0 and '' if they are unknown.

    Args:
        target: the file, where it is no keyword argument.
        kwargs: keyword arguments of the call.
    """
    for name in _PATH_NAMES:
        target = kwargs.get(name, target)
    path = read_path(target)
    if path is None:
        return 0, ""
    size, labels = 0, {"path": path}
    try:
        labels["path"] = os.path.abspath(path)
        status = os.stat(path)
        size = status.st_size if os.path.isfile(path) else 0
        labels["file"] = f"{status.st_dev}:{status.st_ino}"
    except (OSError, ValueError):
        pass
    text = json.dumps(labels)
    if text not in _labels and len(_labels) >= MAX_LABELS:
        return size, ""
    _labels.add(text)
    return size, text
