"""Events of traces as columns, on the clock of the run; devices, memory, stage operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from stepscope import analysis, schema, store
from stepscope.run.frames import FrameColumns
from stepscope.run.job.spans import Inside, range_condition
from stepscope.run.model.rank_numbers import number_ranks
from stepscope.run.model.run import Run
from stepscope.run.model.traces import Trace

EVENT_TABLES = (*schema.NESTED_TABLES, *schema.STREAM_TABLES)
"""Tables of drawn events. Among ranges of equal extent, those of the earlier table enclose the
others."""
DAY_NS = 86_400_000_000_000
DURATIONS = {
    "other_events": f"CASE WHEN duration_ns BETWEEN 0 AND {DAY_NS} THEN duration_ns ELSE 0 END"
}
"""SQL for the drawn duration, where it differs from the stored one: instants and impossible
durations count as 0."""
_STRINGS = ("trace", "table", "name", "node")


def list_event_names(reader: store.RunReader) -> list[str]:
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
    return rows | {name: store.DictColumn.encode(rows[name].tolist()) for name in _STRINGS}


class MemoryTimeline(msgspec.Struct, frozen=True, kw_only=True):
    """One imported memory timeline."""

    name: str
    rank: int | None
    """Rank that the name of the file states."""
    start_ns: int
    """Time of the first change, also of one before the range of the run."""
    levels: analysis.CategoryLevels
    """Within the range of the run, at least one time."""
    change_count: int
    preexisting_bytes: int | None
    """Memory allocated before the profile; None if the file does not tell it."""

    def is_during(self, trace: Trace) -> bool:
        """Return True if most of the timeline is within the time of a trace."""
        t_ns = self.levels.t_ns
        inside = (t_ns >= trace.whole.start_ns) & (t_ns <= trace.whole.end_ns)
        return bool(2 * np.count_nonzero(inside) > len(t_ns))


def read_memory_timelines(run: Run) -> list[MemoryTimeline]:
    """Read the memory timelines with a change in the range of a run, by name."""
    rows = run.reader.table(
        "memory_categories",
        ("timeline", "name", "action", *analysis.CATEGORY_COLUMNS),
        order_by="name, timeline, id",
        encoded=("name", "action", "category"),
    )
    codes_before = [*(action == "preexisting" for action in rows["action"].values), False]
    timelines = []
    for number in dict.fromkeys(rows["timeline"].tolist()):
        mask = rows["timeline"] == number
        changes = {name: rows[name][mask] for name in ("t_ns", "size_bytes")}
        category = rows["category"]
        changes["category"] = type(category)(category.codes[mask], category.values)
        levels = analysis.measure_category_levels(changes)
        inside = run.period.contains(levels.t_ns)
        if not inside.any():
            continue
        actions = rows["action"].codes[mask]
        before = [codes_before[code] for code in actions.tolist()]
        is_known = bool((actions >= 0).any())
        name = rows["name"].values[rows["name"].codes[np.flatnonzero(mask)[0]]] or ""
        timelines.append(
            MemoryTimeline(
                name=name,
                rank=schema.rank_in_name(name),
                start_ns=int(levels.t_ns[0]),
                levels=levels.take(inside),
                change_count=int(mask.sum()),
                preexisting_bytes=int(changes["size_bytes"][before].sum()) if is_known else None,
            )
        )
    return timelines


_COLUMNS = (
    *("data_rank", "stage", "rank", "step", "kind", "sequence"),
    *("chunk", "model_chunk", "microbatch", "start_ns", "duration_ns"),
)


def has_stage_operations(run: Run) -> bool:
    """Return True if the run has operations of a job with pipeline stages."""
    return run.reader.row_count("stage_operations") > 0


def read_stage_operations(run: Run) -> analysis.StageOperations:
    """Read the operations of a job with pipeline stages; there may be none."""
    rows = run.reader.table("stage_operations", _COLUMNS, encoded=("kind",))
    kind = rows["kind"]
    numbers = {
        name: np.ma.filled(np.ma.asarray(rows[name]).astype(np.int64), -1)
        for name in _COLUMNS
        if name not in {"kind", "duration_ns"}
    }
    return analysis.StageOperations(
        **numbers,
        kind=kind.codes.astype(np.int64),
        kinds=[value or "" for value in kind.values],
        end_ns=numbers["start_ns"] + rows["duration_ns"],
    )


_NUMBERS = ("memory_bytes", "compute_major", "compute_minor", "multiprocessor_count")


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of one device; None where the profiler recorded none."""

    name: str | None = None
    memory_bytes: int | None = None
    compute_major: int | None = None
    compute_minor: int | None = None
    multiprocessor_count: int | None = None


def read_devices(trace: Trace) -> dict[int, DeviceFacts]:
    """Read the facts of each device in a trace, by its number."""
    columns = trace.columns("devices", ("device", "name", *_NUMBERS))
    names = columns["name"]
    return {
        device: DeviceFacts(
            name=names.values[names.codes[row]] if names.codes[row] >= 0 else None,
            **{name: analysis.none_if_negative(columns[name][row]) for name in _NUMBERS},
        )
        for row, device in enumerate(columns["device"].tolist())
    }


def count_multiprocessors(devices: Mapping[int, DeviceFacts]) -> dict[int, int]:
    """Count the multiprocessors of each device, where the profiler recorded the count."""
    counts = {device: facts.multiprocessor_count for device, facts in devices.items()}
    return {device: count for device, count in counts.items() if count}
