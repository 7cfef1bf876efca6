"""Steps of a growing run until their exposed exchange is known.

Collectives are written some seconds later than spans: a process dumps its recorder every few
seconds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np

from stepscope.analysis import RecordedCalls, Spans, Steps
from stepscope.intervals import Intervals
from stepscope.rules import RankStepTimes
from stepscope.run import measure_step_exchange, read_calls
from stepscope.schema import FlightRecorderFact
from stepscope.store import RunReader

MAX_WAIT_NS = 20_000_000_000
"""Collectives that were not written so long after a step were not recorded."""
LOOK_BACK_NS = 1_000_000_000
"""The call before a step tells whether its first one is missing."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Steps of one rank that were found together."""

    times: RankStepTimes
    spans: Spans
    """Backward passes and collectives of the training thread."""
    is_on_host: bool
    """True if phases were timed by the clock of the host."""


class UnsettledSteps:
    """Steps that were found, of which each is returned once."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._chunks: dict[str, list[_Chunk]] = defaultdict(list)

    def add(self, times: RankStepTimes, spans: Spans, steps: Steps) -> None:
        """Add steps of a rank, with the spans of its process."""
        on_thread = spans.take(spans.thread == steps.thread).of("backward", "communication")
        chunk = _Chunk(times, on_thread, steps.clock == "host")
        self._chunks[times.process.process].append(chunk)

    def discard(self, end_ns: int) -> None:
        """Discard the steps that `settle` would have returned for a range with this end.

        No rule reads settled steps then.
        """
        for name, chunks in self._chunks.items():
            self._chunks[name] = [
                chunk for chunk in chunks if chunk.times.end_ns[-1] >= end_ns - MAX_WAIT_NS
            ]

    def settle(self, end_ns: int, *, final: bool) -> list[RankStepTimes]:
        """Return the steps whose exchange is known or will not be, in the order of their numbers.

        Args:
            end_ns: end of the range of time that was read.
            final: nothing follows.
        """
        waiting = {name: chunks for name, chunks in self._chunks.items() if chunks}
        recorded = [name for name, chunks in waiting.items() if _has_recorder(chunks[0])]
        starts = [int(waiting[name][0].times.start_ns[0]) for name in recorded]
        calls = read_calls(self._reader, recorded, min(starts, default=0) - LOOK_BACK_NS)
        settled = []
        for name, chunks in waiting.items():
            of_process = calls.get(name)
            until_ns = end_ns - MAX_WAIT_NS
            if final or name not in recorded:
                until_ns = np.iinfo(np.int64).max
            elif of_process is not None:
                until_ns = max(until_ns, int(of_process.t_ns[-1]))
            rest = []
            for chunk in chunks:
                count = int(np.searchsorted(chunk.times.end_ns, until_ns))
                if count:
                    settled.append(_settle(chunk, count, of_process))
                if count < len(chunk.times):
                    rest.append(replace(chunk, times=chunk.times.between(count, len(chunk.times))))
            self._chunks[name] = rest
        return settled


def _has_recorder(chunk: _Chunk) -> bool:
    facts = chunk.times.process.facts_of(FlightRecorderFact)
    return chunk.is_on_host and any(fact.is_available for fact in facts)


def _settle(chunk: _Chunk, count: int, calls: RecordedCalls | None) -> RankStepTimes:
    times = chunk.times.between(0, count)
    exchange = np.full(count, np.nan)
    if calls is not None:
        exchange = measure_step_exchange(
            chunk.spans, Intervals(times.start_ns, times.end_ns), calls
        )
    return replace(times, exchange_ns=exchange)
