"""One trace file into a run.

Read in blocks → gathered → joined over the whole file → linked and stored slice by slice. The row
in `traces` comes last: a trace that lacks it was never completely stored, and nobody reads it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from stepscope.importers.kineto.describe import Description, Identity
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.graphs import find_captures, name_captured
from stepscope.importers.kineto.joins import Counts, bind_flows, count_overlaps, join_launches
from stepscope.importers.kineto.linking import Linker
from stepscope.importers.kineto.quality import quality_rows
from stepscope.importers.kineto.reading import Progress, Reading, read_file
from stepscope.importers.kineto.tables import Rows, TableMaker
from stepscope.importers.kineto.timeline import Summariser
from stepscope.importers.results import Imported
from stepscope.store import RunWriter

SLICE_ROWS = 600_000
"""Events linked at once, at most."""
MIN_SLICE_ROWS = 150_000
SLICES = 4
"""A trace of middling size is parted so often: one slice is stored while the next is linked."""
_SECOND_LANE = frozenset({"operators", "timeline", "quality"})
"""Tables that are written beside all others."""
_READING_SHARE = 0.6
"""Of the whole work."""


def import_trace(
    path: Path,
    writer: RunWriter,
    identity: Identity,
    *,
    scratch: Path,
    workers: int = 0,
    parallel_imports: int = 1,
    progress: Progress = lambda _share: None,
) -> Imported:
    """Stores one Kineto or Chrome trace.

    Args:
        path: the file, plain or gzip; its name does not matter.
        writer: of the run that takes it.
        identity: what is known of it.
        scratch: directory for a temporary file, should the trace be a large one.
        workers: processes that decode; 0 decodes in this one.
        parallel_imports: processes that import files at the same time; they share the memory.
        progress: is told how far it is.

    Raises:
        UnreadableTraceError: the file holds no readable event.
        OSError: the file cannot be read or the run not be written.
    """
    gathered = Gathered(scratch, parallel_imports)
    with _Storing(writer, lanes=2 if workers else 1) as storing:
        reading = read_file(
            path,
            gathered,
            workers,
            progress=lambda share: progress(_READING_SHARE * share),
            begun=storing.prepare,
        )
        try:
            return _store(
                reading,
                storing,
                identity,
                max(MIN_SLICE_ROWS, SLICE_ROWS // parallel_imports),
                lambda share: progress(_READING_SHARE + (1 - _READING_SHARE) * share),
            )
        finally:
            reading.gathered.close()


class _Storing:
    """Appends beside everything else, in lanes that take about as long as each other.

    Args:
        writer: of the run.
        lanes: how many tables are written at once, 1 or 2.
    """

    def __init__(self, writer: RunWriter, lanes: int) -> None:
        self._ending = ExitStack()
        opened = self._ending.enter_context
        writers = [writer, *(opened(writer.clone()) for _ in range(1, lanes))]
        self._lanes = [(each, opened(ThreadPoolExecutor(1))) for each in writers]
        self._begun: list[Future[Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def prepare(self) -> None:
        """Makes the first append as fast as the others."""
        self._begun += [beside.submit(writer.prepare) for writer, beside in self._lanes]

    def append(self, tables: Iterable[tuple[str, Rows]]) -> None:
        """Begins to append the rows of some tables."""
        for table, rows in tables:
            writer, beside = self._lanes[-1 if table in _SECOND_LANE else 0]
            self._begun.append(beside.submit(writer.append, table, rows))

    def wait(self) -> None:
        """Waits for all that was begun."""
        while self._begun:
            self._begun.pop(0).result()


def _store(
    reading: Reading, storing: _Storing, identity: Identity, most_rows: int, progress: Progress
) -> Imported:
    gathered, counts = reading.gathered, Counts()
    bounds = gathered.find_bounds()
    trace = secrets.randbits(48)
    maker = TableMaker(trace, reading.header.base_ns, gathered)
    description = Description(
        gathered=gathered,
        header=reading.header,
        identity=identity,
        flows=bind_flows(gathered, reading.header.base_ns),
    )
    storing.append(description.tables(maker))  # they need no links: written beside the joins
    captures = find_captures(gathered)
    join_launches(gathered, counts, captures.ids)
    name_captured(gathered, captures, counts)
    count_overlaps(gathered, counts)
    linker = Linker(gathered, counts)
    summariser = Summariser(bounds, reading.header.base_ns, event_count=gathered.event_count)
    cuts = gathered.cuts(min(most_rows, _slice_rows(gathered.event_count)))
    end = bounds.first
    for done, (start, stop) in enumerate(pairwise(cuts), 1):
        linked = linker.link(start, stop, final=stop == cuts[-1])
        end = max(end, linked.last_end())
        storing.wait()
        storing.append(maker.tables(linked))
        summary = summariser.summarise(linked)
        if summary:
            storing.append([("timeline", maker.complete("timeline", summary))])
        progress(done / (len(cuts) - 1))
    storing.append([("quality", maker.complete("quality", quality_rows(reading, counts)))])
    row = description.trace_row(start_ns=bounds.first, end_ns=end)
    storing.wait()  # it says that all else is there
    storing.append([("traces", maker.complete("traces", row))])
    storing.wait()
    return Imported(
        trace=trace,
        name=identity.name,
        rank=description.rank,
        event_count=gathered.event_count,
        lost=reading.lost,
    )


def _slice_rows(event_count: int) -> int:
    return max(event_count // SLICES, MIN_SLICE_ROWS)
