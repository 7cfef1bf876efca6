"""The sampler protocol and what samplers share.

One sampler reads one source of the node (`/proc/stat`, NVML, …) and yields plain samples. It
keeps whatever it needs from the last tick itself, so that the loop around it only has to call
`sample` and write down what comes back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

__all__ = ["Rates", "Sample", "Sampler", "Unavailable", "read_bytes"]

_CHUNK_BYTES = 1 << 16
_NS_PER_S = 1_000_000_000


class Sample(NamedTuple):
    """One value of one metric of one device, in the unit of `schema.METRIC_TYPES`."""

    metric: str
    device: str
    """Core number, GPU number, disk, interface or pid; empty for the whole node."""
    value: float


class Sampler(Protocol):
    """A source of samples."""

    group: str
    """Names the source in `NodeInfo.metrics_missing` and in messages."""

    def sample(self, now_ns: int) -> Iterable[Sample]:
        """Samples of this tick.

        *now_ns* is the time of the tick on any clock that never goes backwards, the same at
        every call. Rates are over the time since the last call; the first call yields none.
        What comes back may be lazy, so read it to its end.
        """
        ...


class Unavailable(Exception):  # noqa: N818 - a fact about the node, not an error
    """A group of metrics cannot be had on this node; the message is one sentence."""


def read_bytes(path: str) -> bytes:
    """The whole of a small kernel file.

    A third of the cost of `Path.read_bytes`, which allocates a buffered reader and asks for the
    file's size that `/proc` does not know.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, _CHUNK_BYTES)
        # A seq_file hands out whole records only, so a short read is not the end of the file.
        while more := os.read(descriptor, _CHUNK_BYTES):
            data += more
        return data
    finally:
        os.close(descriptor)


class Rates:
    """Turns cumulative counters of devices into rates per second."""

    def __init__(self, *metrics: str) -> None:
        self._metrics = metrics
        self._before: Mapping[str, tuple[int, ...]] = {}
        self._before_ns = 0

    def update(self, now_ns: int, counters: Mapping[str, tuple[int, ...]]) -> Iterator[Sample]:
        """Rates since the last call, of the devices that were there then.

        *counters* has one counter per metric for each device. A device with a counter that went
        backwards was removed and added again, so that none of its counters tell a rate.
        """
        before, elapsed_s = self._before, (now_ns - self._before_ns) / _NS_PER_S
        self._before, self._before_ns = counters, now_ns
        if elapsed_s <= 0:
            return
        for device, values in counters.items():
            grown = [new - old for new, old in zip(values, before.get(device, ()), strict=False)]
            if not grown or min(grown) < 0:
                continue
            for metric, growth in zip(self._metrics, grown, strict=True):
                yield Sample(metric, device, growth / elapsed_s)
