"""Payloads of the timeline. Times are nanoseconds after the run's origin (`after_ns`)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from stepscope.schema import Payload, field_label
from stepscope.timeline import TimelineEvent
from stepscope.views.flame_nodes import FlameNode
from stepscope.views.quality import QualityNote

TrackKind = Literal["spans", "host", "device", "counter"]
"""Spans of the job, threads and streams of a trace, counters."""
GroupKind = Literal["node", "process", "recording", "device", "counters"]


class Track(msgspec.Struct, frozen=True, kw_only=True):
    """A track of the tree."""

    id: str
    """Value for the options `tracks` and `track`."""
    name: str
    kind: TrackKind
    row_count: int
    """Rows of nested and overlapping slices, as known so far for a growing track; 1 for a
    counter."""
    unit: str = ""
    """Unit of a counter."""
    event_count: int | None = None
    """Number of slices, if known without reading them."""


class TrackGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A node, a process, a trace or a device, with its groups and tracks."""

    id: str
    name: str
    kind: GroupKind
    rank: int | None = None
    groups: list[TrackGroup] = []
    tracks: list[Track] = []


class RankSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one rank or of one trace: to jump to, and to align ranks by."""

    group: str
    """Group of the tracks of these steps."""
    title: str
    numbers: Annotated[list[int], field_label(display="identifier")]
    """Numbers of the steps in time order; counted from 0 if a trace does not number them."""
    after_ns: list[int]
    duration_ns: list[int]
    outliers: Annotated[list[int], field_label(display="identifier")]
    """Numbers of the steps that take far longer than the others; see `steps`."""
    left_out_count: Annotated[int, field_label("omitted steps")]
    """Steps after the listed ones, if there are too many to send."""


class FindingMark(msgspec.Struct, frozen=True, kw_only=True):
    """First and last time at which a rule fired."""

    rule: str
    sentence: str
    first_after_ns: int
    last_after_ns: int


class TimelineView(Payload, frozen=True, kw_only=True):
    """`timeline`: the tree of tracks, with steps and findings."""

    origin_ns: str
    """Epoch nanoseconds that times count from, as text: doubles cannot hold them."""
    end_after_ns: int
    """End of the recorded data."""
    groups: list[TrackGroup]
    steps: list[RankSteps]
    findings: list[FindingMark]
    notes: list[str]
    quality: list[QualityNote]
    missing: str | None


class TrackSlices(msgspec.Struct, frozen=True, kw_only=True):
    """Slices of one track within a window, column by column, sorted by row and start.

    A slice is one event, or a summary of events that are too short to be visible.
    """

    track: str
    row_count: int
    """Number of rows of these slices; rows count from 0."""
    row: list[int]
    after_ns: list[int]
    """Start, after the start of the window; negative if it started earlier."""
    duration_ns: list[int]
    """Duration; for a summary, from the start of its first event to the end of its last event or of
    its bucket."""
    name: Annotated[list[int], field_label(display="identifier")]
    """Index into `names`; for a summary, the name of its longest event."""
    count: list[int]
    """Number of events in the slice."""
    busy_ratio: list[float]
    """Share of the slice that its events cover; 1 for an event."""
    event: list[int]
    """Id for `timeline-slice`, together with the track; -1 for a summary."""
    part_slice: Annotated[list[int], field_label(display="identifier")]
    """Aggregates inside slices, as the calls of one transform for a batch: index of the slice."""
    part_name: Annotated[list[int], field_label(display="identifier")]
    """Index into `names`."""
    part_ns: list[int]
    """Sum of the times, which are anywhere in the slice."""


class SlicesView(Payload, frozen=True, kw_only=True):
    """`timeline-slices`: a window of tracks at the detail that the requested pixels can show."""

    from_after_ns: int
    to_after_ns: int
    names: list[str]
    tracks: list[TrackSlices]
    omitted_tracks: list[str]
    """Requested tracks that were left out to limit the size of the response."""


class CounterSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A counter within a window: mean, minimum and maximum of each time bin."""

    track: str
    unit: str
    full: float
    """Value at the full height of the track: 1 for ratios, else the maximum over the run."""
    after_ns: list[int]
    """Start of each bin, after the start of the window."""
    mean: list[float | None]
    """Null if nothing was sampled."""
    minimum: list[float | None] = msgspec.field(name="least")
    largest: list[float | None]


class CountersView(Payload, frozen=True, kw_only=True):
    """`timeline-counters`."""

    from_after_ns: int
    to_after_ns: int
    piece_ns: int
    series: list[CounterSeries]


class SearchView(Payload, frozen=True, kw_only=True):
    """`timeline-search`: events by part of their name, regardless of case, in time order.

    With `around` (nanoseconds after the origin), the matches next to that time are listed.
    """

    name: str
    match_count: int
    before_count: Annotated[int, field_label("matches before")]
    """Matches before the first listed one."""
    total_ns: int
    """Sum of the durations of all matches."""
    matches: list[TimelineEvent]


class NameTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the events of one name within a range."""

    name: str
    count: int
    total_ns: int
    """Time within the range: events are clipped at its ends. An event inside another of the same
    name counts once."""
    self_ns: Annotated[int, field_label("self time")]
    """The same without nested events."""
    mean_ns: float
    max_ns: Annotated[int, field_label("longest")]


class TrackSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of a track within a range."""

    track: str
    event_count: int
    busy_ns: Annotated[int, field_label("busy time")]
    """Time covered by at least one event."""
    busy_ratio: Annotated[float | None, field_label("busy", display="bar")]
    """Share of the range."""
    gap_count: int
    longest_gap_ns: int
    name_count: int
    names: list[NameTime]
    """The `top` names with the most self time."""


class SummaryView(Payload, frozen=True, kw_only=True):
    """`timeline-summary`: a range of tracks in numbers."""

    from_after_ns: int
    to_after_ns: int
    tracks: list[TrackSummary]
    notes: list[str]


class FlameView(Payload, frozen=True, kw_only=True):
    """`timeline-flame`: a range of tracks by path of names, largest first."""

    from_after_ns: int
    to_after_ns: int
    total_ns: int
    """Sum over the outermost calls."""
    roots: list[FlameNode]
    left_out_ns: int
    """Self time of the paths that are too small to be listed."""
