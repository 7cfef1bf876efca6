"""The input pipeline, from the training thread's wait down to single samples.

In the training thread: how long an iterator keeps it waiting, and how many batches lay ready
when it asked. Where the batch is made (a worker process, or the training thread itself): the
whole fetch, the samples in it, the transforms of a Compose-like chain, collating, pinning. What
none of these names is left to the stack sampler.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import _utils, dataloader, get_worker_info
from torch.utils.data._utils import fetch as fetching

from stepscope.capture import stacks
from stepscope.capture.frameworks.pytorch.modules import Outermost, outermost
from stepscope.capture.frameworks.pytorch.progress import progress
from stepscope.capture.frameworks.pytorch.replacing import replace
from stepscope.capture.frameworks.pytorch.transforms import ChainTimes, watch_chains
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind

SLOW_SAMPLE_NS = 100_000
"""A sample that takes this long is worth a record of its own; it costs a hundredth of that."""

_wait_probe = Probe("data waiting", coarse=True)
_fetch_probe = Probe("batch fetching")
_pin_probe = Probe("pinning")
_describe_probe = Probe("the description of data loaders")
_now = time.monotonic_ns
_thread_time = time.thread_time_ns


def install() -> None:
    """Replace the iterator's `__next__`, the loader's `__iter__`, and the fetchers' `fetch`."""
    replace(dataloader._BaseDataLoaderIter, "__next__", _timed_next)
    replace(torch.utils.data.DataLoader, "__iter__", _timed_iter)
    for fetcher_class in (fetching._MapDatasetFetcher, fetching._IterableDatasetFetcher):
        replace(fetcher_class, "fetch", _timed_fetch)
    replace(_utils.pin_memory, "pin_memory", _timed_pinning)


def _timed_next(original: Callable[..., Any]) -> Callable[..., Any]:
    def __next__(self: Any) -> Any:  # noqa: N807
        progress.work_begins()
        if not outermost.inside:
            stacks.watch_this_thread(stacks.MAIN_PERIOD_S)
        began = _now()
        name = self.__dict__.get("_stepscope_name", "DataLoader")
        ready = _Ready.of(self)
        span = _wait_probe.begin(Kind.DATA_WAIT, name, ready.batches)
        try:
            batch = original(self)
        except BaseException:
            _wait_probe.end(span, flags=Flag.NO_RESULT)
            raise
        _wait_probe.end(span, value=ready.batches if ready.had_the_next(self) else 0)
        progress.data_wait_ns += _now() - began
        return batch

    return __next__


class _Ready(NamedTuple):
    """Batches that workers had finished when the training thread asked for the next one.

    A worker may have finished a later batch while the next one, another worker's, is still in
    the making: loaders hand out batches in order. Then none lay ready, and whether it was so
    shows only afterwards, in how many results had to be received to get the next one.
    """

    batches: int
    """-1 if unknown, or if there are no workers."""
    received: int
    """Results received once those that lay in the queue are."""

    @classmethod
    def of(cls, iterator: Any) -> _Ready:
        queue = getattr(iterator, "_data_queue", None)
        if queue is None:
            return _UNKNOWN
        try:
            kept = sum(len(info) == 2 for info in iterator._task_info.values())
            queued = int(queue.qsize())
            return cls(queued + kept, _received(iterator) + queued)
        except (NotImplementedError, AttributeError, RuntimeError, OSError):
            return _UNKNOWN

    def had_the_next(self, iterator: Any) -> bool:
        return self.batches <= 0 or _received(iterator) <= self.received


_UNKNOWN = _Ready(-1, 0)


def _received(iterator: Any) -> int:
    """Results that the iterator has taken from its queue so far."""
    return int(iterator._send_idx - iterator._tasks_outstanding)


_loader_numbers: dict[str, int] = {}


def _timed_iter(original: Callable[..., Any]) -> Callable[..., Any]:
    def __iter__(self: Any) -> Any:  # noqa: N807
        progress.work_begins()
        began = _now()
        span = _wait_probe.begin(Kind.LOADER_START, type(self.dataset).__name__)
        try:
            iterator = original(self)
        finally:
            _wait_probe.end(span)
            progress.data_wait_ns += _now() - began
        describe(self, iterator)
        return iterator

    return __iter__


def _describe(loader: Any, iterator: Any) -> None:
    dataset = type(loader.dataset)
    label = f"{dataset.__module__}.{dataset.__qualname__}"
    fields = {
        "dataset": label,
        "batch_size": getattr(loader, "batch_size", None) or _sampler_batch_size(loader),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "drop_last": bool(loader.drop_last),
        "iterable": isinstance(loader.dataset, torch.utils.data.IterableDataset),
        "start_method": _start_method(loader),
        "collate": getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__name__),
    }
    number = _loader_numbers.setdefault(repr(fields), len(_loader_numbers))
    name = f"{dataset.__name__}#{number}"
    iterator._stepscope_name = name
    _describe_probe.fact("dataloader", name=name, **fields)


describe = _describe_probe.protect(_describe)


def _sampler_batch_size(loader: Any) -> int | None:
    return getattr(getattr(loader, "batch_sampler", None), "batch_size", None)


def _start_method(loader: Any) -> str | None:
    if not loader.num_workers:
        return None
    context = loader.multiprocessing_context or torch.multiprocessing.get_context()
    return str(context.get_start_method())


def _timed_fetch(original: Callable[..., Any]) -> Callable[..., Any]:
    def fetch(self: Any, index: Any) -> Any:
        times = self.__dict__.get("_stepscope_times")
        if times is None:
            times = self._stepscope_times = FetchTimes()
            watch_fetcher(self, times)
        inside, outermost.inside = outermost.inside, True  # modules here are transforms
        span = _fetch_probe.begin(Kind.FETCH, times.dataset_name)
        cpu = _thread_time()
        try:
            return original(self, index)
        finally:
            times.flush()
            _fetch_probe.end(span, value=_thread_time() - cpu)
            outermost.inside = inside

    return fetch


class FetchTimes:
    """Time spent in the samples and transforms of the batch that is being made."""

    def __init__(self) -> None:
        self.dataset_name = ""
        self.chains: list[ChainTimes] = []
        self._count = 0
        self._first_ns = 0
        self._last_ns = 0
        self._total_ns = 0

    def sample(self, start_ns: int, end_ns: int) -> None:
        """One sample was made."""
        duration = end_ns - start_ns
        if not self._count:
            self._first_ns = start_ns
        self._count += 1
        self._last_ns = end_ns
        self._total_ns += duration
        if duration >= SLOW_SAMPLE_NS:
            _fetch_probe.write(Kind.SAMPLE, self.dataset_name, start_ns, end_ns)

    def _flush(self) -> None:
        if self._count:
            name, first, last = self.dataset_name, self._first_ns, self._last_ns
            _fetch_probe.write(Kind.SAMPLES, name, first, last, self._total_ns)
            for chain in self.chains:
                for transform, spent_ns in chain.take():
                    _fetch_probe.write(Kind.TRANSFORM, transform, first, last, spent_ns)
            self._count = self._total_ns = 0

    flush = _fetch_probe.protect(_flush)


def _watch_fetcher(fetcher: Any, times: FetchTimes) -> None:
    """Time what one fetcher calls; it alone sees the stand-ins, not the user's objects."""
    dataset = fetcher.dataset
    times.dataset_name = type(dataset).__name__
    worker = get_worker_info()
    if worker is not None:
        _fetch_probe.fact(
            "dataloader_worker",
            worker=worker.id,
            num_workers=worker.num_workers,
            dataset=times.dataset_name,
        )
        stacks.watch_this_thread(stacks.WORKER_PERIOD_S)
    times.chains = watch_chains(dataset, in_worker=worker is not None)
    if hasattr(fetcher, "dataset_iter"):
        if not hasattr(fetcher.dataset_iter, "state_dict"):  # others ask such an iterator for it
            fetcher.dataset_iter = _timed_iterator(fetcher.dataset_iter, times)
    elif getattr(dataset, "__getitems__", None):
        fetcher.dataset = _TimedBatchDataset(dataset, times)
    else:
        fetcher.dataset = _TimedDataset(dataset, times)
    fetcher.collate_fn = _timed_collate(fetcher.collate_fn)


watch_fetcher = _fetch_probe.protect(_watch_fetcher)


class _TimedDataset:
    """Stands in for a map-style dataset inside one fetcher."""

    def __init__(self, dataset: Any, times: FetchTimes) -> None:
        self._dataset = dataset
        self._times = times

    def __getitem__(self, index: Any) -> Any:
        began = _now()
        item = self._dataset[index]
        self._times.sample(began, _now())
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class _TimedBatchDataset(_TimedDataset):
    """Stands in for a dataset that makes all samples of a batch in one call."""

    def __getitems__(self, indices: Any) -> Any:
        began = _now()
        items = self._dataset.__getitems__(indices)
        self._times.sample(began, _now())
        return items


def _timed_iterator(iterator: Iterator[Any], times: FetchTimes) -> Iterator[Any]:
    class Timed:
        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            began = _now()
            item = next(iterator)
            times.sample(began, _now())
            return item

    return Timed()


def _timed_collate(collate: Callable[..., Any]) -> Callable[..., Any]:
    name = getattr(collate, "__qualname__", type(collate).__name__)

    def timed(*args: Any, **kwargs: Any) -> Any:
        span = _fetch_probe.begin(Kind.COLLATE, name)
        try:
            return collate(*args, **kwargs)
        finally:
            _fetch_probe.end(span)

    return timed


def _timed_pinning(original: Callable[..., Any]) -> Callable[..., Any]:
    pinning = Outermost()

    def pin_memory(*args: Any, **kwargs: Any) -> Any:
        if pinning.inside:  # it calls itself for the members of a batch
            return original(*args, **kwargs)
        pinning.inside = True
        span = _pin_probe.begin(Kind.PIN)
        try:
            return original(*args, **kwargs)
        finally:
            _pin_probe.end(span)
            pinning.inside = False

    return pin_memory
