"""Import of one trace file into a run, with its quality issues.

Read in blocks → gathered → joined over the whole file → linked and stored slice by slice. The row
in `traces` comes last: a trace without it is incomplete, and readers ignore it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from stepscope import quantities, schema, store
from stepscope.importers.content import Imported
from stepscope.importers.kineto import describe, joins, steps, times
from stepscope.importers.kineto.arguments import ANNOTATION, CALL_KINDS, OPERATOR, integers_of
from stepscope.importers.kineto.blocks import WRONG_CHECKSUM
from stepscope.importers.kineto.describe import Description, Header, Identity
from stepscope.importers.kineto.execution_trace import ExecutionTrace, describe_operators
from stepscope.importers.kineto.gather import Gathered
from stepscope.importers.kineto.linking import Linker
from stepscope.importers.kineto.reading import Progress, Reading, read_file
from stepscope.importers.kineto.tables import Storing, TableMaker
from stepscope.importers.kineto.timeline import Summariser

SLICE_ROWS = 600_000
"""Maximum number of events that are linked at once."""
MIN_SLICE_ROWS = 150_000
SLICES = 4
"""Slices of a medium trace: one is stored while the next is linked."""
_READING_SHARE = 0.6
"""Share of reading in the time of an import."""


def import_trace(
    path: Path,
    writer: store.RunWriter,
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
            has_streams=True,
        )
    finally:
        reading.gathered.close()


def store_reading(
    reading: Reading,
    writer: store.RunWriter,
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
            has_streams=False,
        )


def _store(
    reading: Reading,
    storing: Storing,
    identity: Identity,
    *,
    execution_traces: Sequence[ExecutionTrace],
    max_rows: int,
    progress: Progress,
    has_streams: bool,
) -> Imported:
    """Store what was read.

    Args:
        has_streams: work of one track runs one after the other.
    """
    gathered, counts = reading.gathered, joins.Counts()
    if identity.step_range is not None:
        reading.notes = [*reading.notes, *steps.name_steps(gathered, identity.step_range)]
    bounds = gathered.find_bounds()
    times.leave_out_copies(gathered, counts)
    described = describe_operators(gathered, execution_traces)
    trace = storing.next_trace()
    maker = TableMaker(trace, reading.header.base_ns, gathered)
    description = Description(
        gathered=gathered,
        header=reading.header,
        identity=identity,
        flows=joins.bind_flows(gathered, reading.header.base_ns),
    )
    storing.append(description.tables(maker))  # they need no links: written during the joins
    captures = joins.find_captures(gathered)
    if has_streams:
        times.cut_overflows(gathered, counts)
        times.find_unit(gathered, counts)
    times.cut_unended(gathered, counts)
    joins.join_launches(gathered, counts, captures.ids)
    joins.name_captured(gathered, captures, counts)
    # What looks at all events at once comes before there are rows in memory.
    times.find_setbacks(gathered, counts)
    times.find_late_work(gathered, counts)
    times.count_overlaps(gathered, counts)
    linker = Linker(gathered, counts)
    summariser = Summariser(bounds, reading.header.base_ns, event_count=gathered.event_count)
    cuts = gathered.cuts(min(max_rows, max(gathered.event_count // SLICES, MIN_SLICE_ROWS)))
    end = bounds.first
    for done, (slice_start, slice_end) in enumerate(pairwise(cuts), 1):
        linked = linker.link(slice_start, slice_end, final=slice_end == cuts[-1])
        end = max(end, linked.last_end(gathered))
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


_RECORDER_COUNTS = re.compile(r"Record counts: (.*)")
_DROPS = ("dropped", "out-of-range", "invalid ext correlations", "unexpected")


def quality_rows(reading: Reading, counts: joins.Counts) -> Mapping[str, Any]:
    """Return a row for every check that found an issue, and one for the clock base."""
    gathered, header, frame = reading.gathered, reading.header, reading.frame
    rows: list[tuple[str, int, int | None, int | None, str | None]] = []

    def add(
        check: str,
        count: int,
        of_count: int | None = None,
        worst_ns: int | None = None,
        detail: str | None = None,
    ) -> None:
        if count:
            rows.append((check, count, of_count, worst_ns, detail))

    devices = reading.devices
    add("several_processes", len(counts.processes), None, None, ", ".join(counts.processes))
    add("copied_event", counts.copies, gathered.event_count)
    add("device_layout", devices.mapped_count, None, None, devices.accelerator)
    unknown = "; ".join(work.sentence_part for work in devices.unknown)
    unknown_count = sum(work.event_count for work in devices.unknown)
    add("device_not_understood", unknown_count, gathered.event_count, None, unknown)
    add("unlinked_device", counts.unlinked, counts.device)
    add("unlinked_launch", counts.unlinked_launches, counts.launching)
    add("captured_by_kind", counts.captured, counts.device)
    add("carry_over", counts.carry_over, counts.device)
    add("zero_correlation", counts.zero_correlation, counts.device)
    add("duplicate_correlation", counts.duplicate_correlation, counts.launches)
    add("same_stream_overlap", counts.overlaps, counts.device, counts.worst_overlap_ns)
    add("overflow", counts.overflows, counts.device, counts.worst_overflow_ns)
    add("unended", counts.unended, None, counts.worst_unended_ns)
    setback = (
        counts.setback_detail or "later operators or calls of a thread start before earlier ones"
    )
    add("clock_setback", counts.setbacks, None, counts.worst_setback_ns, setback)
    add("unit", int(counts.unit != ""), None, None, counts.unit)
    crowd = f"{counts.worst_crowd} works at once"
    add("crowded_stream", counts.crowded, counts.device, None, crowd)
    add("late_device", counts.late_waits, counts.waits, counts.median_late_ns)
    add("early_device", counts.early, counts.device, counts.worst_early_ns)
    for check, parts in (
        ("impossible_duration", counts.impossible_duration),
        ("impossible_time", counts.impossible_time),
    ):
        count = sum(len(names) for _, names in parts)
        detail = describe.name_impossible(gathered, parts)
        add(check, count, gathered.event_count, None, detail)
    unpaired = reading.unpaired
    add("unpaired", unpaired.count, unpaired.of_count, None, unpaired.detail)
    add("overhang", counts.overhangs, counts.ranges, counts.worst_overhang_ns)
    if _has_external_ids(gathered):
        add("unmatched_external_id", counts.matched_by_time, counts.calls)
    lost_count = quantities.count_of(gathered.lost_events, "event")
    lost = [f"{lost_count} could not be read"] * (gathered.lost_events > 0)
    lost += [header.unread] if header.unread else []
    lost_bytes = gathered.lost_bytes or int(header.unread is not None)
    text_bytes = None if reading.truncated else frame.text_bytes  # of the rest nothing is known
    add("lost_text", lost_bytes, text_bytes, None, "; ".join(lost))
    add("repaired_event", gathered.repaired, gathered.event_count)
    add("shortened_text", gathered.shortened)
    ended = frame.broken_stream or "the list of events has no end"
    add("truncated", int(reading.truncated), None, None, ended)
    add("wrong_checksum", frame.wrong_checksums, None, None, WRONG_CHECKSUM)
    add("dropped_by_recorder", *_dropped(header))
    rank = header.distributed.get("rank")
    add("unreadable_rank", int(rank is not None and header.rank is None), None, None, str(rank))
    add("duplicate_step", _duplicate_steps(gathered), None)
    starts, ends = gathered.flow_counts
    add("unmatched_flow", abs(ends - starts), starts + ends)
    for check, count, detail in reading.notes:
        add(check, count, None, None, detail)
    rows.append(("clock_base", 1, None, None, reading.clock or _clock(reading)))
    return {
        "kind": store.DictColumn.encode(row[0] for row in rows),
        "count": np.array([row[1] for row in rows], dtype=np.int64),
        "of_count": integers_of([row[2] for row in rows]),
        "worst_ns": integers_of([row[3] for row in rows]),
        "detail": store.DictColumn.encode(row[4] for row in rows),
    }


def _dropped(header: Header) -> tuple[int, None, None, str | None]:
    """Return the count and names of records that the recorder's log in the file reports as lost."""
    info = header.content.get("INFO")
    lines = info if isinstance(info, list) else []
    total, details = 0, []
    for line in lines:
        match = _RECORDER_COUNTS.search(str(line))
        for name, value in re.findall(r"([\w -]+?)\s*=\s*(\d+)", match[1] if match else ""):
            if any(word in name.lower() for word in _DROPS) and int(value):
                total += int(value)
                details.append(f"{name.strip(' ,')}: {value}")
    return total, None, None, "; ".join(details) or None


def _has_external_ids(gathered: Gathered) -> bool:
    """Return True if calls state their operators by number."""
    kinds = (OPERATOR, *CALL_KINDS)
    return any(len(gathered.select(kind, ("id",), "external")["id"]) for kind in kinds)


def _duplicate_steps(gathered: Gathered) -> int:
    """Count the steps that have the number of another one of their process."""
    steps = [
        code for code, name in enumerate(gathered.strings) if name.startswith(schema.STEP_PREFIX)
    ]
    keys: list[tuple[int | str, int]] = []
    for kind in (ANNOTATION, OPERATOR) if steps else ():
        columns = gathered.columns(kind, "name", "track")
        rows = np.isin(columns["name"], steps)
        tracks, codes = (columns[name][rows].tolist() for name in ("track", "name"))
        keys += [
            (gathered.tracks[track][0], code) for track, code in zip(tracks, codes, strict=True)
        ]
    return len(keys) - len(set(keys))


def _clock(reading: Reading) -> str:
    base = reading.header.base_ns
    if base:
        return f"times are relative to the base time of the file, {quantities.utc_time(base)}"
    assumption = "its times are assumed to be microseconds since 1970"
    if reading.truncated and not reading.frame.bare_array:
        return f"the end of the file, which may contain a base time, is missing: {assumption}"
    return f"the file has no base time: {assumption}"
