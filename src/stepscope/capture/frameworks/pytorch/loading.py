"""Adapter of the input pipeline, from the wait of the training thread to single samples.

Recorded in the training thread: the wait for each batch, and the number of prefetched batches at
the request. Recorded in the process that creates the batch (a worker, or the training process):
the fetch, its samples, the transforms of a Compose-like chain, collating, pinning. The stack
sampler attributes the remaining time. If batches are so quick that these details would cost too
much, they are recorded for one batch in N.

Thinning of details, where recording all of them would slow the job down. Steps and phases are
always recorded. The details of an activity that repeats, such as the samples of a batch, are
recorded for one activity in N, so that they cost at most `SHARE` of the time. Which ones are
recorded follows from their number only, not from their duration: that would bias the recorded ones.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import get_worker_info

from stepscope.capture import census, stacks
from stepscope.capture.frameworks import objects
from stepscope.capture.frameworks.progress import UNKNOWN_COUNT, progress
from stepscope.capture.frameworks.pytorch.models import note_padding
from stepscope.capture.frameworks.pytorch.modules import ReentryGuard, module_call, training
from stepscope.capture.frameworks.pytorch.patching import (
    name_of,
    patch,
    patch_internal,
    read_attribute,
)
from stepscope.capture.frameworks.pytorch.transforms import ChainTimes, watch_chains
from stepscope.capture.guard import Probe
from stepscope.spool import Flag, Kind

SHARE = 0.0025
"""Share of the time between two activities that their details may cost, on average."""
COLD_FACTOR = 3
"""Cost of a probe in a job divided by that in a tight loop: in a job the probe's code and data are
rarely in the caches, and it displaces those of the job. Measured by benchmarks/short_step_cost.py.
"""
ADJUSTMENT_COUNT = 64
"""Activities after which N is adjusted. The first ones are all recorded in detail."""
MAX_EVERY = 256


class Thinning:
    """Selection of the activities to record in detail: one in `detailed_every`, a power of two.

    A caller may take activities that are not recorded in detail from `plain_left` itself, which is
    quicker than a call of `select`.
    """

    __slots__ = (
        "_activities",
        "_cost_ns",
        "_detailed",
        "_start_ns",
        "detailed_every",
        "plain_left",
    )

    def __init__(self) -> None:
        self.detailed_every = 1
        self.plain_left = 0
        """Next activities that are not to be recorded in detail."""
        self._activities = 0
        """Activities since the last adjustment, as far as they are selected or in `plain_left`."""
        self._detailed = 0
        self._cost_ns = 0.0
        self._start_ns = 0

    def select(self) -> bool:
        """Return True if the activity that starts now is to be recorded in detail."""
        if self.plain_left:
            self.plain_left -= 1
            return False
        if self._activities >= ADJUSTMENT_COUNT:
            self._adjust(time.monotonic_ns())
        self._start_ns = self._start_ns or time.monotonic_ns()
        self._activities += self.detailed_every
        self.plain_left = self.detailed_every - 1
        return True

    def charge(self, cost_ns: float) -> None:
        """Add the cost of recording one activity in detail."""
        self._cost_ns += cost_ns
        self._detailed += 1

    def _adjust(self, now_ns: int) -> None:
        """Set `detailed_every` from the costs and the time since the last adjustment.

        It decreases only by a factor of four or more, so that it does not alternate.
        """
        interval_ns = (now_ns - self._start_ns) / self._activities
        if self._detailed and interval_ns > 0:
            needed = self._cost_ns / self._detailed / (SHARE * interval_ns)
            number = 1
            while number < needed and number < MAX_EVERY:
                number *= 2
            if number > self.detailed_every or number * 4 <= self.detailed_every:
                self.detailed_every = number
        self._start_ns = now_ns
        self._cost_ns, self._detailed, self._activities = 0.0, 0, 0


SLOW_SAMPLE_NS = 100_000
"""Samples that take at least this long get a separate record, which costs 1% of that time."""
NOT_DETAILED = -1
"""Value of a fetch whose CPU time, samples, transforms and collation are not recorded."""
CALIBRATION_ROUNDS = 8

_wait_probe = Probe("waits for data", coarse=True)
_fetch_probe = Probe("batch fetches")
_pin_probe = Probe("pinned-memory copies")
_describe_probe = Probe("data loader descriptions")
_now = time.monotonic_ns
_thread_time = time.thread_time_ns


def install() -> None:
    """Patch the iterator's `__next__`, the loader's `__iter__`, and the fetchers' `fetch`."""
    patch_internal("loader_next", _timed_next)
    patch(torch.utils.data.DataLoader, "__iter__", _timed_iter)
    patch_internal("map_fetch", _timed_fetch)
    patch_internal("iterable_fetch", _timed_fetch)
    patch_internal("pin_memory", _timed_pinning)


def _timed_next(original: Callable[..., Any]) -> Callable[..., Any]:
    def next_batch(self: Any) -> Any:
        progress.notify_fetch_start()
        if not module_call.active:
            stacks.watch_this_thread(stacks.MAIN_PERIOD_S)
        start_ns, attributes = _now(), self.__dict__
        name = attributes.get("_stepscope_name", "DataLoader")
        queue = _PrefetchQueue.of(self) if "_data_queue" in attributes else None
        batch_count = UNKNOWN_COUNT if queue is None else queue.batch_count
        span = _wait_probe.start(Kind.DATA_WAIT, name, batch_count)
        try:
            batch = original(self)
        except BaseException:
            _wait_probe.end(span, flags=Flag.NO_RESULT)
            progress.notify_fetch_end(has_batch=False)
            raise
        progress.notify_fetch_end(has_batch=True)
        had_next = queue is None or queue.had_next(self)
        _wait_probe.end(span, value=None if had_next else 0)
        progress.data_wait_ns += _now() - start_ns
        return batch

    take = next_batch
    if training is not None:
        training.wait_probe = _wait_probe
        training.next_original, training.next_slow = original, next_batch
        take = training.next_batch

    def __next__(self: Any) -> Any:  # noqa: N807
        return take(self)

    return __next__


class _PrefetchQueue(NamedTuple):
    """State of the prefetch queue when the training thread requests the next batch.

    A loader returns batches in order, so a worker may have finished a later batch while another
    worker still prepares the next one. In that case the next batch was not ready, which is only
    known afterwards, from the number of results received until the next batch arrived.
    """

    batch_count: int
    """Finished batches."""
    received_count: int
    """Results that will have been received once the queue is empty."""

    @classmethod
    def of(cls, iterator: Any) -> _PrefetchQueue | None:
        """Read the state; None where it is not known."""
        try:
            reordered = sum(len(info) == 2 for info in iterator._task_info.values())
            queued = int(iterator._data_queue.qsize())
            return cls(queued + reordered, _count_received(iterator) + queued)
        except (NotImplementedError, AttributeError, RuntimeError, OSError, TypeError, ValueError):
            return None

    def had_next(self, iterator: Any) -> bool:
        return self.batch_count <= 0 or _count_received(iterator) <= self.received_count


def _count_received(iterator: Any) -> int:
    """Count the results that the iterator has taken from its queue so far."""
    return int(iterator._send_idx - iterator._tasks_outstanding)


_loader_numbers: dict[str, int] = {}


def _timed_iter(original: Callable[..., Any]) -> Callable[..., Any]:
    def __iter__(self: Any) -> Any:  # noqa: N807
        progress.notify_work_start()
        start_ns = _now()
        dataset = type(read_attribute(self, "dataset")).__name__
        span = _wait_probe.start(Kind.LOADER_START, dataset)
        try:
            iterator = original(self)
            describe(self, iterator)
        finally:
            _wait_probe.end(span, value=objects.loaders.find_number(self))
            progress.data_wait_ns += _now() - start_ns
        return iterator

    return __iter__


def _describe(loader: Any, iterator: Any) -> None:
    dataset = type(read_attribute(loader, "dataset"))
    label = f"{dataset.__module__}.{dataset.__qualname__}"
    fields = {
        "dataset": label,
        "batch_size": _batch_size(loader) or _batch_size(read_attribute(loader, "batch_sampler")),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "drop_last": bool(loader.drop_last),
        "iterable": issubclass(dataset, torch.utils.data.IterableDataset),
        "start_method": _start_method(loader),
        "collate": name_of(loader.collate_fn),
    }
    number = _loader_numbers.setdefault(repr(fields), len(_loader_numbers))
    name = f"{dataset.__name__}#{number}"
    iterator._stepscope_name = name
    _describe_probe.fact("dataloader", name=name, **fields)
    objects.loaders.note(loader, name)


describe = _describe_probe.protect(_describe)


def _batch_size(owner: object) -> int | None:
    """Return the batch size of a loader or a batch sampler; None where it is computed."""
    size = read_attribute(owner, "batch_size")
    return size if type(size) is int else None


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
        was_active, module_call.active = module_call.active, True  # modules here are transforms
        try:
            thinning = times.thinning
            # In the training process the wait for the batch is recorded in any case.
            if thinning.plain_left and not times.is_in_worker:
                thinning.plain_left -= 1
                return original(self, index)
            return recorded_fetch(self, index, times)
        finally:
            module_call.active = was_active

    def recorded_fetch(fetcher: Any, index: Any, times: FetchTimes) -> Any:
        if times.is_in_worker:
            census.follow(fetcher.__dict__.get("dataset"))
        is_detailed = times.select(fetcher)
        span = _fetch_probe.start(Kind.FETCH, times.dataset_name)
        cpu = _thread_time() if is_detailed else 0
        try:
            batch = original(fetcher, index)
        finally:
            if is_detailed:
                times.flush(fetcher)
                _fetch_probe.end(span, value=_thread_time() - cpu)
            else:
                _fetch_probe.end(span, value=NOT_DETAILED)
        if is_detailed:
            note_padding(batch, times.dataset_name)
        return batch

    return fetch


class FetchTimes:
    """Time spent in the samples and transforms of the current batch.

    The calls of a fetcher are timed through proxies; the user's objects are not changed. While a
    batch is not recorded in detail, the fetcher has the user's objects.
    """

    def __init__(self) -> None:
        self.dataset_name = ""
        self.is_in_worker = False
        self.chains: list[ChainTimes] = []
        self.thinning = Thinning()
        self.proxies: dict[str, Any] = {}
        """Attributes of the fetcher while a batch is recorded in detail."""
        self._replaced: dict[str, Any] = {}
        self._count = 0
        self._first_ns = 0
        self._last_ns = 0
        self._total_ns = 0

    def select(self, fetcher: Any) -> bool:
        """Return True if the next batch is to be recorded in detail, and prepare that."""
        previous = self.thinning.detailed_every
        is_detailed = self.thinning.select()
        if is_detailed:
            for chain in self.chains:
                chain.start()
            if not self._replaced:
                self._swap(fetcher)
        if self.thinning.detailed_every != previous:
            _fetch_probe.fact(
                "thinned", name=self.dataset_name, detailed_every=self.thinning.detailed_every
            )
        return is_detailed

    def _swap(self, fetcher: Any) -> None:
        """Exchange the proxies and the user's objects."""
        attributes = fetcher.__dict__
        if self._replaced:
            attributes.update(self._replaced)
            self._replaced = {}
        else:
            self._replaced = {name: attributes[name] for name in self.proxies}
            attributes.update(self.proxies)

    def add_sample(self, start_ns: int, end_ns: int) -> None:
        """Add the time of one sample."""
        duration = end_ns - start_ns
        if not self._count:
            self._first_ns = start_ns
        self._count += 1
        self._last_ns = end_ns
        self._total_ns += duration
        if duration >= SLOW_SAMPLE_NS:
            _fetch_probe.write(Kind.SAMPLE, self.dataset_name, start_ns, end_ns)

    def _flush(self, fetcher: Any) -> None:
        if self.thinning.plain_left:
            self._swap(fetcher)
        timed_count = 0
        if self._count:
            name, first, last = self.dataset_name, self._first_ns, self._last_ns
            _fetch_probe.write(Kind.SAMPLES, name, first, last, self._total_ns)
            for chain in self.chains:
                for transform, spent_ns in chain.take_times():
                    _fetch_probe.write(Kind.TRANSFORM, transform, first, last, spent_ns)
                    timed_count += self._count
        fixed_ns, sample_ns = _detail_cost_ns()
        self.thinning.charge(fixed_ns + sample_ns * (self._count + timed_count))
        self._count = self._total_ns = 0

    flush = _fetch_probe.protect(_flush)


@functools.cache
def _detail_cost_ns() -> tuple[float, float]:
    """Measure the cost of recording a batch in detail: of the batch, and of each of its samples.

    The records of a batch cost about as much as four reads of the thread's CPU time, in addition to
    the two reads themselves.
    """
    times, rounds = FetchTimes(), range(CALIBRATION_ROUNDS)
    fixed_ns = sample_ns = float("inf")
    for _ in rounds:
        start_ns = _now()
        for _ in rounds:
            _thread_time()
        middle_ns = _now()
        for _ in rounds:
            times.add_sample(_now() and 0, _now() and 0)
        fixed_ns = min(fixed_ns, 6 * (middle_ns - start_ns) / CALIBRATION_ROUNDS)
        sample_ns = min(sample_ns, (_now() - middle_ns) / CALIBRATION_ROUNDS)
    return COLD_FACTOR * fixed_ns, COLD_FACTOR * sample_ns


_thinnings: dict[str, Thinning] = {}
"""By dataset class: a fetcher lives for an epoch."""


def _watch_fetcher(fetcher: Any, times: FetchTimes) -> None:
    """Make the proxies of one fetcher."""
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
    times.is_in_worker = worker is not None
    times.thinning = _thinnings.setdefault(times.dataset_name, times.thinning)
    times.chains = watch_chains(dataset, in_worker=times.is_in_worker)
    if hasattr(fetcher, "dataset_iter"):
        # A stateful data loader reads `state_dict` of its iterator: leave such an iterator alone.
        if not hasattr(fetcher.dataset_iter, "state_dict"):
            times.proxies["dataset_iter"] = _timed_iterator(fetcher.dataset_iter, times)
    elif getattr(dataset, "__getitems__", None):
        times.proxies["dataset"] = _TimedBatchDataset(dataset, times)
    else:
        times.proxies["dataset"] = _TimedDataset(dataset, times)
    times.proxies["collate_fn"] = _timed_collate(fetcher.collate_fn)


watch_fetcher = _fetch_probe.protect(_watch_fetcher)


class _TimedDataset:
    """Proxy of a map-style dataset inside one fetcher."""

    def __init__(self, dataset: Any, times: FetchTimes) -> None:
        self._dataset = dataset
        self._times = times

    def __getitem__(self, index: Any) -> Any:
        start_ns = _now()
        item = self._dataset[index]
        self._times.add_sample(start_ns, _now())
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)


class _TimedBatchDataset(_TimedDataset):
    """Proxy of a dataset that returns all samples of a batch in one call."""

    def __getitems__(self, indices: Any) -> Any:
        start_ns = _now()
        items = self._dataset.__getitems__(indices)
        self._times.add_sample(start_ns, _now())
        return items


def _timed_iterator(iterator: Iterator[Any], times: FetchTimes) -> Iterator[Any]:
    class Timed:
        def __iter__(self) -> Iterator[Any]:
            return self

        def __next__(self) -> Any:
            start_ns = _now()
            item = next(iterator)
            times.add_sample(start_ns, _now())
            return item

    return Timed()


def _timed_collate(collate: Callable[..., Any]) -> Callable[..., Any]:
    name = name_of(collate)

    def timed(*args: Any, **kwargs: Any) -> Any:
        span = _fetch_probe.start(Kind.COLLATE, name)
        try:
            return collate(*args, **kwargs)
        finally:
            _fetch_probe.end(span)

    return timed


def _timed_pinning(original: Callable[..., Any]) -> Callable[..., Any]:
    pinning = ReentryGuard()

    def pin_memory(*args: Any, **kwargs: Any) -> Any:
        if pinning.active:  # recursive call for a member of the batch
            return original(*args, **kwargs)
        pinning.active = True
        span = _pin_probe.start(Kind.PIN)
        try:
            return original(*args, **kwargs)
        finally:
            _pin_probe.end(span)
            pinning.active = False

    return pin_memory
