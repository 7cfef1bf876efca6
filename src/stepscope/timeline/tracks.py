"""Tracks of the timeline and their ids.

An id consists of words joined by colons; other characters are quoted as in a URL:

    trace:NUMBER:TRACK            a thread or a stream of a trace
    ranges:NUMBER:TRACK           the shadows of host ranges on a stream
    spans:PROCESS:LOG             spans of a thread of the job
    metric:NODE:METRIC:DEVICE     samples of the monitor
    counter:NUMBER:TRACK:NAME:SERIES    a counter of a trace
    memory:NUMBER:TYPE:DEVICE:MEASURE   memory held by the allocator of the framework
    estimate:NUMBER:DEVICE:MEASURE    load of a device, computed from the kernels of a trace
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from stepscope.errors import UsageError

_WORDS = {
    "trace": 2,
    "ranges": 2,
    "spans": 2,
    "metric": 3,
    "counter": 4,
    "memory": 4,
    "estimate": 3,
}
_NUMBERS = {"trace": 2, "ranges": 2, "counter": 2, "memory": 3, "estimate": 2}
"""Number of leading words of an id that are numbers."""
SLICED = ("trace", "ranges", "spans")
"""Kinds of tracks with slices; the others have values."""


class TrackId(NamedTuple):
    """Id of a track, split into its words."""

    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return ":".join([self.kind, *(quote(word, safe="") for word in self.words)])

    @property
    def trace(self) -> int:
        """Number of its trace."""
        return int(self.words[0])

    @property
    def track(self) -> int:
        """Number of the track within its trace."""
        return int(self.words[1])

    @property
    def is_sliced(self) -> bool:
        """Return True if the track has slices."""
        return self.kind in SLICED


def track_id(kind: str, *words: object) -> TrackId:
    """Build the id of a track from its words."""
    return TrackId(kind, tuple(map(str, words)))


def parse_track(text: str) -> TrackId:
    """Parse the id of a track; raises UsageError if it is invalid."""
    kind, *quoted = text.strip().split(":")
    words = tuple(map(unquote, quoted))
    numbers = words[: _NUMBERS.get(kind, 0)]
    if _WORDS.get(kind) != len(words) or not all(map(_is_number, numbers)):
        raise UsageError(
            f"{text!r} is not a track of the timeline; the view `timeline` lists its tracks."
        )
    return TrackId(kind, words)


def parse_tracks(text: str | None) -> Sequence[TrackId]:
    """Parse comma-separated ids of tracks; duplicates are dropped, the order is kept."""
    ids = [part for part in (text or "").split(",") if part.strip()]
    return list(dict.fromkeys(map(parse_track, ids)))


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isascii() and word.removeprefix("-").isdigit() and len(word) < 20
