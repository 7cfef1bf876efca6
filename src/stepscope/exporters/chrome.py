"""Recordings as Kineto writes them: JSON for chrome://tracing, Perfetto and tools that read Kineto.

A file is written in slices of the recording, each one query, so that memory is bounded by the
slice and not by the recording. While DuckDB puts the next slice together, another thread
compresses and writes the last one. Which key says what is in `chrome_events`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from stepscope.exporters.chrome_events import arrows_between, events_between
from stepscope.exporters.chrome_header import chosen_base_ns, header, naming_events, placed_tracks
from stepscope.exporters.chrome_spans import span_events
from stepscope.exporters.text_file import TextFile, writing
from stepscope.run import Trace

SLICE_EVENTS = 100_000
"""Places of a recording that one query looks at: some 30 MB of text."""
ARROW_STEP = 2**40
"""Arrows are told apart by number over a whole file: those of one recording of several lie so
far from those of the next. Doubles hold 8,000 such steps exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A file that was written."""

    path: str
    recordings: list[str]
    """Names of the recordings in it."""
    event_count: int
    """Events that the recordings were made of; arrows and names may be fewer in the file."""
    text_bytes: int
    """Length of the JSON, before compression."""


def export_chrome(recordings: Sequence[Trace], path: Path, *, spans: bool = True) -> Exported:
    """Writes recordings into one file, compressed when its name ends in `.gz`.

    Several recordings keep apart as processes of their own. Numbers in arguments, such as
    correlations, stay those of each recording.

    Args:
        recordings: at least one.
        path: the file; one that exists is replaced when the new one is complete.
        spans: whether to add a track with what stepscope recorded in the same process during
            the recording.

    Raises:
        OSError: the file cannot be written.
    """
    base_ns = chosen_base_ns(recordings)
    with writing(path) as file:
        # Some tools look for the rank line by line, and for a blank before it.
        members = msgspec.json.format(msgspec.json.encode(header(recordings, base_ns)), indent=2)
        file.write(members.decode().removesuffix("\n}") + ',\n  "traceEvents": [')
        events = EventList(file)
        for number, recording in enumerate(recordings):
            place = number if len(recordings) > 1 else None
            for texts in recording_events(recording, place, base_ns, spans=spans):
                events.write(texts)
        file.write("\n]}\n")
    return Exported(
        path=str(path),
        recordings=[recording.name for recording in recordings],
        event_count=sum(recording.event_count for recording in recordings),
        text_bytes=file.text_bytes,
    )


class EventList:
    """Puts commas between events."""

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self._before = "\n"

    def write(self, texts: Sequence[str]) -> None:
        if texts:
            self._file.write(self._before + ",\n".join(texts))
            self._before = ",\n"


def recording_events(
    recording: Trace, number: int | None, base_ns: int, *, spans: bool
) -> Iterator[list[str]]:
    """The events of a recording, slice by slice; see `export_chrome`.

    Args:
        number: its place among several recordings of one file, None when it is alone.
    """
    tracks = placed_tracks(recording, number)
    yield list(naming_events(tracks))
    arrows = (number or 0) * ARROW_STEP
    places = [track.place for track in tracks]
    streams = [track.stream for track in tracks]
    query = events_between()
    for first in range(0, recording.event_count, SLICE_EVENTS):
        slice_ = (recording.trace, first, first + SLICE_EVENTS)
        yield _texts(recording, query, [*slice_, base_ns, arrows, places, streams])
    query = arrows_between()
    for slice_ in _arrow_slices(recording):
        yield _texts(recording, query, [*slice_, base_ns, arrows, places])
    if spans:
        yield list(span_events(recording, number, base_ns))


def _texts(recording: Trace, query: str, parameters: Sequence[Any]) -> list[str]:
    texts: list[str] = recording.reader.sql(query, parameters)["text"].tolist()
    return texts


def _arrow_slices(recording: Trace) -> Iterator[tuple[int, int, int]]:
    """The recording, and ranges of the numbers of its arrows with a slice of them each."""
    query = "SELECT DISTINCT flow FROM flows WHERE trace = $1 ORDER BY flow"
    numbers = recording.reader.sql(query, [recording.trace])["flow"]
    for first in range(0, len(numbers), SLICE_EVENTS):
        slice_ = numbers[first : first + SLICE_EVENTS]
        yield recording.trace, int(slice_[0]), int(slice_[-1]) + 1
