"""Sampler protocol and shared code of samplers.

A sampler reads one source of the node (`/proc/stat`, NVML, …) and yields plain samples. It stores
its own state of the last sampling tick, so that the sampling loop only has to call `sample` and to
record the result.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

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
