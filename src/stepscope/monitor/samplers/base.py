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


class SamplerError(Exception):
    """A source could not be sampled; the message is one clause."""


class GuardedSampler:
    """Sampler in a thread of its own, which is left alone while it does not respond.

    A driver can hang in a system call that no signal ends, so the thread is a daemon: it does not
    hold up the end of the monitor.
    """

    def __init__(self, sampler: Sampler) -> None:
        self.group = sampler.group
        self._sampler = sampler
        self._ticks: SimpleQueue[int] = SimpleQueue()
        self._results: SimpleQueue[list[Sample] | SamplerError] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_late = False

    def request(self, now_ns: int) -> None:
        """Start to sample, unless an earlier tick has not been responded to."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._respond, daemon=True, name=self.group)
            self._thread.start()
        if self._is_late:
            try:
                self._results.get_nowait()  # of an earlier tick, so its time would be wrong
            except Empty:
                return
            self._is_late = False
        self._ticks.put(now_ns)

    def collect(self, deadline_s: float) -> list[Sample]:
        """Return the samples that were requested.

        Args:
            deadline_s: monotonic time until which the sampler may respond.

        Raises:
            SamplerError: the sampler fails, or does not respond in time.
        """
        if self._is_late:
            raise SamplerError("no response")
        try:
            result = self._results.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except Empty:
            self._is_late = True
            raise SamplerError("no response") from None
        if isinstance(result, SamplerError):
            raise result
        return result

    def _respond(self) -> None:
        while True:
            now_ns = self._ticks.get()
            try:
                samples = list(self._sampler.sample(now_ns))
                for sample in samples:
                    _check(sample)
            except Exception as error:  # noqa: BLE001 - one source must not end the others
                self._results.put(SamplerError(str(error) or type(error).__name__))
            else:
                self._results.put(samples)


def read_samplers(
    samplers: Collection[GuardedSampler], now_ns: int
) -> Iterator[tuple[str, list[Sample] | SamplerError]]:
    """Read all samplers at once, so that those that hang share one timeout.

    Yields:
        The group of each sampler, with its samples or its error.
    """
    deadline_s = time.monotonic() + RESPONSE_TIMEOUT_S
    for sampler in samplers:
        sampler.request(now_ns)
    for sampler in samplers:
        try:
            yield sampler.group, sampler.collect(deadline_s)
        except SamplerError as error:
            yield sampler.group, error


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
