"""One event of the timeline: what the recording says of it, and what it is linked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from stepscope.analysis import Slices
from stepscope.run import Run
from stepscope.schema import STREAM_TABLES
from stepscope.timeline.blocks import EVENT_TABLES, event_query
from stepscope.timeline.content import Content
from stepscope.timeline.spans import SPAN_NAME
from stepscope.timeline.trace import timelines_of
from stepscope.timeline.tracks import PlacedEvent, TrackId, track_id
from stepscope.timeline.window import read_window

Relation = Literal[
    "launches", "launched by", "operator", "backward", "forward", "parent", "captured by"
]
MOST_LINKS = 50
"""Of one relation: a graph's launch has thousands of kernels."""
MOST_FRAMES = 200
_FAR = 4096
"""Pieces of a range that is seen from afar."""
_DRAWN = {"trace", "id", "track", "name", "start_ns", "duration_ns", "shadow"}
_LINKS = {"parent", "python", "launch", "operator", "forward", "captured_operator", "call_stack"}
_JSON = {"args", "input_dims", "input_types", "input_strides", "concrete_inputs", "labels"}
_COLUMNS = ("place", "shadow", "track", "id", "name", "start_ns", "duration")
_ONE = event_query(("place", "id"), "trace = $1 AND id = $2 AND track = $3")
_MANY = event_query(_COLUMNS, "trace = $1 AND list_contains($2, id)")
_REFERRING: tuple[tuple[str, str, str, Relation], ...] = (
    *((table, "launch", "runtime_calls", "launches") for table in STREAM_TABLES),
    ("operators", "forward", "operators", "backward"),
)
"""Tables, their columns that refer to events of other tables, and what that means to these."""
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


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an event is looked for."""

    run: Run
    track: TrackId

    @property
    def base_ns(self) -> int:
        """What times after the run's origin are to be increased by to be the recording's own."""
        return self.run.clock.origin_in(self.track.trace)

    def between(self, begin: int, end: int, *, width: int = 1) -> Slices:
        """What lies in a range of the track."""
        return read_window(self.run, [self.track], (begin, max(end, begin + 1)), width=width)

    @property
    def contents(self) -> Mapping[int, Content]:
        """What is on the tracks of the recording."""
        return timelines_of(self.run).contents[self.track.trace]

    @property
    def nests(self) -> bool:
        """Whether events of the track lie in each other."""
        content = self.contents.get(self.track.track) if self.track.kind == "trace" else None
        return content is None or not content.is_stream


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedEvent(PlacedEvent):
    """Another event, and what it is to the one that is asked about."""

    relation: Relation


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEvent:
    """One event; times count from the run's origin."""

    event: int
    name: str
    kind: str
    after_ns: int
    duration_ns: int
    row: int
    self_ns: int | None
    args: dict[str, Any]
    stack: list[str]
    """Innermost first."""
    links: list[LinkedEvent]


def find_event(run: Run, track: TrackId, event: int) -> KnownEvent | None:
    """An event of a recording; None where it has none of that number on that track."""
    reader, trace = run.reader, track.trace
    places = reader.sql(_ONE, [trace, event, track.track], traces=(trace,))["place"]
    if not len(places):
        return None
    table = EVENT_TABLES[int(places[0])]
    row = {
        name: _value(values, 0)
        for name, values in reader.table(
            table, condition=f"trace = {trace} AND id = ?", parameters=(event,)
        ).items()
    }
    place = _Place(run, track)
    links = list(_links(place, table, row))
    after, duration = row["start_ns"] - place.base_ns, max(row["duration_ns"] or 0, 0)
    on_row, around = _around(place, event, after)
    return KnownEvent(
        event=event,
        name=row["name"],
        kind=table,
        after_ns=after,
        duration_ns=duration,
        row=on_row,
        self_ns=_self_ns(place, after, duration, on_row) if place.nests else None,
        args=_arguments(row),
        stack=_stack(place, table, row, links),
        links=[*links, *around],
    )


def find_span(run: Run, track: TrackId, event: int) -> KnownEvent | None:
    """A span of the job's own recording."""
    found = run.reader.sql(
        f"SELECT *, {SPAN_NAME} AS called FROM spans WHERE process = ? AND log = ? AND seq = ?",  # noqa: S608
        [*track.words, event],
    )
    if not len(found["seq"]):
        return None
    row = {name: _value(values, 0) for name, values in found.items()}
    after = row["start_ns"] - run.clock.origin_ns
    end = run.clock.end_ns if row["end_ns"] is None else row["end_ns"]
    duration = max(end - row["start_ns"], 0)
    place = _Place(run, track)
    on_row, around = _around(place, event, after)
    args = _arguments({name: row[name] for name in ("kind", "name", "value", "flags", "labels")})
    if row["end_ns"] is None:
        args["unfinished"] = True
    return KnownEvent(
        event=event,
        name=row["called"],
        kind=row["kind"],
        after_ns=after,
        duration_ns=duration,
        row=on_row,
        self_ns=_self_ns(place, after, duration, on_row),
        args={**args, "name": row["name"]},
        stack=[],
        links=around,
    )


def _arguments(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        if value is None or name in _DRAWN or name in _LINKS:
            continue
        if name not in _JSON:
            found[name] = value
            continue
        try:
            decoded = msgspec.json.decode(value)
        except msgspec.DecodeError:
            decoded = value
        if name in {"args", "labels"} and isinstance(decoded, dict):
            found |= {key: its for key, its in decoded.items() if key not in found}
        else:
            found[name] = decoded
    return found


def _links(place: _Place, table: str, row: Mapping[str, Any]) -> Iterator[LinkedEvent]:
    trace, run = place.track.trace, place.run
    relations: list[tuple[Relation, list[int]]] = [
        (relation, [row[column]])
        for column, relation in _REFERRED.items()
        if row.get(column) is not None
    ]
    for source, column, target, relation in _REFERRING:
        if table == target:
            found = run.reader.sql(
                f"SELECT id FROM {source} WHERE trace = ? AND {column} = ? ORDER BY id LIMIT ?",  # noqa: S608
                [trace, row["id"], MOST_LINKS],
                traces=(trace,),
            )
            relations.append((relation, found["id"].tolist()))
    wanted = sorted({each for _, ids in relations for each in ids})
    if not wanted:
        return
    rows = run.reader.sql(_MANY, [trace, wanted], traces=(trace,))
    by_id = {int(each): i for i, each in enumerate(rows["id"].tolist())}
    for relation, ids in relations:
        for each in ids:
            if each in by_id:
                i = by_id[each]
                start = int(rows["start_ns"][i])
                kind = "ranges" if rows["shadow"][i] else "trace"
                yield LinkedEvent(
                    relation=relation,
                    track=track_id(kind, trace, int(rows["track"][i])),
                    event=each,
                    name=rows["name"][i],
                    after_ns=start - place.base_ns,
                    duration_ns=int(rows["duration"][i]),
                    row=timelines_of(run)[trace].row_of(each, start),
                )


def _around(place: _Place, event: int, after_ns: int) -> tuple[int, list[LinkedEvent]]:
    """The row of an event, and the one that it lies in, if any."""
    at = place.between(after_ns, after_ns + 1)
    own = np.flatnonzero(at.event == event)
    if not len(own):
        return 0, []
    row = int(at.row[own[0]])
    above = np.flatnonzero((at.row == row - 1) & (at.start <= after_ns))
    return row, [
        LinkedEvent(
            relation="parent",
            track=place.track,
            event=int(at.event[i]),
            name=at.names[int(at.name[i])],
            after_ns=int(at.start[i]),
            duration_ns=int(at.duration[i]),
            row=row - 1,
        )
        for i in above[-1:].tolist()
        if place.nests
    ]


def _self_ns(place: _Place, after_ns: int, duration: int, row: int) -> int:
    """A duration without what lies one row below."""
    end_ns = after_ns + duration
    if not duration:
        return 0
    # From afar, summaries tell; those at the ends may hold what is outside, and are looked into.
    below = place.between(after_ns, end_ns, width=max(1, duration // _FAR))
    below = below.take(below.row == row + 1)
    whole = (below.start >= after_ns) & (below.start + below.duration <= end_ns)
    inside = int(below.busy[whole].sum())
    for part in np.flatnonzero(~whole).tolist():
        begin = max(int(below.start[part]), after_ns)
        end = min(int(below.start[part] + below.duration[part]), end_ns)
        near = place.between(begin, end)
        near = near.take((near.row == row + 1) & (near.start >= begin))
        inside += int((np.minimum(near.start + near.duration, end_ns) - near.start).sum())
    return max(duration - inside, 0)


def _stack(
    place: _Place, table: str, row: Mapping[str, Any], links: list[LinkedEvent]
) -> list[str]:
    """Python frames around an event, or around the call that launched it."""
    if row.get("call_stack"):
        return [frame for frame in row["call_stack"].split(";") if frame]
    track, start, end = row["track"], row["start_ns"], row["start_ns"] + (row["duration_ns"] or 0)
    if table in STREAM_TABLES:
        calls = [link for link in links if link.relation == "launched by"]
        if not calls:
            return []
        track, start = calls[0].track.track, calls[0].after_ns + place.base_ns
        end = start + calls[0].duration_ns
    if not any("python_functions" in each.tables for each in place.contents.values()):
        return []
    trace = place.track.trace
    given = [trace, track, start, end, MOST_FRAMES]
    frames: list[str] = place.run.reader.sql(_FRAMES, given, traces=(trace,))["name"].tolist()
    return frames


def _value(values: Any, row: int) -> Any:
    if np.ma.getmaskarray(values)[row]:
        return None
    value = values[row]
    return value.item() if isinstance(value, np.generic) else value
