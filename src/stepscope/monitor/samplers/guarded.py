"""Samplers that may fail: an error, a hang or a wrong value costs one source its samples only."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterator
from queue import Empty, SimpleQueue

from stepscope.monitor.samplers.base import Sample, Sampler
from stepscope.schema import METRIC_TYPES

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
    if metric not in METRIC_TYPES or not isinstance(device, str) or not math.isfinite(value):
        raise ValueError(f"invalid sample {str(sample)[:100]}")
