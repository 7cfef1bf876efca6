"""Traces on the timeline: any window at any detail, partly cached in memory.

Wide windows consist of the levels of detail that the importer stored, narrow ones of single events,
which are read in blocks of time; the most recently used blocks are cached.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from stepscope import analysis, store
from stepscope.run import Run, RunClock, Trace
from stepscope.timeline.blocks import UNBOUNDED, Block, Levels, Names, read_block
from stepscope.timeline.content import Content, load_contents
from stepscope.timeline.counters import (
    Curve,
    DeviceLoad,
    TraceCounter,
    list_estimates,
    list_sampled_series,
    load_counter_curve,
    load_counters,
    load_device_loads,
    load_memory_curves,
    load_sampled_maxima,
)
from stepscope.timeline.spans import SpanTimeline

BLOCK_EVENTS = 16_000
"""Approximate number of events per block: reading more takes too long while scrolling."""
MAX_CACHED_RANGE_BLOCKS = 32
"""Blocks in a range up to which it is read through the cache."""
MAX_BLOCK_BYTES = 80 << 20
"""Cached blocks of one trace."""
MAX_NAMES = 200_000
"""Names of one trace in memory; beyond, its cache is discarded."""
MAX_TOTAL_BYTES = 120 << 20
"""Cached data of all traces; the trace in use may take more."""


class TraceTimeline:
    """Timeline of one trace. Lines are twice the number of a track, plus one for its shadows."""

    def __init__(self, trace: Trace, tracks: Collection[Content]) -> None:
        self._trace = trace
        self._tables = {table for track in tracks for table in track.tables}
        self._stored = sorted({level for track in tracks for level in track.levels})
        self._names = Names()
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._counters: dict[tuple[int, str, str], Curve] = {}

    @cached_property
    def levels(self) -> Levels | None:
        """Levels of detail; None if none are stored."""
        return Levels(self._trace, self._names, self._stored) if self._stored else None

    @cached_property
    def loads(self) -> dict[int, DeviceLoad]:
        """Load of each device, computed from its kernels."""
        return load_device_loads(self._trace)

    @cached_property
    def memory(self) -> dict[tuple[int, int, str], Curve]:
        """Memory held by the allocator of the framework; see `load_memory_curves`."""
        return load_memory_curves(self._trace)

    def counter(self, track: int, name: str, series: str) -> Curve:
        """Load one series of a counter of the trace, cached."""
        key = (track, name, series)
        if key not in self._counters:
            self._counters[key] = load_counter_curve(self._trace, *key)
        return self._counters[key]

    def read_ahead(self) -> Iterator[None]:
        """Read levels of detail, device loads and memory curves; yields in between."""
        if self.levels is not None:
            yield from self.levels.read_ahead()
        yield
        _ = self.loads
        yield
        _ = self.memory

    @property
    def size_bytes(self) -> int:
        """Cached memory in bytes."""
        levels: Levels | None = self.__dict__.get("levels")
        loads: dict[int, DeviceLoad] = self.__dict__.get("loads", {})
        memory: dict[tuple[int, int, str], Curve] = self.__dict__.get("memory", {})
        size = sum(part.size_bytes for part in (*memory.values(), *self._counters.values()))
        size += sum(part.size_bytes for part in loads.values())
        return size + (levels.size_bytes if levels else 0) + self._blocks_bytes()

    @property
    def name_count(self) -> int:
        """Number of different event names in memory."""
        return len(self._names.strings)

    def window(self, start: int, end: int, width: int) -> list[analysis.Slices]:
        """Read the slices that overlap a range.

        Events shorter than `width` may be summarized in buckets of at most that width; a summary
        may include events just outside the range.
        """
        levels = self.levels
        if levels is None:
            return [self._all_events.overlapping(start, end)] if self._tables else []
        level = levels.coarsest_below(width)
        if level is not None:
            return levels.select(level, start, end)
        alone = levels.alone.overlapping(start, end)
        return [
            alone,
            *(block.overlapping(start, end) for block in self._load_blocks(start, end, levels)),
        ]

    def events(self, start: int, end: int) -> list[analysis.Slices]:
        """Read the events that overlap a range, without summaries."""
        levels = self.levels
        if levels is None or end - start <= MAX_CACHED_RANGE_BLOCKS * self._block_ns:
            return self.window(start, end, 1)
        # A range this long would evict all other blocks from the cache.
        extent = start - levels.finest_ns, end
        block = read_block(self._trace, extent, levels, self._names, self._tables)
        return [levels.alone.overlapping(start, end), block.overlapping(start, end)]

    def find_row(self, event: int, start_ns: int) -> int:
        """Find the row of an event; 0 if there is no such event."""
        for slices in self.window(start_ns, start_ns + 1, 1):
            rows = slices.row[slices.event == event]
            if len(rows):
                return int(rows[0])
        return 0

    @cached_property
    def _end_ns(self) -> int:
        """End of the last event of any kind."""
        levels = self.levels
        return max(self._trace.end_ns, levels.end_ns if levels else 0)

    @cached_property
    def _block_ns(self) -> int:
        """Width of a block: a power of two near the width that holds `BLOCK_EVENTS` events."""
        trace, levels = self._trace, self.levels
        span = max(1, self._end_ns - trace.start_ns)
        target_ns = span * BLOCK_EVENTS // max(1, trace.event_count)
        min_ns = 4 * levels.finest_ns if levels else 1
        return int(1 << (max(target_ns, min_ns).bit_length() - 1))

    @cached_property
    def _all_events(self) -> Block:
        """All events of a trace that is too small to have levels."""
        return read_block(self._trace, UNBOUNDED, None, self._names, self._tables)

    def _load_blocks(self, start: int, end: int, levels: Levels) -> list[Block]:
        """Return the blocks with events in a range, through the cache."""
        first = max(start - levels.finest_ns, self._trace.start_ns) // self._block_ns
        last = min(end - 1, self._end_ns) // self._block_ns
        numbers = range(first, last + 1)
        missing = [number for number in numbers if number not in self._blocks]
        if missing:
            self._blocks.update(self._read(range(missing[0], missing[-1] + 1), levels))
        blocks = [self._blocks[number] for number in numbers]
        for number in numbers:
            self._blocks.move_to_end(number)
        while self._blocks_bytes() > MAX_BLOCK_BYTES and len(self._blocks) > 1:
            self._blocks.popitem(last=False)
        return blocks

    def _read(self, numbers: range, levels: Levels) -> dict[int, Block]:
        """Read consecutive blocks in one query: starting a query takes as long as reading
        thousands of events."""
        start, end = numbers[0] * self._block_ns, (numbers[-1] + 1) * self._block_ns
        block = read_block(self._trace, (start, end), levels, self._names, self._tables)
        return dict(zip(numbers, block.split(start, self._block_ns, len(numbers)), strict=True))

    def _blocks_bytes(self) -> int:
        all_events: Block | None = self.__dict__.get("_all_events")
        blocks = [*self._blocks.values(), *([all_events] if all_events else [])]
        return sum(block.size_bytes for block in blocks)


class Timelines:
    """Timelines of the traces of a run; the most recently used ones are cached."""

    def __init__(self, reader: store.RunReader, clock: RunClock, traces: Sequence[Trace]) -> None:
        self._reader = reader
        self._clock = clock
        self._traces = {trace.trace: trace for trace in traces}
        self._largest: dict[str, dict[str, dict[str, float]]] = {}
        self._cache: OrderedDict[int, TraceTimeline] = OrderedDict()

    @cached_property
    def spans(self) -> SpanTimeline:
        """Spans of the job."""
        return SpanTimeline(self._reader, self._clock)

    @cached_property
    def contents(self) -> dict[int, dict[int, Content]]:
        """Content by trace and track; empty tracks are left out."""
        return load_contents(list(self._traces.values()))

    @cached_property
    def estimates(self) -> dict[int, list[tuple[int, str]]]:
        """Devices with kernels and their available estimates, by trace."""
        devices: dict[int, list[tuple[int, str]]] = {}
        for trace, device, measure in list_estimates(self._reader):
            devices.setdefault(trace, []).append((device, measure))
        return devices

    @cached_property
    def counters(self) -> dict[int, list[TraceCounter]]:
        """Counters and memory series, by trace."""
        return load_counters(self._reader)

    @cached_property
    def sampled_series(self) -> dict[str, list[tuple[str, str]]]:
        """Sampled metrics with their devices, by node."""
        return list_sampled_series(self._reader)

    def load_maxima(self, node: str, metrics: Sequence[str]) -> dict[tuple[str, str], float]:
        """Load the largest sampled values by metric and device, cached."""
        maxima = self._largest.setdefault(node, {})
        missing = sorted(set(metrics) - set(maxima))
        if missing:
            loaded = load_sampled_maxima(self._reader, node, missing)
            maxima.update((metric, {}) for metric in missing)
            for (metric, device), maximum in loaded.items():
                maxima[metric][device] = maximum
        return {(m, device): maximum for m in metrics for device, maximum in maxima[m].items()}

    def __getitem__(self, trace: int) -> TraceTimeline:
        """Return the timeline of a trace; raises KeyError if the run has no such trace."""
        timeline = self._cache.pop(trace, None)
        if timeline is None or timeline.name_count > MAX_NAMES:
            timeline = TraceTimeline(self._traces[trace], self.contents[trace].values())
        self._cache[trace] = timeline
        return timeline

    def evict(self) -> None:
        """Drop the least recently used traces until the cache is within its limit."""
        size = sum(timeline.size_bytes for timeline in self._cache.values())
        while size > MAX_TOTAL_BYTES and len(self._cache) > 1:
            _, oldest = self._cache.popitem(last=False)
            size -= oldest.size_bytes

    def read_ahead(self, seconds: float) -> bool:
        """Read the data of wide windows into the cache.

        Returns False if the time was up before the cache was full or complete.
        """
        deadline = time.monotonic() + seconds
        for trace in self._traces:
            for _ in self[trace].read_ahead():
                if time.monotonic() > deadline:
                    return False
            if sum(timeline.size_bytes for timeline in self._cache.values()) > MAX_TOTAL_BYTES:
                break
        return True

    def __contains__(self, trace: int) -> bool:
        return trace in self._traces


def get_timelines(run: Run) -> Timelines:
    """Return the timelines of a run, created once per run."""
    return run.derive(_make_timelines)


def _make_timelines(run: Run) -> Timelines:
    return Timelines(run.reader, run.clock, run.traces)
