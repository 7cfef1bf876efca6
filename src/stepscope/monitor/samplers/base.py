"""Sampler protocol and shared code of samplers, and their failures.

A sampler reads one source of the node (`/proc/stat`, NVML, …) and yields plain samples. It stores
its own state of the last sampling tick, so that the sampling loop only has to call `sample` and to
record the result.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

import msgspec

from stepscope import quantities, schema

_CHUNK_BYTES = 1 << 16
_NS_PER_S = 1_000_000_000


class Sample(NamedTuple):
    """Value of one metric of one device, in the unit of `schema.METRIC_TYPES`."""

    metric: str
    device: str
    """Core number, GPU number, disk, interface or pid; empty for the whole node."""
    value: float


class Sampler(Protocol):
    """Source of samples."""

    group: str
    """Name of the source in `NodeInfo.metrics_missing` and in messages."""

    def sample(self, now_ns: int) -> Iterable[Sample]:
        """Sample the source once.

        *now_ns* is the time of the sampling tick on a monotonic clock, the same clock at every
        call. Rates are over the time since the last call; the first call yields none. The result
        may be lazy, so iterate over all of it.
        """
        ...


class Unavailable(Exception):  # noqa: N818 - a fact about the node, not an error
    """A group of metrics is unavailable on this node; the message is one sentence."""


def read_bytes(path: str) -> bytes:
    """Read a small kernel file to its end.

    A third of the cost of `Path.read_bytes`, which allocates a buffered reader and asks for the
    file's size that `/proc` does not know.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, _CHUNK_BYTES)
        # A seq_file returns complete records only, so a short read is not the end of the file.
        while more := os.read(descriptor, _CHUNK_BYTES):
            data += more
        return data
    finally:
        os.close(descriptor)


class Rates:
    """Rates per second from cumulative counters of devices."""

    def __init__(self, *metrics: str) -> None:
        self._metrics = metrics
        self._previous: Mapping[str, tuple[int, ...]] = {}
        self._previous_ns = 0

    def update(self, now_ns: int, counters: Mapping[str, tuple[int, ...]]) -> Iterator[Sample]:
        """Compute rates since the last call, of the devices that existed then.

        *counters* has one counter per metric for every device. A device with a decreased counter
        was removed and added again, so that its counters give no rates.
        """
        previous, elapsed_s = self._previous, (now_ns - self._previous_ns) / _NS_PER_S
        self._previous, self._previous_ns = counters, now_ns
        if elapsed_s <= 0:
            return
        for device, values in counters.items():
            old_values = previous.get(device, ())
            increases = [new - old for new, old in zip(values, old_values, strict=False)]
            if not increases or min(increases) < 0:
                continue
            for metric, growth in zip(self._metrics, increases, strict=True):
                yield Sample(metric, device, growth / elapsed_s)


RESPONSE_TIMEOUT_S = 1.0
"""Time that all samplers together may hold up the sampling tick, once per hang."""
REPLACEMENT_TIMEOUT_S = 0.1
"""Time for which the samplers after one that does not respond wait for it."""


class SamplerError(Exception):
    """A source could not be sampled; the message is one clause."""


class GuardedSampler:
    """Sampler that is left alone while it does not respond."""

    def __init__(self, sampler: Sampler) -> None:
        self.group = sampler.group
        self._sampler = sampler
        self._results: SimpleQueue[list[Sample] | SamplerError] = SimpleQueue()
        self._is_late = False

    def is_ready(self) -> bool:
        """Return True unless an earlier tick has not been responded to."""
        if self._is_late:
            try:
                self._results.get_nowait()  # of an earlier tick, so its time would be wrong
            except Empty:
                return False
            self._is_late = False
        return True

    def respond(self, now_ns: int) -> None:
        """Sample the source, in a thread that may hang."""
        try:
            samples = list(self._sampler.sample(now_ns))
            for sample in samples:
                _check(sample)
        except Exception as error:  # noqa: BLE001 - one source must not end the others
            self._results.put(SamplerError(str(error) or type(error).__name__))
        else:
            self._results.put(samples)

    @property
    def has_responded(self) -> bool:
        """True if there is a response that was not collected."""
        return not self._results.empty()

    def collect(self) -> list[Sample] | SamplerError:
        """Return the response, or an error without one."""
        if not self._is_late:
            try:
                return self._results.get_nowait()
            except Empty:
                self._is_late = True
        return SamplerError("no response")


class SamplerThread:
    """Thread that reads samplers one after the other; others read the rest while it waits for one.

    A driver can hang in a system call that no signal ends, so the thread is a daemon: it does not
    hold up the end of the monitor. A thread for each sampler would need ten times as many switches
    between threads, and memory for each.
    """

    def __init__(self) -> None:
        self._ticks: SimpleQueue[tuple[GuardedSampler, int]] = SimpleQueue()
        self._is_over = threading.Event()
        """Set when no sampler is left to read: one wait is cheaper than one for each."""
        self._current: threading.Thread | None = None

    def read(
        self, samplers: Collection[GuardedSampler], now_ns: int
    ) -> Iterator[tuple[str, list[Sample] | SamplerError]]:
        """Read samplers, of which those that hang share one timeout.

        Yields:
            The group of each sampler, with its samples or its error.
        """
        deadline_s = time.monotonic() + RESPONSE_TIMEOUT_S
        ready = [sampler for sampler in samplers if sampler.is_ready()]
        for sampler in ready:
            self._ticks.put((sampler, now_ns))
        if self._current is None:
            self._start()
        while not all(sampler.has_responded for sampler in ready):
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                self._current = None  # it hangs
                break
            has_ended = self._is_over.wait(min(remaining_s, REPLACEMENT_TIMEOUT_S))
            self._is_over.clear()
            if not has_ended:
                for _ in range(self._ticks.qsize()):
                    self._start()
        for sampler in samplers:
            yield sampler.group, sampler.collect()

    def _start(self) -> None:
        """Start a thread for the samplers that are not read yet; the present one ends after its
        next response."""
        self._current = threading.Thread(target=self._run, daemon=True, name="samplers")
        self._current.start()

    def _run(self) -> None:
        is_current = True
        while is_current:
            sampler, now_ns = self._ticks.get()
            sampler.respond(now_ns)
            is_current = self._current is threading.current_thread()
            if self._ticks.empty():
                self._is_over.set()


def _check(sample: Sample) -> None:
    """Raise ValueError unless the sample can be recorded."""
    metric, device, value = sample
    if metric not in schema.METRIC_TYPES or not isinstance(device, str) or not math.isfinite(value):
        raise ValueError(f"invalid sample {str(sample)[:100]}")


class Failure(msgspec.Struct):
    """Failures of one source."""

    first_ns: int
    """Time of the first one, since the start of the job."""
    last_ns: int
    """Time from which it could be sampled again or was left out, or of the last one."""
    count: int
    """Number of times that it began to fail."""
    is_failing: bool
    reason: str


class SamplerFailures:
    """Failures of the samplers of this node, by group."""

    def __init__(self) -> None:
        self.by_group: dict[str, Failure] = {}

    def add(self, group: str, reason: str, elapsed_ns: int) -> None:
        """Note that a source cannot be sampled.

        Args:
            group: the source.
            reason: one clause.
            elapsed_ns: time since the start of the job.
        """
        failure = self.by_group.get(group)
        if failure is None:
            self.by_group[group] = Failure(elapsed_ns, elapsed_ns, 1, True, reason)
            return
        failure.count += not failure.is_failing
        failure.is_failing, failure.last_ns, failure.reason = True, elapsed_ns, reason

    def end(self, group: str, elapsed_ns: int) -> None:
        """Note that a source is sampled, or left out; *elapsed_ns* is the time since the start of
        the job."""
        failure = self.by_group.get(group)
        if failure is not None and failure.is_failing:
            failure.is_failing, failure.last_ns = False, elapsed_ns

    @property
    def notes(self) -> list[str]:
        """One clause per source."""
        return [_describe(group, failure) for group, failure in self.by_group.items()]


def _describe(group: str, failure: Failure) -> str:
    first, last = quantities.duration(failure.first_ns), quantities.duration(failure.last_ns)
    if failure.count > 1:
        times = quantities.count_of(failure.count, "time")
        when = f"{times} between {first} and {last} after the start of the job"
        if failure.is_failing:
            when += ", and still cannot be"
    elif failure.is_failing:
        when = f"from {first} after the start of the job on"
    else:
        when = f"from {first} to {last} after the start of the job"
    return f"{group} could not be sampled {when}: {failure.reason}"
