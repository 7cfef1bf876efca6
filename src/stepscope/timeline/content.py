"""Content of each track of traces: enough to name it and to leave out empty tracks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stepscope import analysis, run, schema, store

_COUNTS = {
    table: f"SELECT trace, track, count(*) AS n FROM {table} GROUP BY trace, track"  # noqa: S608
    for table in run.EVENT_TABLES
}
_COUNTS["annotations"] = (
    "SELECT trace, track, on_device AS shadow, count(*) AS n, "
    "count(*) FILTER (name LIKE 'ProfilerStep#%') AS steps "
    "FROM annotations GROUP BY trace, track, on_device"
)
_COUNTS["operators"] = (
    "SELECT trace, track, count(*) AS n, count(*) FILTER (forward_thread > 0) AS backward "
    "FROM operators GROUP BY trace, track"
)
_IS_MARK = " OR ".join(f"starts_with(name, '{mark}')" for mark in analysis.PROFILER_MARKS)
_COUNTS["other_events"] = (
    f"SELECT trace, track, count(*) AS n, count(*) FILTER ({_IS_MARK}) AS marks "  # noqa: S608
    "FROM other_events GROUP BY trace, track"
)
_ROWS = (
    "SELECT trace, track, depth < 0 AS shadow, list(DISTINCT level) AS levels, "
    "max(abs(depth) + CAST(depth >= 0 AS INTEGER)) AS n FROM timeline GROUP BY ALL"
)
_COUNTS["kernels"] = (
    "SELECT trace, track, name, count(*) AS n FROM kernels GROUP BY trace, track, name"
)


class Content(msgspec.Struct):
    """Counts of the events on one track."""

    counts: Counter[str] = msgspec.field(default_factory=Counter)
    """Events by table, without shadows."""
    shadows: int = 0
    """Number of shadows of host ranges."""
    rows: int = 1
    shadow_rows: int = 1
    """Rows that shadows are drawn on, as far as the levels of detail tell."""
    levels: set[int] = msgspec.field(default_factory=set)
    """Stored levels of detail."""
    communication: int = 0
    """Number of kernels of collectives."""
    steps: int = 0
    backward: int = 0
    """Number of operators that compute gradients."""
    marks: int = 0
    """Number of ranges and marks of the profiler itself."""

    @property
    def event_count(self) -> int:
        """Number of events without shadows."""
        return self.counts.total()

    @property
    def is_stream(self) -> bool:
        """Return True for the stream of a device, where events do not nest."""
        return any(self.counts[table] for table in schema.STREAM_TABLES)

    @property
    def total_count(self) -> int:
        """Number of events and shadows."""
        return self.event_count + self.shadows

    @property
    def tables(self) -> Collection[str]:
        """Tables with events of this track."""
        return {*self.counts, *(["annotations"] if self.shadows else [])}


class TrackDescription(NamedTuple):
    """Recorded description of a track."""

    track: int
    kind: str
    thread: str
    name: str | None
    device: int
    stream: int
    """-1 if not recorded."""
    process: str | None
    """Name of the process."""

    @property
    def device_described(self) -> int | None:
        """Device whose work the events of a track that holds none describe; None for the host."""
        process = self.process or ""
        if self.kind == "device" or not schema.resembles_work("", process, ""):
            return None
        number = re.search(r"\d{1,6}", process.rpartition(":")[2])
        return int(number[0]) if number else 0


def load_track_descriptions(reader: store.RunReader) -> dict[int, list[TrackDescription]]:
    """Load the descriptions of the tracks of each trace."""
    names = ("track", "kind", "tid", "thread_name", "device", "stream", "process_name")
    rows = reader.table("tracks", ("trace", *names), order_by="trace, track")
    columns = (np.ma.filled(rows[name], -1).tolist() for name in names)
    descriptions: dict[int, list[TrackDescription]] = defaultdict(list)
    for trace, *values in zip(rows["trace"].tolist(), *columns, strict=True):
        descriptions[trace].append(TrackDescription(*values))
    return descriptions


def load_contents(traces: Sequence[run.Trace]) -> dict[int, dict[int, Content]]:
    """Load the content by trace and track; tracks without events are left out."""
    contents: dict[int, dict[int, Content]] = {
        trace.trace: defaultdict(Content) for trace in traces
    }
    if not traces:
        return contents
    is_collective = traces[0].collectives.predicate()
    for table, query in _COUNTS.items():
        for row in _read_rows(traces[0].reader, query):
            if row["trace"] not in contents:
                continue
            content = contents[row["trace"]][row["track"]]
            if row.get("shadow"):
                content.shadows += row["n"]
                continue
            content.counts[table] += row["n"]
            content.steps += row.get("steps", 0)
            content.backward += row.get("backward", 0)
            content.marks += row.get("marks", 0)
            if table == "kernels" and is_collective(row["name"]):
                content.communication += row["n"]
    for row in _read_rows(traces[0].reader, _ROWS):
        track_content = contents.get(row["trace"], {}).get(row["track"])
        if track_content is not None:
            setattr(track_content, "shadow_rows" if row["shadow"] else "rows", row["n"])
            track_content.levels.update(map(int, row["levels"]))
    return {trace: dict(tracks) for trace, tracks in contents.items()}


def _read_rows(reader: store.RunReader, query: str) -> list[dict[str, Any]]:
    columns = {name: values.tolist() for name, values in reader.sql(query).items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
