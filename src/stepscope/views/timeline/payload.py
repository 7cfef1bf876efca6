"""Payloads of the timeline. Times are nanoseconds after the run's origin (`after_ns`)."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Literal, NamedTuple

import msgspec

from stepscope import analysis, schema, timeline
from stepscope.views.options import shorten_name
from stepscope.views.trace_data import QualityNote

MAX_NODES = 3_000
MIN_SHARE = 1 / 4_000
"""Share of the total; a smaller node is less than a pixel wide."""
MAX_DEPTH = 200
_ROOT = -1


class FlameNode(msgspec.Struct, frozen=True, kw_only=True):
    """Calls on one path of names."""

    name: str
    count: int
    total_ns: int
    self_ns: int
    children: list[FlameNode] = []


class FlameNodes(NamedTuple):
    """Nodes of a flame graph."""

    total_ns: int
    """Time of the outermost calls."""
    roots: list[FlameNode]
    left_out_ns: int
    """Self time of paths that are too small to be listed."""


def build_flame_nodes(tree: analysis.CallTree) -> FlameNodes:
    """Build the visible nodes of a tree, largest first."""
    children: dict[int, list[int]] = defaultdict(list)
    for node, parent in enumerate(tree.parent):
        children[parent].append(node)
    total_ns = sum(tree.total_ns[node] for node in children[_ROOT])
    visible = _find_visible(tree, children, total_ns)
    return FlameNodes(
        total_ns=total_ns,
        roots=_build_nodes(tree, children, _ROOT, visible),
        left_out_ns=sum(ns for node, ns in enumerate(tree.self_ns) if node not in visible),
    )


def _find_visible(
    tree: analysis.CallTree, children: dict[int, list[int]], total_ns: int
) -> set[int]:
    """Find the largest nodes whose ancestors are all visible."""
    min_ns = total_ns * MIN_SHARE
    large = sorted((ns for ns in tree.total_ns if ns >= min_ns), reverse=True)
    min_ns = max([min_ns, *large[MAX_NODES - 1 : MAX_NODES]])
    visible: set[int] = set()
    level = children[_ROOT]
    for _ in range(MAX_DEPTH):
        level = [node for node in level if tree.total_ns[node] >= min_ns]
        visible.update(level)
        level = [child for node in level for child in children[node]]
    return visible


def _build_nodes(
    tree: analysis.CallTree, children: dict[int, list[int]], parent: int, visible: set[int]
) -> list[FlameNode]:
    nodes = [node for node in children[parent] if node in visible]
    return [
        FlameNode(
            name=shorten_name(tree.name[node]),
            count=tree.count[node],
            total_ns=tree.total_ns[node],
            self_ns=tree.self_ns[node],
            children=_build_nodes(tree, children, node, visible),
        )
        for node in sorted(nodes, key=lambda node: (-tree.total_ns[node], tree.name[node]))
    ]


TrackKind = Literal["spans", "host", "device", "counter", "path"]
"""Spans of the job, threads and streams of a trace, counters, the critical path."""
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
    is_empty: bool = False
    """True for a counter that never exceeds 0, and a thread of marks of the profiler alone."""


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
    rank: str
    """Name of the rank in `steps`."""
    numbers: Annotated[list[int], schema.field_label(display="identifier")]
    """Numbers of the steps in time order; counted from 0 if a trace does not number them."""
    after_ns: list[int]
    duration_ns: list[int]
    outliers: Annotated[list[int], schema.field_label(display="identifier")]
    """Numbers of the steps that take far longer than the others; see `steps`."""
    left_out_count: Annotated[int, schema.field_label("omitted steps")]
    """Steps after the listed ones, if there are too many to send."""


class FindingMark(msgspec.Struct, frozen=True, kw_only=True):
    """First and last time at which a rule fired."""

    rule: str
    sentence: str
    first_after_ns: int
    last_after_ns: int


class StandingCall(msgspec.Struct, frozen=True, kw_only=True):
    """Function in which a process of a stuck job is, to the end of the data."""

    track: str
    """Track of its training thread."""
    name: str
    """Function and line."""
    after_ns: int
    """Last progress."""


class TimelineView(schema.Payload, frozen=True, kw_only=True):
    """`timeline`: the tree of tracks, with steps and findings."""

    origin_ns: str
    """Epoch nanoseconds that times count from, as text: doubles cannot hold them."""
    end_after_ns: int
    """End of the recorded data."""
    critical_path: TrackGroup | None
    """Track of the critical path of the steps; null without traces that have one."""
    groups: list[TrackGroup]
    steps: list[RankSteps]
    findings: list[FindingMark]
    standing: list[StandingCall]
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
    name: Annotated[list[int], schema.field_label(display="identifier")]
    """Index into `names`; for a summary, the name of its longest event."""
    count: list[int]
    """Number of events in the slice."""
    busy_ratio: list[float]
    """Share of the slice that its events cover; 1 for an event."""
    event: list[int]
    """Id for `timeline-slice`, together with the track; -1 for a summary."""
    kind: Annotated[list[int], schema.field_label(display="identifier")] = []
    """Of the critical path, index into `names` of the kind of time; for a summary, that of its
    longest piece."""
    unfinished: Annotated[list[int], schema.field_label(display="identifier")] = []
    """Indices of the slices that had not ended, which are drawn to the end of the data."""
    part_slice: Annotated[list[int], schema.field_label(display="identifier")]
    """Aggregates inside slices, as the calls of one transform for a batch: index of the slice."""
    part_name: Annotated[list[int], schema.field_label(display="identifier")]
    """Index into `names`."""
    part_ns: list[int]
    """Sum of the times, which are anywhere in the slice."""


class SlicesView(schema.Payload, frozen=True, kw_only=True):
    """`timeline-slices`: a window of tracks at the detail that the requested pixels can show."""

    from_after_ns: int
    to_after_ns: int
    names: list[str]
    kinds: list[timeline.SliceKind]
    """Kind of each of `names`, by which it is coloured."""
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


class CountersView(schema.Payload, frozen=True, kw_only=True):
    """`timeline-counters`."""

    from_after_ns: int
    to_after_ns: int
    piece_ns: int
    series: list[CounterSeries]


class SearchView(schema.Payload, frozen=True, kw_only=True):
    """`timeline-search`: events by part of their name, regardless of case, in time order.

    With `around` (nanoseconds after the origin), the matches next to that time are listed.
    """

    name: str
    match_count: int
    before_count: Annotated[int, schema.field_label("matches before")]
    """Matches before the first listed one."""
    total_ns: int
    """Sum of the durations of all matches."""
    matches: list[timeline.TimelineEvent]


class NameTime(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the events of one name within a range."""

    name: str
    count: int
    total_ns: int
    """Time within the range: events are clipped at its ends. An event inside another of the same
    name counts once."""
    self_ns: Annotated[int, schema.field_label("self time")]
    """The same without nested events."""
    mean_ns: float
    max_ns: Annotated[int, schema.field_label("longest")]


class TrackSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of a track within a range."""

    track: str
    event_count: int
    busy_ns: Annotated[int, schema.field_label("busy time")]
    """Time covered by at least one event."""
    busy_ratio: Annotated[float | None, schema.field_label("busy", display="bar")]
    """Share of the range."""
    gap_count: int
    longest_gap_ns: int
    name_count: int
    names: list[NameTime]
    """The `top` names with the most self time."""


class SummaryView(schema.Payload, frozen=True, kw_only=True):
    """`timeline-summary`: a range of tracks in numbers."""

    from_after_ns: int
    to_after_ns: int
    tracks: list[TrackSummary]
    notes: list[str]


class FlameView(schema.Payload, frozen=True, kw_only=True):
    """`timeline-flame`: a range of tracks by path of names, largest first."""

    from_after_ns: int
    to_after_ns: int
    total_ns: int
    """Sum over the outermost calls."""
    roots: list[FlameNode]
    left_out_ns: int
    """Self time of the paths that are too small to be listed."""
