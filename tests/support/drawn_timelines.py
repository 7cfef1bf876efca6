"""Runs with a timeline, small enough to be checked event by event."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from stepscope.importers.kineto import Identity, import_trace, timeline, trace_file
from stepscope.run import Run
from stepscope.schema import SCHEMA_VERSION, RunInfo
from stepscope.store import RunWriter, create_run, open_run
from stepscope.timeline import trace as timeline_trace, window as timeline_window
from stepscope.views import VIEWS, ViewOptions
from tests.support.kineto_files import BASE_NS, Event, trace

INFO = RunInfo(
    schema_version=SCHEMA_VERSION,
    run_id="drawn",
    created_ns=BASE_NS,
    command=[],
    working_directory="/",
    stepscope_version="0",
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """An event as drawn; times count from the base of the file."""

    track: str
    """`host`, `device` or `ranges`."""
    name: str
    start: int
    end: int

    def overlaps(self, start: int, end: int) -> bool:
        return self.start < end and (self.end > start or self.start >= start)


def drawn(event: Event) -> Drawn:
    """Return the expected drawing of an event."""
    start = nanoseconds(event["ts"])
    tracks = {"kernel": "device", "gpu_memcpy": "device", "gpu_user_annotation": "ranges"}
    return Drawn(
        tracks.get(event["cat"], "host"), event["name"], start, start + nanoseconds(event["dur"])
    )


def nanoseconds(text: Any) -> int:
    microseconds, _, fraction = bytes(text).decode().partition(".")
    return int(microseconds) * 1000 + int(fraction.ljust(3, "0"))


@contextmanager
def small_blocks(*, levels: bool, slice_rows: int = 40) -> Iterator[None]:
    """Store and read tiny traces in as many parts as large ones."""
    with (
        patch.object(timeline, "SMALL_EVENTS", 1 if levels else 10**9),
        patch.object(trace_file, "SLICE_ROWS", slice_rows),
        patch.object(trace_file, "MIN_SLICE_ROWS", slice_rows),
        patch.object(timeline_trace, "BLOCK_EVENTS", 7),
        patch.object(timeline_trace, "MAX_CACHED_RANGE_BLOCKS", 3),
        patch.object(timeline_window, "CHUNK_EVENTS", 25),
    ):
        yield


def import_run(path: Path, *files: Iterable[Event] | bytes) -> Run:
    """Import a run with one trace per file."""
    create_run(path, INFO)
    with RunWriter(path, "imported") as writer:
        for number, events in enumerate(files):
            content = events if isinstance(events, bytes) else trace(*events)
            file = path.parent / f"{path.name}{number}.json"
            file.write_bytes(content)
            import_trace(file, writer, Identity(name=f"file {number}"), scratch=path.parent)
    return Run(open_run(path))


def view(run: Run, name: str, /, **options: Any) -> Any:
    """Compute the payload of a view."""
    return VIEWS[name](run, ViewOptions(**options))


def track_ids(run: Run) -> dict[str, str]:
    """Return the ids of the tracks with slices of the first trace: `host`, `device`, `ranges`."""
    ids = {}
    for track in tracks_in(view(run, "timeline").groups):
        if track.kind != "counter":
            kind = "ranges" if track.id.startswith("ranges") else track.kind
            ids.setdefault(kind, track.id)
    return ids


def tracks_in(groups: Sequence[Any]) -> list[Any]:
    """Return every track of a tree."""
    return list(itertools.chain.from_iterable([*g.tracks, *tracks_in(g.groups)] for g in groups))
