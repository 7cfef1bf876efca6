"""What the timeline draws on, and how a track is called in an address.

An id is made of words joined by colons, quoted as in a URL where they are not plain:

    trace:NUMBER:TRACK            a thread or a stream of a recording
    ranges:NUMBER:TRACK           the shadows of host ranges on a stream
    spans:PROCESS:LOG             a thread of the job, as its own recording saw it
    metric:NODE:METRIC:DEVICE     what the monitor sampled
    counter:NUMBER:TRACK:NAME:SERIES    a counter in a recording
    memory:NUMBER:TYPE:DEVICE:WHICH     what the framework's allocator holds
    estimate:NUMBER:DEVICE:WHICH  utilisation of a device, computed from a recording's kernels
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
"""How many of the words of an id are numbers: the first ones."""
SLICED = ("trace", "ranges", "spans")
"""Kinds of tracks that hold slices; the others hold values."""


class TrackId(NamedTuple):
    """A track, taken apart."""

    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return ":".join([self.kind, *(quote(word, safe="") for word in self.words)])

    @property
    def trace(self) -> int:
        """The recording that it belongs to."""
        return int(self.words[0])

    @property
    def track(self) -> int:
        """Its number in that recording."""
        return int(self.words[1])

    @property
    def sliced(self) -> bool:
        """Whether there are slices on it."""
        return self.kind in SLICED


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedEvent:
    """An event, and where on the timeline it stands."""

    track: TrackId
    event: int
    name: str
    after_ns: int
    duration_ns: int
    row: int


def track_id(kind: str, *words: object) -> TrackId:
    """A track by the words of its id."""
    return TrackId(kind, tuple(map(str, words)))


def parse_track(text: str) -> TrackId:
    """A track by its id; UsageError where that is none."""
    kind, *quoted = text.strip().split(":")
    words = tuple(map(unquote, quoted))
    numbers = words[: _NUMBERS.get(kind, 0)]
    if _WORDS.get(kind) != len(words) or not all(map(_is_number, numbers)):
        raise UsageError(f"{text!r} is no track of the timeline; the view `timeline` lists them.")
    return TrackId(kind, words)


def parse_tracks(text: str | None) -> Sequence[TrackId]:
    """Tracks by their ids, each once, in the order in which they are given."""
    given = [part for part in (text or "").split(",") if part.strip()]
    return list(dict.fromkeys(map(parse_track, given)))


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isascii() and word.removeprefix("-").isdigit() and len(word) < 20
