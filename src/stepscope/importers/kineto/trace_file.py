"""Import of one trace file into a run.

Read in blocks → gathered → joined over the whole file → linked and stored slice by slice. The row
in `traces` comes last: a trace without it is incomplete, and readers ignore it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from stepscope.importers.kineto.describe import Description, Identity
from stepscope.importers.kineto.execution_trace import ExecutionTrace, describe_operators
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.graphs import find_captures, name_captured
from stepscope.importers.kineto.joins import Counts, bind_flows, count_overlaps, join_launches
from stepscope.importers.kineto.linking import Linker
from stepscope.importers.kineto.quality import quality_rows
from stepscope.importers.kineto.reading import Progress, Reading, read_file
from stepscope.importers.kineto.storing import Storing
from stepscope.importers.kineto.tables import TableMaker
from stepscope.importers.kineto.timeline import Summariser
from stepscope.importers.results import Imported
from stepscope.store import RunWriter

SLICE_ROWS = 600_000
"""Maximum number of events that are linked at once."""
MIN_SLICE_ROWS = 150_000
SLICES = 4
"""Slices of a medium trace: one is stored while the next is linked."""
_READING_SHARE = 0.6
"""Share of reading in the time of an import."""


def import_trace(
    path: Path,
    writer: RunWriter,
    identity: Identity,
    *,
    scratch: Path,
    workers: int = 0,
    execution_traces: Sequence[ExecutionTrace] = (),
    progress: Progress = lambda _share: None,
) -> Imported:
    """Store one Kineto or Chrome trace.

    Args:
        path: the file, plain or gzip; its name does not matter.
        writer: writer of the run.
        identity: origin of the trace.
        scratch: directory for the temporary file of a large trace.
        workers: number of processes that decode; 0 decodes in this one.
        execution_traces: those of the import; the one of the same process describes operators.
        progress: called with the share of the work that is done, 0 to 1.

    Raises:
        UnreadableTraceError: the file has no readable event.
        OSError: the file cannot be read, or the run cannot be written.
    """
    with Storing(writer, lanes=2 if workers else 1) as storing:
        return import_with(
            storing,
            path,
            identity,
            scratch=scratch,
            workers=workers,
            execution_traces=execution_traces,
            progress=progress,
        )


def import_with(
    storing: Storing,
    path: Path,
    identity: Identity,
    *,
    scratch: Path,
    workers: int = 0,
    parallel_imports: int = 1,
    execution_traces: Sequence[ExecutionTrace] = (),
    progress: Progress,
) -> Imported:
    """Store one trace, perhaps together with others; see `import_trace`.

    Args:
        storing: storage of the rows, of which some may be pending afterwards.
        parallel_imports: number of processes that import files at the same time and share the
            memory.
    """
    gathered = Gathered(scratch, parallel_imports)
    reading = read_file(
        path,
        gathered,
        workers,
        progress=lambda share: progress(_READING_SHARE * share),
        on_start=storing.prepare,
    )
    try:
        return _store(
            reading,
            storing,
            identity,
            execution_traces=execution_traces,
            max_rows=max(MIN_SLICE_ROWS, SLICE_ROWS // parallel_imports),
            progress=lambda share: progress(_READING_SHARE + (1 - _READING_SHARE) * share),
        )
    finally:
        reading.gathered.close()


def store_reading(
    reading: Reading,
    writer: RunWriter,
    identity: Identity,
    *,
    progress: Progress = lambda _share: None,
) -> Imported:
    """Store a file of another format, whose events are gathered in the form of this one.

    Raises:
        OSError: the run cannot be written.
    """
    with Storing(writer) as storing:
        return _store(
            reading,
            storing,
            identity,
            execution_traces=(),
            max_rows=SLICE_ROWS,
            progress=progress,
        )


def _store(
    reading: Reading,
    storing: Storing,
    identity: Identity,
    *,
    execution_traces: Sequence[ExecutionTrace],
    max_rows: int,
    progress: Progress,
) -> Imported:
    gathered, counts = reading.gathered, Counts()
    bounds = gathered.find_bounds()
    described = describe_operators(gathered, execution_traces)
    trace = storing.next_trace()
    maker = TableMaker(trace, reading.header.base_ns, gathered)
    description = Description(
        gathered=gathered,
        header=reading.header,
        identity=identity,
        flows=bind_flows(gathered, reading.header.base_ns),
    )
    storing.append(description.tables(maker))  # they need no links: written during the joins
    captures = find_captures(gathered)
    join_launches(gathered, counts, captures.ids)
    name_captured(gathered, captures, counts)
    count_overlaps(gathered, counts)
    linker = Linker(gathered, counts)
    summariser = Summariser(bounds, reading.header.base_ns, event_count=gathered.event_count)
    cuts = gathered.cuts(min(max_rows, max(gathered.event_count // SLICES, MIN_SLICE_ROWS)))
    end = bounds.first
    for done, (slice_start, slice_end) in enumerate(pairwise(cuts), 1):
        linked = linker.link(slice_start, slice_end, final=slice_end == cuts[-1])
        end = max(end, linked.last_end())
        storing.wait()
        storing.append(maker.tables(linked))
        summary = summariser.summarise(linked)
        if summary:
            storing.append([("timeline", maker.complete("timeline", summary))])
        progress(done / (len(cuts) - 1))
    storing.append([("quality", maker.complete("quality", quality_rows(reading, counts)))])
    row = description.trace_row(start_ns=bounds.first, end_ns=end)
    storing.append([("traces", maker.complete("traces", row))])
    return Imported(
        trace=trace,
        name=identity.name,
        rank=description.rank,
        event_count=gathered.event_count,
        lost=reading.lost,
        execution_trace=str(described.path) if described else None,
        described_count=described.operator_count if described else 0,
    )
