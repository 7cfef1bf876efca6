"""What the timeline draws. Times are nanoseconds after the run's origin (`after_ns`)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from stepscope.views.flame_nodes import FlameNode
from stepscope.views.quality import QualityNote

TrackKind = Literal["spans", "host", "device", "counter"]
"""Spans of the job's own recording, threads and streams of a profiler's recording, counters."""
GroupKind = Literal["node", "process", "recording", "device", "counters"]


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the tree that something is drawn on."""

    id: str
    """What the options `tracks` and `track` name it by."""
    name: str
    kind: TrackKind
    row_count: int
    """Rows that nested and overlapping slices need; 1 for a counter. Of tracks that still grow, as
    far as is known."""
    unit: str = ""
    """Of a counter."""
    event_count: int | None = None
    """Slices on it, where that is known without reading them."""


class TrackGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A node, a process, a recording, or a device, with what belongs to it."""

    id: str
    name: str
    kind: GroupKind
    rank: int | None = None
    groups: list[TrackGroup] = []
    tracks: list[Track] = []


class RankSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one rank, or of one recording: to jump to, and to align ranks by."""

    group: str
    """The group of tracks whose steps these are."""
    title: str
    numbers: list[int]
    """Steps by number, in order of time; counted from 0 where a recording does not number them."""
    after_ns: list[int]
    duration_ns: list[int]
    outliers: list[int]
    """Numbers of the steps that last far longer than the others; see `steps`."""
    left_out_count: int
    """Steps that are not listed, where there are too many to send: the first ones are."""


class FindingMark(msgspec.Struct, frozen=True, kw_only=True):
    """When a rule first and last fired."""

    rule: str
    sentence: str
    first_after_ns: int
    last_after_ns: int


class TimelineView(msgspec.Struct, frozen=True, kw_only=True):
    """`timeline`: what there is to draw, and when."""

    origin_ns: str
    """Epoch nanoseconds that times count from, as text: doubles cannot hold them."""
    end_after_ns: int
    """End of what is recorded so far."""
    groups: list[TrackGroup]
    steps: list[RankSteps]
    findings: list[FindingMark]
    notes: list[str]
    quality: list[QualityNote]
    missing: str | None


class TrackSlices(msgspec.Struct, frozen=True, kw_only=True):
    """Slices of one track within a window, column by column, sorted by row and start.

    A slice is one event, or a summary of events that are each too short to be seen.
    """

    track: str
    row_count: int
    """Rows that these slices need; rows count from 0."""
    row: list[int]
    after_ns: list[int]
    """Start, after the start of the window: negative where it began before."""
    duration_ns: list[int]
    """Of a summary, from the start of its first event to the end of its last, or of its bucket."""
    name: list[int]
    """Index into `names`; of a summary, the name of its longest event."""
    count: list[int]
    """Events that it stands for."""
    busy_ratio: list[float]
    """Share of the slice that its events cover; 1 for an event."""
    event: list[int]
    """What `timeline-slice` names it by, with its track; -1 for a summary."""


class SlicesView(msgspec.Struct, frozen=True, kw_only=True):
    """`timeline-slices`: a window of some tracks at the detail that so many pixels can show."""

    from_after_ns: int
    to_after_ns: int
    names: list[str]
    tracks: list[TrackSlices]
    omitted_tracks: list[str]
    """Tracks that were asked for and left out, because the answer would have become too long."""


class CounterSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A counter within a window: mean, least and largest value of each piece of time."""

    track: str
    unit: str
    full: float
    """What the height of the track stands for: 1 for ratios, else the largest value of the run."""
    after_ns: list[int]
    """Start of each piece, after the start of the window."""
    mean: list[float | None]
    """Null where nothing was sampled."""
    least: list[float | None]
    largest: list[float | None]


class CountersView(msgspec.Struct, frozen=True, kw_only=True):
    """`timeline-counters`."""

    from_after_ns: int
    to_after_ns: int
    piece_ns: int
    series: list[CounterSeries]


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """Another event that one is linked to."""

    relation: Literal[
        "launches", "launched by", "operator", "backward", "forward", "parent", "captured by"
    ]
    """What the other event is to this one: `launches` and `launched by` draw the arrow from a call
    to its kernel, `backward` and `forward` that between an operator and its gradient."""
    track: str
    event: int
    name: str
    after_ns: int
    duration_ns: int
    row: int


class SliceView(msgspec.Struct, frozen=True, kw_only=True):
    """`timeline-slice`: everything that is known of one event."""

    track: str
    event: int
    name: str
    kind: str
    """Table that holds it, or the kind of a span."""
    after_ns: int
    duration_ns: int
    row: int
    self_ns: int | None
    """Without what is nested in it; null where nothing nests."""
    step: str | None
    """The step in which it began."""
    args: dict[str, Any]
    """What the recording says of it, with our names where there are any: bytes, shapes, grid, …"""
    stack: list[str]
    """Python frames around it, innermost first, `file(line): function`."""
    links: list[Linked]


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One event that a search found."""

    track: str
    event: int
    name: str
    after_ns: int
    duration_ns: int
    row: int


class SearchView(msgspec.Struct, frozen=True, kw_only=True):
    """`timeline-search`: events by a part of their name, regardless of case, in order of time.

    With `around`, that many nanoseconds after the origin, the matches next to it are listed.
    """

    name: str
    match_count: int
    before_count: int
    """Matches before the first one listed."""
    total_ns: int
    """Durations of all matches, summed."""
    matches: list[Match]


class NameTime(msgspec.Struct, frozen=True, kw_only=True):
    """What the events of one name took within a range."""

    name: str
    count: int
    total_ns: int
    """Within the range: events are cut at its ends."""
    self_ns: int
    """The same without what is nested in them."""
    mean_ns: float
    max_ns: int


class TrackSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on a track within a range."""

    track: str
    event_count: int
    busy_ns: int
    """The union of its events."""
    busy_ratio: float
    """Share of the range."""
    gap_count: int
    longest_gap_ns: int
    name_count: int
    names: list[NameTime]
    """By self time; `top` of them."""


class SummaryView(msgspec.Struct, frozen=True, kw_only=True):
    """`timeline-summary`: a range of some tracks in numbers."""

    from_after_ns: int
    to_after_ns: int
    tracks: list[TrackSummary]
    notes: list[str]


class FlameView(msgspec.Struct, frozen=True, kw_only=True):
    """`timeline-flame`: a range of some tracks by path of names, largest first."""

    from_after_ns: int
    to_after_ns: int
    total_ns: int
    """Of the outermost calls."""
    roots: list[FlameNode]
    left_out_ns: int
    """Self time of paths too small to be listed."""
