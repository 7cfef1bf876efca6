"""Events of the traces of a run as columns, on the clock of the run."""

from __future__ import annotations

from collections.abc import Sequence

from stepscope.run.frames import FrameColumns
from stepscope.run.job_spans import Inside, range_condition
from stepscope.run.rank_numbers import number_ranks
from stepscope.run.run import Run
from stepscope.schema import NESTED_TABLES, STREAM_TABLES
from stepscope.store import DictColumn, RunReader

EVENT_TABLES = (*NESTED_TABLES, *STREAM_TABLES)
"""Tables of drawn events. Among ranges of equal extent, those of the earlier table enclose the
others."""
DAY_NS = 86_400_000_000_000
DURATIONS = {
    "other_events": f"CASE WHEN duration_ns BETWEEN 0 AND {DAY_NS} THEN duration_ns ELSE 0 END"
}
"""SQL for the drawn duration, where it differs from the stored one: instants and impossible
durations count as 0."""
_STRINGS = ("trace", "table", "name", "node")


def list_event_names(reader: RunReader) -> list[str]:
    """List the names of the events of all traces."""
    names = " UNION ".join(f"SELECT name FROM {table}" for table in EVENT_TABLES)  # noqa: S608
    rows = reader.sql(f"SELECT name FROM ({names}) ORDER BY name")  # noqa: S608 - constants
    return [str(name) for name in rows["name"].tolist()]


def read_trace_events(
    run: Run,
    *,
    tables: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    inside: Inside = "any",
    rank: int | None = None,
) -> FrameColumns:
    """Read the events of traces in the range from `start_ns` to before `end_ns`, in order of start.

    Args:
        run: the run.
        tables: tables of events, of `EVENT_TABLES`; None for all, here and below.
        names: names of events.
        start_ns, end_ns: the range in epoch nanoseconds.
        inside: part of the event that must be in it; see `range_condition`.
        rank: only traces of this rank.
    """
    ranks = number_ranks(run).by_trace
    traces = [trace for trace in run.traces if rank in {None, ranks.get(trace.trace)}]
    events = " UNION ALL ".join(
        f"SELECT '{table}' AS \"table\", trace, name, start_ns, "  # noqa: S608 - constants
        f"{DURATIONS.get(table, 'duration_ns')} AS duration_ns FROM {table}"
        for table in EVENT_TABLES
        if tables is None or table in tables
    )
    condition, parameters = range_condition(start_ns, end_ns, inside)
    if names is not None:
        condition += " AND list_contains(?, name)"
        parameters.append(list(names))
    # Lists by trace: its name, node, rank and the shift of its clock.
    lists: tuple[list[object], ...] = (
        [trace.trace for trace in traces],
        [trace.name for trace in traces],
        [trace.node for trace in traces],
        [ranks.get(trace.trace) for trace in traces],
        [run.clock.shift_ns(trace.trace) for trace in traces],
    )
    query = f"""
        WITH recorded AS (
            SELECT unnest(?) AS trace, unnest(?::VARCHAR[]) AS trace_name,
                unnest(?::VARCHAR[]) AS node, unnest(?::INTEGER[]) AS rank,
                unnest(?::BIGINT[]) AS shift_ns
        ), events AS (
            SELECT rank, trace_name AS trace, "table", name, start_ns + shift_ns AS start_ns,
                start_ns + shift_ns + duration_ns AS end_ns, duration_ns, node
            FROM ({events}) JOIN recorded USING (trace)
        )
        SELECT * FROM events WHERE {condition}
        ORDER BY start_ns, duration_ns DESC, trace, "table", name
    """  # noqa: S608 - constants and question marks
    rows = run.reader.sql(query, [*lists, *parameters])
    return rows | {name: DictColumn.encode(rows[name].tolist()) for name in _STRINGS}
