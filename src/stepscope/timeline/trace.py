"""A recording as the timeline draws it: any window of it at any detail, kept in memory in part.

From afar a window is made of the levels that the importer stored; from near by, of the events
themselves, read in blocks of time of which those used last are kept.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from stepscope.analysis import Slices
from stepscope.run import Run, RunClock, Trace
from stepscope.store import RunReader
from stepscope.timeline.blocks import EVERYTHING, Block, read_block
from stepscope.timeline.content import Content, contents_of
from stepscope.timeline.counters import (
    Curve,
    DeviceLoad,
    RecordedCounter,
    counters_of,
    device_loads,
    estimates_of,
    largest_sampled,
    memory_curves,
    recorded_curve,
    series_of,
)
from stepscope.timeline.levels import Levels, Names
from stepscope.timeline.spans import SpanTimeline

BLOCK_EVENTS = 16_000
"""Events in a block, about: to read more takes longer than a hand on the wheel should wait."""
FEW_BLOCKS = 32
"""A range of more is read without being kept."""
KEPT_BYTES = 80 << 20
"""Of blocks of one recording."""
MOST_NAMES = 200_000
"""A recording with more names than this has been read; it is forgotten then."""
KEPT_OF_ALL_BYTES = 120 << 20
"""Of what is held of all recordings; the one in use may take more."""


class TraceTimeline:
    """One recording. Lines are twice the number of a track; one more for the shadows on it."""

    def __init__(self, trace: Trace, tracks: Collection[Content]) -> None:
        self._trace = trace
        self._tables = {table for track in tracks for table in track.tables}
        self._stored = sorted({level for track in tracks for level in track.levels})
        self._names = Names()
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._counters: dict[tuple[int, str, str], Curve] = {}

    @cached_property
    def levels(self) -> Levels | None:
        """Levels of detail; None where none were stored."""
        return Levels(self._trace, self._names, self._stored) if self._stored else None

    @cached_property
    def loads(self) -> dict[int, DeviceLoad]:
        """How busy each device was, by its kernels."""
        return device_loads(self._trace)

    @cached_property
    def memory(self) -> dict[tuple[int, int, str], Curve]:
        """What the framework's allocator holds; see `memory_curves`."""
        return memory_curves(self._trace)

    def counter(self, track: int, name: str, series: str) -> Curve:
        """One value of a counter of the recording."""
        key = (track, name, series)
        if key not in self._counters:
            self._counters[key] = recorded_curve(self._trace, *key)
        return self._counters[key]

    def read_ahead(self) -> Iterator[None]:
        """Reads the levels of detail, how busy devices were and what was allocated, step by
        step."""
        if self.levels is not None:
            yield from self.levels.read_ahead()
        yield
        _ = self.loads
        yield
        _ = self.memory

    @property
    def size_bytes(self) -> int:
        """Memory that is held."""
        levels: Levels | None = self.__dict__.get("levels")
        loads: dict[int, DeviceLoad] = self.__dict__.get("loads", {})
        memory: dict[tuple[int, int, str], Curve] = self.__dict__.get("memory", {})
        size = sum(each.size_bytes for each in (*memory.values(), *self._counters.values()))
        size += sum(each.size_bytes for each in loads.values())
        return size + (levels.size_bytes if levels else 0) + self._blocks_bytes()

    @property
    def name_count(self) -> int:
        """Different names of events that are held."""
        return len(self._names.strings)

    def window(self, begin: int, end: int, width: int) -> list[Slices]:
        """All slices that lie in a range, at least in part.

        What is shorter than `width` may be summed up, in buckets that are no wider; a summary may
        hold events just outside the range.
        """
        levels = self.levels
        if levels is None:
            return [self._everything.overlapping(begin, end)] if self._tables else []
        level = levels.coarsest_below(width)
        if level is not None:
            return levels.at(level, begin, end)
        alone = levels.alone.overlapping(begin, end)
        return [
            alone,
            *(block.overlapping(begin, end) for block in self._between(begin, end, levels)),
        ]

    def events(self, begin: int, end: int) -> list[Slices]:
        """All events that lie in a range, at least in part, each by itself."""
        levels = self.levels
        if levels is None or end - begin <= FEW_BLOCKS * self._block_ns:
            return self.window(begin, end, 1)
        # So much would push everything else out of the memory.
        extent = begin - levels.finest_ns, end
        block = read_block(self._trace, extent, levels, self._names, self._tables)
        return [levels.alone.overlapping(begin, end), block.overlapping(begin, end)]

    def row_of(self, event: int, start_ns: int) -> int:
        """The row that an event is drawn on; 0 where there is no such event."""
        for part in self.window(start_ns, start_ns + 1, 1):
            rows = part.row[part.event == event]
            if len(rows):
                return int(rows[0])
        return 0

    @cached_property
    def _end_ns(self) -> int:
        """End of the last event, of whatever kind."""
        levels = self.levels
        return max(self._trace.end_ns, levels.end_ns if levels else 0)

    @cached_property
    def _block_ns(self) -> int:
        """A power of two, so that blocks have plain numbers."""
        trace, levels = self._trace, self.levels
        span = max(1, self._end_ns - trace.start_ns)
        wanted = span * BLOCK_EVENTS // max(1, trace.event_count)
        least = 4 * levels.finest_ns if levels else 1
        return int(1 << (max(wanted, least).bit_length() - 1))

    @cached_property
    def _everything(self) -> Block:
        """All events, of a recording that is too small to have levels."""
        return read_block(self._trace, EVERYTHING, None, self._names, self._tables)

    def _between(self, begin: int, end: int, levels: Levels) -> list[Block]:
        """The blocks with events that lie in a range."""
        first = max(begin - levels.finest_ns, self._trace.start_ns) // self._block_ns
        last = min(end - 1, self._end_ns) // self._block_ns
        asked = range(first, last + 1)
        missing = [number for number in asked if number not in self._blocks]
        if missing:
            self._blocks.update(self._read(range(missing[0], missing[-1] + 1), levels))
        blocks = [self._blocks[number] for number in asked]
        for number in asked:
            self._blocks.move_to_end(number)
        while self._blocks_bytes() > KEPT_BYTES and len(self._blocks) > 1:
            self._blocks.popitem(last=False)
        return blocks

    def _read(self, numbers: range, levels: Levels) -> dict[int, Block]:
        """Blocks that follow one another, in one go: to begin a query takes as long as to read
        thousands of events."""
        begin, end = numbers[0] * self._block_ns, (numbers[-1] + 1) * self._block_ns
        block = read_block(self._trace, (begin, end), levels, self._names, self._tables)
        return dict(zip(numbers, block.cut(begin, self._block_ns, len(numbers)), strict=True))

    def _blocks_bytes(self) -> int:
        everything: Block | None = self.__dict__.get("_everything")
        blocks = [*self._blocks.values(), *([everything] if everything else [])]
        return sum(block.size_bytes for block in blocks)


class Timelines:
    """The recordings of a run, those used last in memory."""

    def __init__(self, reader: RunReader, clock: RunClock, traces: Sequence[Trace]) -> None:
        self._reader = reader
        self._clock = clock
        self._traces = {trace.trace: trace for trace in traces}
        self._largest: dict[str, dict[str, dict[str, float]]] = {}
        self._held: OrderedDict[int, TraceTimeline] = OrderedDict()

    @cached_property
    def spans(self) -> SpanTimeline:
        """What the job itself recorded."""
        return SpanTimeline(self._reader, self._clock)

    @cached_property
    def contents(self) -> dict[int, dict[int, Content]]:
        """By recording and track, what is on it; empty tracks are left out."""
        return contents_of(list(self._traces.values()))

    @cached_property
    def estimates(self) -> dict[int, list[tuple[int, str]]]:
        """By recording, devices that kernels ran on, each with what can be said of them."""
        found: dict[int, list[tuple[int, str]]] = {}
        for trace, device, which in estimates_of(self._reader):
            found.setdefault(trace, []).append((device, which))
        return found

    @cached_property
    def counters(self) -> dict[int, list[RecordedCounter]]:
        """What each recording counts."""
        return counters_of(self._reader)

    @cached_property
    def sampled(self) -> dict[str, list[tuple[str, str]]]:
        """By node, every metric with every device that it was sampled of."""
        return series_of(self._reader)

    def largest(self, node: str, metrics: Sequence[str]) -> dict[tuple[str, str], float]:
        """The largest values that were sampled, by metric and device."""
        known = self._largest.setdefault(node, {})
        new = sorted(set(metrics) - set(known))
        if new:
            found = largest_sampled(self._reader, node, new)
            known.update((metric, {}) for metric in new)
            for (metric, device), most in found.items():
                known[metric][device] = most
        return {(m, device): most for m in metrics for device, most in known[m].items()}

    def __getitem__(self, trace: int) -> TraceTimeline:
        """KeyError where there is no such recording."""
        found = self._held.pop(trace, None)
        if found is None or found.name_count > MOST_NAMES:
            found = TraceTimeline(self._traces[trace], self.contents[trace].values())
        self._held[trace] = found
        return found

    def forget(self) -> None:
        """Gives up the recordings that were used longest ago, while too much is held."""
        size = sum(each.size_bytes for each in self._held.values())
        while size > KEPT_OF_ALL_BYTES and len(self._held) > 1:
            _, oldest = self._held.popitem(last=False)
            size -= oldest.size_bytes

    def read_ahead(self, seconds: float) -> bool:
        """Reads what wide windows are made of; False where time was over before all was read that
        there is room for."""
        until = time.monotonic() + seconds
        for trace in self._traces:
            for _ in self[trace].read_ahead():
                if time.monotonic() > until:
                    return False
            if sum(each.size_bytes for each in self._held.values()) > KEPT_OF_ALL_BYTES:
                break
        return True

    def __contains__(self, trace: int) -> bool:
        return trace in self._traces


def timelines_of(run: Run) -> Timelines:
    """The recordings of a run as the timeline draws them, made once per run."""
    return run.derive(_make_timelines)


def _make_timelines(run: Run) -> Timelines:
    return Timelines(run.reader, run.clock, run.traces)
