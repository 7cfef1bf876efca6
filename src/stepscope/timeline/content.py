"""What is on each track of recordings: enough to name it, and to leave out what is empty."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.analysis import is_communication
from stepscope.run import Trace
from stepscope.schema import STREAM_TABLES
from stepscope.store import RunReader
from stepscope.timeline.blocks import EVENT_TABLES

_COUNTS = {
    table: f"SELECT trace, track, count(*) AS n FROM {table} GROUP BY trace, track"  # noqa: S608
    for table in EVENT_TABLES
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
_ROWS = (
    "SELECT trace, track, depth < 0 AS shadow, list(DISTINCT level) AS levels, "
    "max(abs(depth) + CAST(depth >= 0 AS INTEGER)) AS n FROM timeline GROUP BY ALL"
)
_COUNTS["kernels"] = (
    "SELECT trace, track, name, count(*) AS n FROM kernels GROUP BY trace, track, name"
)


@dataclass(slots=True)
class Content:
    """What happened on one track."""

    counts: Counter[str] = field(default_factory=Counter)
    """Events by table, shadows left out."""
    shadows: int = 0
    """Shadows of host ranges."""
    rows: int = 1
    shadow_rows: int = 1
    """Rows that they are drawn on, as far as levels of detail say."""
    levels: set[int] = field(default_factory=set)
    """Of detail, that there are."""
    communication: int = 0
    """Kernels of collectives."""
    steps: int = 0
    backward: int = 0
    """Operators that compute gradients."""

    @property
    def own(self) -> int:
        """Events that are no shadows."""
        return self.counts.total()

    @property
    def is_stream(self) -> bool:
        """Whether a device works here: then no event lies in another."""
        return any(self.counts[table] for table in STREAM_TABLES)

    @property
    def all(self) -> int:
        """Events, shadows among them."""
        return self.own + self.shadows

    @property
    def tables(self) -> Collection[str]:
        """Tables that hold something of it."""
        return {*self.counts, *(["annotations"] if self.shadows else [])}


def contents_of(traces: Sequence[Trace]) -> dict[int, dict[int, Content]]:
    """By recording and track; tracks without any event are left out."""
    found: dict[int, dict[int, Content]] = {trace.trace: defaultdict(Content) for trace in traces}
    if not traces:
        return found
    for table, query in _COUNTS.items():
        for row in _rows(traces[0].reader, query):
            if row["trace"] not in found:
                continue
            content = found[row["trace"]][row["track"]]
            if row.get("shadow"):
                content.shadows += row["n"]
                continue
            content.counts[table] += row["n"]
            content.steps += row.get("steps", 0)
            content.backward += row.get("backward", 0)
            if table == "kernels" and is_communication(row["name"]):
                content.communication += row["n"]
    for row in _rows(traces[0].reader, _ROWS):
        drawn = found.get(row["trace"], {}).get(row["track"])
        if drawn is not None:
            setattr(drawn, "shadow_rows" if row["shadow"] else "rows", row["n"])
            drawn.levels.update(map(int, row["levels"]))
    return {trace: dict(tracks) for trace, tracks in found.items()}


def _rows(reader: RunReader, query: str) -> list[dict[str, Any]]:
    columns = {name: values.tolist() for name, values in reader.sql(query).items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
