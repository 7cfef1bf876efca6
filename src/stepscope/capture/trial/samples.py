"""Changes of the work of DataLoaders: samples from memory, and batches made ahead by a thread."""

from __future__ import annotations

import itertools
import queue
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data._utils import fetch as fetching

from stepscope.capture.frameworks.pytorch.patching import patch
from stepscope.capture.trial.measurement import Measurement

_caches: dict[int, tuple[Any, dict[Any, Any]]] = {}
"""Dataset and its samples by index, by the identity of the dataset; a forked worker inherits them.

The dataset is kept, so that no other one gets its identity.
"""


def cache_samples(measurement: Measurement) -> None:
    """Make the samples of the measured steps before training, and take them from memory.

    The steps then run as with a cache that is already full.
    """
    patch(DataLoader, "__iter__", lambda original: _fill_before(original, measurement))
    patch(fetching._MapDatasetFetcher, "__init__", _fetch_from_cache)


def _fill_before(original: Callable[..., Any], measurement: Measurement) -> Callable[..., Any]:
    def __iter__(self: Any) -> Any:  # noqa: N807
        plan = measurement.plan
        if id(self.dataset) not in _caches and _can_cache(self, plan.batch_size):
            ahead = 2 + self.num_workers * (self.prefetch_factor or 0)
            count = plan.warmup_step_count + plan.step_count + ahead
            with _restored_generators(self):
                _caches[id(self.dataset)] = self.dataset, _make_samples(self, count)
            measurement.note_change("cached_samples", "off", "memory")
        return original(self)

    return __iter__


def _can_cache(loader: Any, batch_size: int | None) -> bool:
    if isinstance(loader.dataset, IterableDataset) or not loader._auto_collation:
        return False
    if batch_size is not None and loader.batch_size not in {None, batch_size}:
        return False
    context = loader.multiprocessing_context or torch.multiprocessing.get_context()
    return not loader.num_workers or context.get_start_method() == "fork"


def _make_samples(loader: Any, batch_count: int) -> dict[Any, Any]:
    """Make the samples of the next batches; an iterator draws its seed before the first index."""
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    batches = itertools.islice(iter(loader._index_sampler), batch_count)
    indices = list(dict.fromkeys(index for batch in batches for index in batch))
    return dict(zip(indices, _get_samples(loader.dataset, indices), strict=True))


def _get_samples(dataset: Any, indices: list[Any]) -> Iterable[Any]:
    if getattr(dataset, "__getitems__", None):
        return list(dataset.__getitems__(indices))
    return [dataset[index] for index in indices]


@contextmanager
def _restored_generators(loader: Any) -> Iterator[None]:
    """Restore the generators of random numbers afterwards."""
    numpy: Any = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    python_state, torch_state = random.getstate(), torch.get_rng_state()
    owners = (loader, loader.sampler, loader.batch_sampler)
    generators = [g for owner in owners if (g := getattr(owner, "generator", None)) is not None]
    states = [generator.get_state() for generator in generators]
    yield
    if numpy is not None:
        numpy.random.set_state(numpy_state)
    random.setstate(python_state)
    torch.set_rng_state(torch_state)
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(state)


def _fetch_from_cache(original: Callable[..., Any]) -> Callable[..., Any]:
    def __init__(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, dataset, *args, **kwargs)
        if id(dataset) in _caches:
            _, samples = _caches[id(dataset)]
            many = getattr(dataset, "__getitems__", None)
            self.dataset = (_CachedBatches if many else _Cached)(dataset, samples)

    return __init__


class _Cached:
    """Dataset whose samples are made once."""

    def __init__(self, dataset: Any, samples: dict[Any, Any]) -> None:
        self._dataset = dataset
        self._samples = samples

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._samples[index]
        except KeyError:
            sample = self._samples[index] = self._dataset[index]
            return sample

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class _CachedBatches(_Cached):
    """Dataset that returns all samples of a batch in one call."""

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        missing = [index for index in indices if index not in self._samples]
        if missing:
            new = self._dataset.__getitems__(missing)
            self._samples.update(zip(missing, new, strict=True))
        return [self._samples[index] for index in indices]


def prefetch_in_thread(batch_count: int, measurement: Measurement) -> None:
    """Let a thread of the training process iterate each DataLoader ahead."""

    def make_iterator(original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(self: Any) -> Any:  # noqa: N807
            measurement.note_change("thread_prefetch", 0, batch_count)
            return _Ahead(original(self), batch_count)

        return __iter__

    patch(DataLoader, "__iter__", make_iterator)


class _Ahead:
    """Iterator whose items a thread takes from another one ahead of time."""

    def __init__(self, iterator: Any, item_count: int) -> None:
        self._iterator = iterator
        self._items: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(item_count)
        self._ended = threading.Event()
        arguments = (iterator, self._items, self._ended)
        threading.Thread(target=_take_ahead, args=arguments, daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._ended.is_set():
            raise StopIteration
        item, error = self._items.get()
        if error is not None:
            self._ended.set()
            raise error
        return item

    def __len__(self) -> int:
        return len(self._iterator)

    def __del__(self) -> None:
        self._ended.set()


def _take_ahead(iterator: Any, items: Any, ended: threading.Event) -> None:
    entry: tuple[Any, BaseException | None] = (None, None)
    while entry[1] is None and not ended.is_set():
        try:
            entry = (next(iterator), None)
        except BaseException as error:  # noqa: BLE001 - raised in the training thread
            entry = (None, error)
        while not ended.is_set():
            try:
                items.put(entry, timeout=0.1)
                break
            except queue.Full:
                continue
