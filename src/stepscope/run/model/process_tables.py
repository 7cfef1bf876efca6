"""Spans and stack samples of the processes of a run, read once or near a range of time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence, Sized
from functools import partial
from typing import Generic, TypeVar

from stepscope import analysis, schema, store
from stepscope.analysis import PHASE_OF_KIND
from stepscope.run.model.clock import ALWAYS, Period
from stepscope.run.model.tables import NO_SPANS, count_spans, load_spans, read_stack_samples

STEP_KINDS = (*PHASE_OF_KIND, "step", "mode", "window", "device")
MAX_CACHED_SPANS = 4_000_000
"""Limit of spans in memory; one takes 13 bytes."""
MAX_CACHED_SAMPLES = 1_000_000
"""Limit of stack samples in memory, and of times without a core; one takes about forty bytes."""


ValueT = TypeVar("ValueT", bound=Sized)


class SizedCache(Generic[ValueT]):
    """Values by key. The least recently used are dropped, and made again on demand.

    Args:
        max_size: limit of the sum of the lengths of the values.
    """

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._values: OrderedDict[str, ValueT] = OrderedDict()
        self._size = 0

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def peek(self, key: str) -> ValueT | None:
        """Return the value of a key if it is in the cache."""
        return self._values.get(key)

    def get(self, key: str, make: Callable[[], ValueT]) -> ValueT:
        """Return the value of a key, made if it is not in the cache."""
        if key in self._values:
            self._values.move_to_end(key)
            return self._values[key]
        value = self._values[key] = make()
        self._size += len(value)
        while self._size > self._max_size and len(self._values) > 1:
            _, dropped = self._values.popitem(last=False)
            self._size -= len(dropped)
        return value


class ProcessTables:
    """Spans and stack samples of the processes of a run.

    What was read of a whole run is cached: the least recently used is dropped and read again on
    demand, because all of a long job of many ranks exceeds the memory.

    Args:
        reader: the run.
    """

    def __init__(self, reader: store.RunReader) -> None:
        self._reader = reader
        self._step_spans = SizedCache[analysis.Spans](MAX_CACHED_SPANS)
        self._delays = SizedCache[analysis.Spans](MAX_CACHED_SAMPLES)
        self._samples = SizedCache[analysis.StackSamples](MAX_CACHED_SAMPLES)

    def spans(
        self, process: schema.ProcessInfo, kinds: tuple[str, ...], near: Period = ALWAYS
    ) -> analysis.Spans:
        """Read the spans of some kinds that reach into a range of time."""
        name = process.process
        spans = load_spans(self._reader, [name], kinds, node=process.node, period=near)
        return spans.get(name, NO_SPANS)

    def step_spans(self, process: schema.ProcessInfo) -> analysis.Spans:
        """Return the spans by which steps are found."""
        return self._step_spans.get(process.process, partial(self.spans, process, STEP_KINDS))

    def step_spans_near(self, process: schema.ProcessInfo, near: Period) -> analysis.Spans:
        """Return those that reach into a range of time."""
        spans = self._step_spans.peek(process.process)
        if spans is None or len(spans) > MAX_CACHED_SPANS:  # masks of all would take longer
            spans = self.spans(process, STEP_KINDS, near)
        return spans.take((spans.start < near.end_ns) & (spans.end > near.start_ns))

    def cache_step_spans(self, processes: Sequence[schema.ProcessInfo]) -> None:
        """Read the spans by which steps are found, of processes of one node: in one query if they
        fit into the cache."""
        missing = [process for process in processes if process.process not in self._step_spans]
        if len(missing) < 2 or count_spans(self._reader, missing[0].node) > MAX_CACHED_SPANS:
            return
        names = [process.process for process in missing]
        spans = load_spans(self._reader, names, STEP_KINDS, node=missing[0].node)
        for name in names:
            self._step_spans.get(name, partial(spans.pop, name, NO_SPANS))

    def delays(self, process: schema.ProcessInfo, near: Period) -> analysis.Spans | None:
        """Return the times without a core of the sampled thread that reach into a range of time, or
        end where it starts; None where not recorded."""
        if not any(sampler.counts_delays for sampler in process.facts_of(schema.StackSamplerFact)):
            return None
        # A delay may end with the first sample.
        reaching = near if near == ALWAYS else Period(near.start_ns - 1, near.end_ns)
        read = partial(self.spans, process, ("run_queue",), reaching)
        return self._delays.get(process.process, read) if near == ALWAYS else read()

    def samples(self, process: schema.ProcessInfo, near: Period) -> analysis.StackSamples:
        """Return the stack samples in a range of time, weighted by the time in which the thread did
        not wait for a core."""
        read = partial(self._weigh, process, near)
        return self._samples.get(process.process, read) if near == ALWAYS else read()

    def _weigh(self, process: schema.ProcessInfo, near: Period) -> analysis.StackSamples:
        samples = read_stack_samples(self._reader, process, period=near)
        delays = self.delays(process, near)
        return samples if delays is None else samples.without_delays(delays)
