"""Modes, epochs, callbacks, checkpoints, logged numbers and input of Keras.

Classes are patched: no callback is added, and the callbacks of the script stay as they are.

Input of Keras: batches of a PyDataset, and the wait for batches on JAX. On PyTorch the wait is that
for the DataLoader that Keras makes, and on TensorFlow that for tf.data.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from stepscope.capture.frameworks.progress import take_batch
from stepscope.capture.frameworks.tables import KERAS, KERAS_ON_JAX
from stepscope.capture.frameworks.trainers import record_as, record_numbers, time_methods
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

MODES = {
    "evaluate": "EVAL",
    "test_on_batch": "EVAL",
    "predict": "PREDICT",
    "predict_on_batch": "PREDICT",
}
SAVES = ("save", "save_weights")
_probe = Probe("epochs and callbacks of Keras")
_mode_probe = Probe("modes and checkpoints of Keras")
_thread = threading.local()
"""`.epoch` is the open interval of an epoch."""


def install() -> None:
    """Patch `Model` and `CallbackList`."""
    _patch_model()
    _patch_callbacks()


@_mode_probe.protect
def _patch_model() -> None:
    model = sys.modules["keras"].Model
    for name, mode in MODES.items():
        patch(model, name, record_as(Kind.MODE, mode))
    for name in SAVES:
        patch(model, name, record_as(Kind.CHECKPOINT, f"Model.{name}"))


@_probe.protect
def _patch_callbacks() -> None:
    module = sys.modules["keras"].callbacks
    callbacks = module.CallbackList
    patch(callbacks, "__init__", _times_callbacks(module.Callback))
    patch(callbacks, "on_epoch_begin", _starts_epoch)
    patch(callbacks, "on_epoch_end", _ends_epoch)


def _times_callbacks(base: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    hooks = [name for name in vars(base) if name.startswith("on_")]

    @_probe.protect
    def time_all(callbacks: Any) -> None:
        for instance in callbacks.callbacks:
            time_methods(instance, base, hooks)

    def make_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, *args, **kwargs)
            time_all(self)

        return __init__

    return make_wrapper


def _starts_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def on_epoch_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        _probe.end(getattr(_thread, "epoch", None))  # an epoch that a callback has ended by raising
        _thread.epoch = _probe.start(Kind.ANNOTATION, "epoch")
        return original(self, *args, **kwargs)

    return on_epoch_begin


def _ends_epoch(original: Callable[..., Any]) -> Callable[..., Any]:
    def on_epoch_end(self: Any, epoch: int, logs: Any = None) -> Any:
        if isinstance(logs, dict):
            record_numbers(logs)
        try:
            return original(self, epoch, logs)
        finally:
            _probe.end(getattr(_thread, "epoch", None))
            _thread.epoch = None

    return on_epoch_end


_wait_probe = Probe("waits for data of Keras", coarse=True)
_fetch_probe = Probe("batches of a PyDataset")
_timed_classes: set[type] = set()


def install_datasets(backend: str) -> None:
    """Patch the adapter of PyDataset, and the iterator of JAX."""
    _patch_datasets()
    if backend == "jax":
        _patch_iterator()


@_fetch_probe.protect
def _patch_datasets() -> None:
    KERAS.patch("dataset_adapter", _times_dataset)


def _times_dataset(original: Callable[..., Any]) -> Callable[..., Any]:
    @_fetch_probe.protect
    def time_dataset(adapter: Any) -> None:
        name = "py_dataset" if hasattr(adapter, "py_dataset") else "_keras_sequence"  # of Keras 2
        dataset = type(getattr(adapter, name))
        if dataset not in _timed_classes:
            _timed_classes.add(dataset)
            if not hasattr(dataset.__getitem__, "_is_timed"):  # by a subclass
                patch(dataset, "__getitem__", _timed_batch)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        time_dataset(self)

    return __init__


def _timed_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    def __getitem__(self: Any, index: Any) -> Any:  # noqa: N807
        span = _fetch_probe.start(Kind.FETCH, type(self).__name__)
        start_ns = time.thread_time_ns()
        try:
            return original(self, index)
        finally:
            _fetch_probe.end(span, value=time.thread_time_ns() - start_ns)

    __getitem__._is_timed = True  # type: ignore[attr-defined]
    return __getitem__


@_wait_probe.protect
def _patch_iterator() -> None:
    KERAS_ON_JAX.patch("iterator", _times_waits)


def _times_waits(original: Callable[..., Any]) -> Callable[..., Any]:
    def _get_iterator(self: Any) -> Any:
        return timed_iterator(iter(original(self)), type(self.data_adapter).__name__)

    return _get_iterator


def timed_iterator(iterator: Iterator[Any], name: str) -> Iterator[Any]:
    """Yield the batches of an iterator, and record the wait for each."""
    take = iterator.__next__
    while True:
        try:
            batch = take_batch(_wait_probe, name, take)
        except StopIteration:
            return
        yield batch
