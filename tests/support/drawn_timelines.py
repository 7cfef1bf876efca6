"""Runs with a timeline, small enough to be looked through event by event."""

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
    """An event as it was drawn; times count from the base of the file."""

    track: str
    """`host`, `device` or `ranges`."""
    name: str
    start: int
    end: int

    def overlaps(self, begin: int, end: int) -> bool:
        return self.start < end and (self.end > begin or self.start >= begin)


def drawn(event: Event) -> Drawn:
    """What the timeline shall make of an event."""
    start = nanoseconds(event["ts"])
    tracks = {"kernel": "device", "gpu_memcpy": "device", "gpu_user_annotation": "ranges"}
    return Drawn(
        tracks.get(event["cat"], "host"),
        event["name"],
        start,
        start + nanoseconds(event["dur"]),
    )


def nanoseconds(text: Any) -> int:
    whole, _, rest = bytes(text).decode().partition(".")
    return int(whole) * 1000 + int(rest.ljust(3, "0"))


@contextmanager
def cut_small(*, levels: bool, slice_rows: int = 40) -> Iterator[None]:
    """Lets tiny recordings be stored and read in as many pieces as large ones."""
    with (
        patch.object(timeline, "SMALL_EVENTS", 1 if levels else 10**9),
        patch.object(trace_file, "SLICE_ROWS", slice_rows),
        patch.object(trace_file, "MIN_SLICE_ROWS", slice_rows),
        patch.object(timeline_trace, "BLOCK_EVENTS", 7),
        patch.object(timeline_trace, "FEW_BLOCKS", 3),
        patch.object(timeline_window, "PIECE_EVENTS", 25),
    ):
        yield


def recorded(path: Path, *files: Iterable[Event] | bytes) -> Run:
    """A run with one recording per file."""
    create_run(path, INFO)
    with RunWriter(path, "imported") as writer:
        for number, events in enumerate(files):
            content = events if isinstance(events, bytes) else trace(*events)
            file = path.parent / f"{path.name}{number}.json"
            file.write_bytes(content)
            import_trace(file, writer, Identity(name=f"file {number}"), scratch=path.parent)
    return Run(open_run(path))


def view(run: Run, asked: str, /, **options: Any) -> Any:
    """The payload of a view."""
    return VIEWS[asked](run, ViewOptions(**options))


def track_ids(run: Run) -> dict[str, str]:
    """Ids of the tracks of the first recording with slices: `host`, `device`, `ranges`."""
    found = {}
    for track in tracks_in(view(run, "timeline").groups):
        if track.kind != "counter":
            kind = "ranges" if track.id.startswith("ranges") else track.kind
            found.setdefault(kind, track.id)
    return found


def tracks_in(groups: Sequence[Any]) -> list[Any]:
    """Every track of a tree."""
    return list(itertools.chain.from_iterable([*g.tracks, *tracks_in(g.groups)] for g in groups))
