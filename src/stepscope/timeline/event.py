"""Details of one event of the timeline: recorded attributes and linked events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from stepscope import analysis, schema
from stepscope.run import EVENT_TABLES, Run
from stepscope.timeline.blocks import build_event_query
from stepscope.timeline.content import Content
from stepscope.timeline.critical_path import PathTimeline, get_path_timeline
from stepscope.timeline.spans import SPAN_NAME, SlicePart
from stepscope.timeline.trace import get_timelines
from stepscope.timeline.tracks import PATH, TrackId, find_step_at, parse_track, track_id
from stepscope.timeline.window import read_parts, read_window

Relation = Literal[
    "launches",
    "launched by",
    "operator",
    "backward",
    "forward",
    "parent",
    "captured by",
    "piece of",
    "waits for",
    "holds up",
]
MAX_LINKS = 50
"""Links per relation: the launch of a graph has thousands of kernels."""
MAX_FRAMES = 200
_SUMMARY_BUCKETS = 4096
"""Buckets that a range is divided into when nested time is read from summaries."""
_DRAWN = {"trace", "id", "track", "name", "start_ns", "duration_ns", "shadow"}
_LINKS = {"parent", "python", "launch", "operator", "forward", "captured_operator", "call_stack"}
_JSON = {"args", "input_dims", "input_types", "input_strides", "concrete_inputs", "labels"}
_COLUMNS = ("table_index", "shadow", "track", "id", "name", "start_ns", "duration")
_ONE = build_event_query(("table_index", "id"), "trace = $1 AND id = $2 AND track = $3")
_MANY = build_event_query(_COLUMNS, "trace = $1 AND list_contains($2, id)")
_REFERRING: tuple[tuple[str, str, str, Relation], ...] = (
    *((table, "launch", "runtime_calls", "launches") for table in schema.STREAM_TABLES),
    ("operators", "forward", "operators", "backward"),
)
"""Tables, their columns that refer to events of other tables, those tables, and the relation as
seen from the referenced event."""
_REFERRED: dict[str, Relation] = {
    "launch": "launched by",
    "operator": "operator",
    "forward": "forward",
    "captured_operator": "captured by",
}
_FRAMES = """
    SELECT name FROM python_functions
    WHERE trace = $1 AND track = $2 AND start_ns <= $3 AND start_ns + duration_ns >= $4
    ORDER BY start_ns DESC, duration_ns LIMIT $5
"""


class _TrackContext(msgspec.Struct, frozen=True):
    """Track of an event, with access to its run."""

    run: Run
    track: TrackId

    @property
    def base_ns(self) -> int:
        """Offset from times after the run's origin to times of the trace."""
        return self.run.clock.origin_in(self.track.trace)

    def read(self, start: int, end: int, *, width: int = 1) -> analysis.Slices:
        """Read the slices of the track that overlap a range."""
        return read_window(self.run, [self.track], (start, max(end, start + 1)), width=width)

    @property
    def contents(self) -> Mapping[int, Content]:
        """Content of the tracks of the trace."""
        return get_timelines(self.run).contents[self.track.trace]

    @property
    def nests(self) -> bool:
        """Return True if events of the track nest."""
        content = self.contents.get(self.track.track) if self.track.kind == "trace" else None
        return content is None or not content.is_stream


class LinkedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event linked to the requested one."""

    relation: Relation
    """Relation as seen from the requested event: `launches` and `launched by` connect a call and
    its kernel, `backward` and `forward` an operator and its gradient. A piece of the critical path
    is a `piece of` an event, `waits for` the piece before it and `holds up` the one after it."""
    track: str
    event: int
    name: str
    after_ns: int
    duration_ns: int
    row: int


class EventDetails(schema.Payload, frozen=True, kw_only=True):
    """`timeline-slice`: details of one event."""

    track: str
    event: int
    name: str
    kind: str
    """Table of the event, the kind of a span, or the kind of time of a piece of the critical
    path."""
    after_ns: int
    duration_ns: int
    row: int
    self_ns: int | None
    """Duration without nested events; null where events do not nest."""
    spread_ns: int | None = None
    """Of an aggregate, whose duration is a sum of times: the extent that they are in."""
    step: str | None
    """Step that contains the start of the event."""
    args: dict[str, Any]
    """Recorded attributes, under column names if there are any: bytes, shapes, grid, …"""
    stack: list[str]
    """Python frames around the event, innermost first, as `file(line): function`."""
    links: list[LinkedEvent]
    parts: Annotated[dict[str, int], schema.field_label(unit="ns")] = msgspec.field(
        default_factory=dict
    )
    """Aggregates inside the event by name: nanoseconds."""


def find_event(run: Run, track: TrackId, event: int) -> EventDetails | None:
    """Find an event of a trace; None if the track has no event with this id."""
    reader, trace = run.reader, track.trace
    tables = reader.sql(_ONE, [trace, event, track.track], traces=(trace,))["table_index"]
    if not len(tables):
        return None
    table = EVENT_TABLES[int(tables[0])]
    row = {
        name: _to_python(values, 0)
        for name, values in reader.table(
            table, condition=f"trace = {trace} AND id = ?", parameters=(event,)
        ).items()
    }
    context = _TrackContext(run, track)
    links = list(_find_links(context, table, row))
    after_ns, duration_ns = row["start_ns"] - context.base_ns, max(row["duration_ns"] or 0, 0)
    row_index, parents = _find_parents(context, event, after_ns)
    return EventDetails(
        track=str(track),
        event=event,
        name=row["name"],
        kind=table,
        after_ns=after_ns,
        duration_ns=duration_ns,
        row=row_index,
        self_ns=_compute_self_ns(context, after_ns, duration_ns, row_index)
        if context.nests
        else None,
        step=find_step_at(run, track, after_ns),
        args=_collect_arguments(row),
        stack=_collect_stack(context, table, row, links),
        links=[*links, *parents],
    )


def find_span(run: Run, track: TrackId, event: int) -> EventDetails | None:
    """Find a span that the job recorded; None if there is none."""
    columns = run.reader.sql(
        f"SELECT *, {SPAN_NAME} AS label FROM spans WHERE process = ? AND log = ? AND seq = ?",  # noqa: S608
        [*track.words, event],
    )
    if not len(columns["seq"]):
        return None
    row = {name: _to_python(values, 0) for name, values in columns.items()}
    after_ns = row["start_ns"] - run.clock.origin_ns
    end = run.clock.end_ns if row["end_ns"] is None else row["end_ns"]
    extent_ns = max(end - row["start_ns"], 0)
    context = _TrackContext(run, track)
    is_aggregate = row["kind"] in schema.AGGREGATE_KINDS
    slice_event = _find_container(run, row) if is_aggregate else event
    row_index, parents = _find_parents(context, slice_event, after_ns)
    parts = read_parts(run, [track], (after_ns, after_ns + max(extent_ns, 1)), min_duration_ns=1)
    args = _collect_arguments(
        {name: row[name] for name in ("kind", "name", "value", "flags", "labels")}
    )
    if row["end_ns"] is None:
        args["unfinished"] = True
    return EventDetails(
        track=str(track),
        event=event,
        name=row["label"],
        kind=row["kind"],
        after_ns=after_ns,
        duration_ns=row["value"] if is_aggregate else extent_ns,
        row=row_index,
        self_ns=None if is_aggregate else _compute_self_ns(context, after_ns, extent_ns, row_index),
        spread_ns=extent_ns if is_aggregate else None,
        step=find_step_at(run, track, after_ns),
        args={**args, "name": row["name"]},
        stack=[],
        links=parents,
        parts=_sum_parts(part for part in parts if part.event == event),
    )


_REASONS = {
    analysis.EdgeKind.HOST: "what its thread did before",
    analysis.EdgeKind.WORK: "the work itself, which runs on the device",
    analysis.EdgeKind.LAUNCH: "the call that launched the work",
    analysis.EdgeKind.STREAM: "earlier work of the same stream",
    analysis.EdgeKind.EVENT: "an event of another stream",
    analysis.EdgeKind.SYNC: "work of the device",
    analysis.EdgeKind.HANDOVER: "another thread",
    analysis.EdgeKind.RANK: "the last rank to reach the collective",
}
"""What the end of a piece of the critical path waits for, by the kind of its edge."""


def find_piece(run: Run, event: int) -> EventDetails | None:
    """Find a piece of the critical path; None if there is none with this number."""
    path = get_path_timeline(run)
    piece = path.find_piece(event)
    if piece is None:
        return None
    graph, pieces, index = piece
    edge, rank = int(graph.path.edge[index]), int(pieces.rank[index])
    category = analysis.PATH_NAMES[graph.path.category[index]]
    name, kind = pieces.labels[pieces.label[index]]
    args: dict[str, Any] = {"kind_of_event": kind}
    if edge >= 0:
        args["waits_for"] = _REASONS[graph.joined.causal.edges.kind[edge]]
    neighbours = [_link_piece(path, "waits for", event - 1)] if index else []
    if index + 1 < len(pieces.label):
        neighbours.append(_link_piece(path, "holds up", event + 1))
    events: list[LinkedEvent] = []
    drawn = _link_piece(path, "piece of", event)
    step = None
    if rank >= 0:
        trace = graph.divided[rank].trace
        args |= {} if trace.rank is None else {"rank": trace.rank}
        events += _link_events(run, trace.trace, [("piece of", [int(pieces.event[index])])])
        step = find_step_at(run, track_id("trace", trace.trace, 0), drawn.after_ns)
    return EventDetails(
        track=PATH,
        event=event,
        name=name,
        kind=category,
        after_ns=drawn.after_ns,
        duration_ns=drawn.duration_ns,
        row=drawn.row,
        self_ns=None,
        step=step,
        args=args,
        stack=[],
        links=[*events, *neighbours],
    )


def _link_piece(path: PathTimeline, relation: Relation, event: int) -> LinkedEvent:
    """Link a piece of the critical path."""
    slices = path.slices
    (index,) = np.flatnonzero(slices.event == event).tolist()
    return LinkedEvent(
        relation=relation,
        track=PATH,
        event=event,
        name=slices.names[int(slices.name[index])],
        after_ns=int(slices.start[index]),
        duration_ns=int(slices.duration[index]),
        row=int(slices.row[index]),
    )


def _find_container(run: Run, row: Mapping[str, Any]) -> int:
    """Find the span inside which an aggregate is drawn; -1 if there is none."""
    columns = run.reader.sql(
        "SELECT seq FROM spans WHERE kind = ? AND process = ? AND log = ? "
        "AND start_ns = ? AND end_ns = ?",
        [
            schema.AGGREGATE_KINDS[row["kind"]],
            *(row[n] for n in ("process", "log", "start_ns", "end_ns")),
        ],
    )
    return int(columns["seq"][0]) if len(columns["seq"]) else -1


def _sum_parts(parts: Iterable[SlicePart]) -> dict[str, int]:
    """Sum the aggregates of a slice by name, the largest first."""
    sums: Counter[str] = Counter()
    for part in parts:
        sums[part.name] += part.spent_ns
    return dict(sums.most_common())


def _collect_arguments(row: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, value in row.items():
        if value is None or name in _DRAWN or name in _LINKS:
            continue
        if name not in _JSON:
            arguments[name] = value
            continue
        try:
            decoded = msgspec.json.decode(value)
        except schema.MALFORMED_JSON:
            decoded = value
        if name in {"args", "labels"} and isinstance(decoded, dict):
            arguments |= {
                key: argument for key, argument in decoded.items() if key not in arguments
            }
        else:
            arguments[name] = decoded
    return arguments


def _find_links(
    context: _TrackContext, table: str, row: Mapping[str, Any]
) -> Iterator[LinkedEvent]:
    trace, run = context.track.trace, context.run
    relations: list[tuple[Relation, list[int]]] = [
        (relation, [row[column]])
        for column, relation in _REFERRED.items()
        if row.get(column) is not None
    ]
    for source, column, target, relation in _REFERRING:
        if table == target:
            columns = run.reader.sql(
                f"SELECT id FROM {source} WHERE trace = ? AND {column} = ? ORDER BY id LIMIT ?",  # noqa: S608
                [trace, row["id"], MAX_LINKS],
                traces=(trace,),
            )
            relations.append((relation, columns["id"].tolist()))
    yield from _link_events(run, trace, relations)


def _link_events(
    run: Run, trace: int, relations: Sequence[tuple[Relation, list[int]]]
) -> Iterator[LinkedEvent]:
    """Link events of a trace by their ids."""
    linked_ids = sorted({event_id for _, ids in relations for event_id in ids})
    if not linked_ids:
        return
    rows = run.reader.sql(_MANY, [trace, linked_ids], traces=(trace,))
    by_id = {int(event_id): index for index, event_id in enumerate(rows["id"].tolist())}
    for relation, ids in relations:
        for event_id in ids:
            if event_id in by_id:
                index = by_id[event_id]
                start = int(rows["start_ns"][index])
                kind = "ranges" if rows["shadow"][index] else "trace"
                yield LinkedEvent(
                    relation=relation,
                    track=str(track_id(kind, trace, int(rows["track"][index]))),
                    event=event_id,
                    name=rows["name"][index],
                    after_ns=start - run.clock.origin_in(trace),
                    duration_ns=int(rows["duration"][index]),
                    row=get_timelines(run)[trace].find_row(event_id, start),
                )


def _find_parents(
    context: _TrackContext, event: int, after_ns: int
) -> tuple[int, list[LinkedEvent]]:
    """Find the row of an event and the event that encloses it, if any."""
    slices = context.read(after_ns, after_ns + 1)
    event_rows = np.flatnonzero(slices.event == event)
    if not len(event_rows):
        return 0, []
    row = int(slices.row[event_rows[0]])
    parent_rows = np.flatnonzero((slices.row == row - 1) & (slices.start <= after_ns))
    return row, [
        LinkedEvent(
            relation="parent",
            track=str(context.track),
            event=int(slices.event[index]),
            name=slices.names[int(slices.name[index])],
            after_ns=int(slices.start[index]),
            duration_ns=int(slices.duration[index]),
            row=row - 1,
        )
        for index in parent_rows[-1:].tolist()
        if context.nests
    ]


def _compute_self_ns(context: _TrackContext, after_ns: int, duration_ns: int, row: int) -> int:
    """Compute the duration without the events one row below."""
    end_ns = after_ns + duration_ns
    if not duration_ns:
        return 0
    # Summaries suffice, except at both ends, where they may include events outside the range:
    # there, single events are read.
    below = context.read(after_ns, end_ns, width=max(1, duration_ns // _SUMMARY_BUCKETS))
    below = below.take(below.row == row + 1)
    is_inside = (below.start >= after_ns) & (below.start + below.duration <= end_ns)
    nested_ns = int(below.busy[is_inside].sum())
    for index in np.flatnonzero(~is_inside).tolist():
        part_start = max(int(below.start[index]), after_ns)
        part_end = min(int(below.start[index] + below.duration[index]), end_ns)
        events = context.read(part_start, part_end)
        events = events.take((events.row == row + 1) & (events.start >= part_start))
        nested_ns += int((np.minimum(events.start + events.duration, end_ns) - events.start).sum())
    return max(duration_ns - nested_ns, 0)


def _collect_stack(
    context: _TrackContext, table: str, row: Mapping[str, Any], links: list[LinkedEvent]
) -> list[str]:
    """Collect the Python frames around an event, or around the call that launched it."""
    if row.get("call_stack"):
        return [frame for frame in row["call_stack"].split(";") if frame]
    track, start, end = row["track"], row["start_ns"], row["start_ns"] + (row["duration_ns"] or 0)
    if table in schema.STREAM_TABLES:
        calls = [link for link in links if link.relation == "launched by"]
        if not calls:
            return []
        track, start = parse_track(calls[0].track).track, calls[0].after_ns + context.base_ns
        end = start + calls[0].duration_ns
    if not any("python_functions" in content.tables for content in context.contents.values()):
        return []
    trace = context.track.trace
    parameters = [trace, track, start, end, MAX_FRAMES]
    frames: list[str] = context.run.reader.sql(_FRAMES, parameters, traces=(trace,))[
        "name"
    ].tolist()
    return frames


def _to_python(values: Any, row: int) -> Any:
    if np.ma.getmaskarray(values)[row]:
        return None
    value = values[row]
    return value.item() if isinstance(value, np.generic) else value
