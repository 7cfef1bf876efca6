"""Input of Keras: batches of a PyDataset, and the wait for batches on JAX.

On PyTorch the wait is that for the DataLoader that Keras makes, and on TensorFlow that for tf.data.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from stepscope.capture.frameworks.waits import take_batch
from stepscope.capture.guard import Probe
from stepscope.capture.patching import patch
from stepscope.spool import Kind

_wait_probe = Probe("waits for data of Keras", coarse=True)
_fetch_probe = Probe("batches of a PyDataset")
_timed_classes: set[type] = set()


def install(backend: str) -> None:
    """Patch the adapter of PyDataset, and the iterator of JAX."""
    _patch_datasets()
    if backend == "jax":
        _patch_iterator()


@_fetch_probe.protect
def _patch_datasets() -> None:
    module = sys.modules["keras.src.trainers.data_adapters.py_dataset_adapter"]
    patch(module.PyDatasetAdapter, "__init__", _times_dataset)


def _times_dataset(original: Callable[..., Any]) -> Callable[..., Any]:
    @_fetch_probe.protect
    def time_dataset(adapter: Any) -> None:
        dataset = type(adapter.py_dataset)
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
    iterator = sys.modules["keras.src.backend.jax.trainer"].JAXEpochIterator
    patch(iterator, "_get_iterator", _times_waits)


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
