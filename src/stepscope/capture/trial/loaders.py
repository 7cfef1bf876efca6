"""Changes of DataLoaders, made where they are created."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.trial.measurement import Measurement

_WORKER_DEFAULTS: dict[str, Any] = {"prefetch_factor": None, "persistent_workers": False}
"""Arguments that a loader without workers does not accept otherwise."""
_changed: dict[str, Any] = {}


def set_argument(name: str, value: str, measurement: Measurement) -> None:
    """Create every DataLoader with one argument changed."""
    if not _changed:
        patch(DataLoader, "__init__", lambda original: _change_arguments(original, measurement))
    _changed[name] = ast.literal_eval(value)


def _change_arguments(original: Callable[..., Any], measurement: Measurement) -> Callable[..., Any]:
    signature = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        before = dict(arguments)
        for name, value in _changed.items():
            if name != "batch_size" or _has_training_batches(before, measurement.plan.batch_size):
                arguments[name] = value
        if not arguments["num_workers"]:
            arguments.update(_WORKER_DEFAULTS, multiprocessing_context=None, timeout=0)
        for name, value in _changed.items():
            if arguments[name] == value:
                measurement.note_change(name, before[name], value)
        original(*bound.args, **bound.kwargs)

    return __init__


def _has_training_batches(arguments: dict[str, Any], batch_size: int | None) -> bool:
    """Return True if a loader makes its size batches, of the size of the training batches."""
    size = arguments["batch_size"] if arguments["batch_sampler"] is None else None
    return size is not None and batch_size in {None, size}
