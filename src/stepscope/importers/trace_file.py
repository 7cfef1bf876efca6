"""One trace file into a run.

Read in blocks → gathered → joined over the whole file → linked and stored slice by slice. The row
in `traces` comes last: a trace that lacks it was never completely stored, and nobody reads it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from stepscope.importers.describe import Description, Identity
from stepscope.importers.gather import Gathered
from stepscope.importers.graphs import find_captures, name_captured
from stepscope.importers.joins import Counts, bind_flows, count_overlaps, join_launches
from stepscope.importers.linking import Linker
from stepscope.importers.quality import quality_rows
from stepscope.importers.reading import Progress, Reading, read_file
from stepscope.importers.tables import Rows, TableMaker
from stepscope.importers.timeline import Summariser
from stepscope.store import RunWriter

SLICE_ROWS = 600_000
"""Events linked at once, at most."""
MIN_SLICE_ROWS = 150_000
SLICES = 4
"""A trace of middling size is parted so often: one slice is stored while the next is linked."""
TIMELINE_EVENTS = 50_000
"""A smaller trace is drawn from its events; it needs no level of detail but the coarsest."""
_READING_SHARE = 0.6
"""Of the whole work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What became of a file."""

    trace: int
    name: str
    rank: int | None
    event_count: int
    lost: str | None
    """What could not be read, as the rest of a sentence."""


def import_trace(
    path: Path,
    writer: RunWriter,
    identity: Identity,
    *,
    scratch: Path,
    workers: int = 0,
    side_by_side: int = 1,
    progress: Progress = lambda _share: None,
) -> Imported:
    """Stores one Kineto or Chrome trace.

    Args:
        path: the file, plain or gzip; its name does not matter.
        writer: of the run that takes it.
        identity: what is known of it.
        scratch: directory for a temporary file, should the trace be a large one.
        workers: processes that decode; 0 decodes in this one.
        side_by_side: processes that import files at the same time; they share the memory.
        progress: is told how far it is.

    Raises:
        UnreadableTraceError: the file holds no readable event.
        OSError: the file cannot be read or the run not be written.
    """
    gathered = Gathered(scratch, side_by_side)
    reading = read_file(path, gathered, workers, lambda share: progress(_READING_SHARE * share))
    try:
        return _store(
            reading,
            writer,
            identity,
            max(MIN_SLICE_ROWS, SLICE_ROWS // side_by_side),
            lambda share: progress(_READING_SHARE + (1 - _READING_SHARE) * share),
        )
    finally:
        reading.gathered.close()


def _store(
    reading: Reading, writer: RunWriter, identity: Identity, most_rows: int, progress: Progress
) -> Imported:
    gathered, counts = reading.gathered, Counts()
    bounds = gathered.find_bounds()
    captures = find_captures(gathered)
    join_launches(gathered, counts, captures.ids)
    name_captured(gathered, captures, counts)
    count_overlaps(gathered, counts)
    trace = secrets.randbits(48)
    maker = TableMaker(trace, reading.header.base_ns, gathered)
    linker = Linker(gathered, counts)
    summariser = Summariser(
        bounds, reading.header.base_ns, whole=gathered.event_count >= TIMELINE_EVENTS
    )
    cuts = gathered.cuts(min(most_rows, _slice_rows(gathered.event_count)))
    end = bounds.first
    with ThreadPoolExecutor(1) as beside:
        storing: list[Future[None]] = []
        for done, (start, stop) in enumerate(pairwise(cuts), 1):
            linked = linker.link(start, stop, final=stop == cuts[-1])
            end = max(end, linked.last_end())
            _wait_for(storing)
            storing = [beside.submit(_append, writer, list(maker.tables(linked)))]
            summary = summariser.summarise(linked)
            made = [("timeline", maker.complete("timeline", summary))] if summary else []
            storing.append(beside.submit(_append, writer, made))
            progress(done / (len(cuts) - 1))
        _wait_for(storing)
    description = Description(
        gathered=gathered,
        header=reading.header,
        identity=identity,
        flows=bind_flows(gathered, reading.header.base_ns),
    )
    _append(writer, description.tables(maker))
    writer.append("quality", maker.complete("quality", quality_rows(reading, counts)))
    row = description.trace_row(start_ns=bounds.first, end_ns=end)
    writer.append("traces", maker.complete("traces", row))
    return Imported(
        trace=trace,
        name=identity.name,
        rank=description.rank,
        event_count=gathered.event_count,
        lost=reading.lost,
    )


def _wait_for(storing: Iterable[Future[None]]) -> None:
    for each in storing:
        each.result()


def _slice_rows(event_count: int) -> int:
    return max(event_count // SLICES, MIN_SLICE_ROWS)


def _append(writer: RunWriter, tables: Iterable[tuple[str, Rows]]) -> None:
    for table, rows in tables:
        writer.append(table, rows)
