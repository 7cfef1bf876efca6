"""DuckDB queries over the segments of a run that may be growing.

Each query lists the segments again; only their damage and the extents of their times are cached. A
segment that cannot be read is left out and named in `damage_of`; the others stay readable. Files
are checked one by one only after a query has failed.
"""

from __future__ import annotations

import os
import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from stepscope import budget, schema
from stepscope.store import layout
from stepscope.store.engine import Upgrade, connect, identifier, scan, select
from stepscope.store.layout import Segment
from stepscope.store.objectstore import ObjectStore

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
Extents = dict[str, tuple[int, int]]
"""First and last value of each time column and of the trace column, by column."""

TRACE_COLUMN = "trace"
"""Column with the number of the trace that a row belongs to."""
_RECORD = ", ".join(("node", *schema.RECORD_KEY))
_FIRST_OF_RECORD = (
    f" QUALIFY row_number() OVER (PARTITION BY {_RECORD} "
    "ORDER BY file_index, file_row_number) = 1 ORDER BY file_index, file_row_number"
)
"""End of a query that keeps one row of each record, in the order of the files."""
_MAX_LISTINGS = 3
"""Listings with a gap before the gap is taken as real."""
_MAX_ATTEMPTS = 8
"""Attempts at a query while the files below it change."""
_MAX_CACHED_FILES = 500
"""Files whose footers may be cached, of 11 KB each: a run of many ranks has thousands."""
_MAX_EXTENT_FILES = 8
"""Files whose extents are read by one query."""
_MAX_STALE_FILES = 64
"""Removed files of whose footers DuckDB keeps a copy, 10 to 20 kB each, before a new connection."""
_INHERITED_CONNECTIONS: list[duckdb.DuckDBPyConnection | None] = []
"""Connections of a parent process, which a forked process must neither use nor close."""


class SegmentFilter:
    """Condition that lets a query skip segments.

    Args:
        within: first and last time, the last one excluded, in the table's time column.
        traces: numbers of traces; empty for all.
    """

    def __init__(self, within: tuple[int, int] | None = None, traces: Sequence[int] = ()) -> None:
        self._within = within
        self._traces = sorted(traces)

    def applies_to(self, table: schema.Table) -> bool:
        """Return True if the condition can exclude segments of a table."""
        return (self._within is not None and table.time_column is not None) or (
            bool(self._traces) and TRACE_COLUMN in table.column_names
        )

    def may_match(self, table: schema.Table, extents: Extents) -> bool:
        """Return True unless the extents of a segment exclude every row."""
        if self._within is not None and table.time_column in extents:
            start, end = self._within
            first, last = extents[table.time_column]
            if first >= end or last < start:
                return False
        traces = extents.get(TRACE_COLUMN)
        if self._traces and traces is not None:
            return bisect_left(self._traces, traces[0]) < bisect_right(self._traces, traces[1])
        return True


class _Listing(NamedTuple):
    """Segments of a table, as parsed from the keys of its files: there may be thousands."""

    keys: list[str]
    segments: list[Segment]
    gaps: list[Segment]
    is_continued: bool

    @classmethod
    def parse(cls, keys: list[str]) -> _Listing:
        parsed = map(layout.parse_segment, keys)
        segments = layout.select_visible(segment for segment in parsed if segment is not None)
        return cls(keys, segments, layout.find_gaps(segments), layout.is_continued(keys))


class TableQueries:
    """Tables of a run as DuckDB views. Thread-safe; queries run one after the other.

    Args:
        store: where the segments are.
        upgrades: from the schema version of the run to the current one.
        threads: threads per query.
    """

    def __init__(self, store: ObjectStore, upgrades: tuple[Upgrade, ...], *, threads: int) -> None:
        self._store = store
        self._upgrades = upgrades
        self._threads = threads
        self._broken: dict[str, tuple[str, str]] = {}  # key of a segment -> table, sentence
        self._listings: dict[tuple[str, str | None], _Listing] = {}
        self._gaps: dict[str, list[Segment]] = {}
        self._continued: set[str] = set()  # tables that several writers of a node have written
        self._repeating: set[str] = set()  # those in whose current views records are repeated
        self._checked: dict[tuple[str, str | None], tuple[list[Segment], bool]] = {}  # for that
        self._extents: dict[Segment, Extents] = {}
        self._read: dict[tuple[str, str | None], list[Segment]] = {}  # by the last query
        self._lock = threading.Lock()
        self._reset_connection()

    def damage_of(self, tables: Collection[str]) -> list[str]:
        """One sentence per segment of some tables that is unreadable or missing, as far as queries
        noticed."""
        unreadable = [text for table, text in self._broken.values() if table in tables]
        missing = [
            f"{gap.key} and the files it was merged from are missing."
            for table, gaps in self._gaps.items()
            for gap in gaps
            if table in tables
        ]
        return [*unreadable, *missing]

    @property
    def unreadable(self) -> dict[str, tuple[str, str]]:
        """Table and sentence of each segment that queries could not read, by its key."""
        return dict(self._broken)

    def add_unreadable(self, segments: Mapping[str, tuple[str, str]]) -> None:
        """Count segments that another process could not read."""
        self._broken.update(segments)

    def run(
        self,
        tables: Sequence[str],
        query: Callable[[duckdb.DuckDBPyConnection], T],
        node: str | None = None,
    ) -> T:
        """Run a query over the current segments of some tables, of all nodes or of one.

        It repeats the query if a segment is damaged, or was merged into another one meanwhile.
        """
        import _duckdb as duckdb

        if self._process != os.getpid():
            self._abandon_inherited_connection()
        with self._lock:
            for attempt in range(_MAX_ATTEMPTS):
                is_last = attempt + 1 == _MAX_ATTEMPTS
                segments = {table: self.list_segments(table, node) for table in tables}
                self._forget_stale_files(segments, node)
                self._limit_cache()
                try:
                    self._create_views(segments, node)
                    return query(self._engine())
                except FileNotFoundError:  # removed from the bucket since the listing
                    if is_last:
                        raise
                except duckdb.Error as error:
                    self._reset_connection()  # after some errors a connection is unusable
                    if is_last or not self._should_repeat(segments, error):
                        raise
        raise AssertionError("unreachable")

    def release_memory(self) -> None:
        """Close the connection, which keeps the memory of a large result; queries open another."""
        with self._lock:
            self._reset_connection()
        budget.trim_heap()

    def list_segments(self, table: str, node: str | None = None) -> list[Segment]:
        """List the readable segments of a table in the order of their rows, of all nodes or of one.

        Listing a directory takes time: a listing during a merge may miss the new file and the old
        ones too. Flushes are numbered, so that shows as a gap.
        """
        elsewhere = [gap for gap in self._gaps.get(table, []) if node not in {None, gap.node}]
        for _ in range(_MAX_LISTINGS):
            listing = self._list(table, node)
            if listing.is_continued:
                self._continued.add(table)
            self._gaps[table] = sorted(elsewhere + listing.gaps)
            if not listing.gaps:
                break
            self._store.refresh()
        if not self._broken:
            return listing.segments
        return [segment for segment in listing.segments if segment.key not in self._broken]

    def _list(self, table: str, node: str | None) -> _Listing:
        """List the files of a table; their keys are parsed only if they have changed."""
        keys = list(self._store.list(layout.table_prefix(table, node)))
        listing = self._listings.get((table, node))
        if listing is None or listing.keys != keys:
            listing = self._listings[table, node] = _Listing.parse(keys)
        return listing

    # --- inside a query: the callback of `run` calls these -----------------------------------

    def filtered_tables(self, tables: Sequence[str], condition: SegmentFilter) -> dict[str, str]:
        """Return queries of the rows that may match, for tables with segments to skip."""
        queries = {}
        for name in tables:
            table, segments = schema.TABLES[name], self._views[name]
            if not condition.applies_to(table):
                continue
            extents = self.segment_extents(name)
            matching = [s for s in segments if condition.may_match(table, extents[s])]
            if matching != segments:
                queries[name] = self._view(table, matching)
        return queries

    def count_bytes(self, table: str) -> int:
        """Return the size of the files of the current segments of a table."""
        return sum(path.stat().st_size for path in self._paths(self._views[table]))

    def connect_locked(
        self, tables: Sequence[str], *, memory_limit: str
    ) -> duckdb.DuckDBPyConnection:
        """Open a connection for SQL of users: with views of some tables and what is created in it.
        Of all files, it reads the segments of these tables; its configuration cannot be changed."""
        paths = [path for table in tables for path in self._paths(self._views[table])]
        connection = connect(threads=self._threads, memory_limit=memory_limit, readable=paths)
        for table in tables:
            view = self._view(schema.TABLES[table], self._views[table])
            connection.execute(f"CREATE TEMP VIEW {table} AS {view}")
        return connection

    def segment_extents(self, table: str) -> dict[Segment, Extents]:
        """Return the extents of each segment of a table; only new footers are read."""
        segments = self._views[table]
        columns = [
            column.name
            for column in schema.TABLES[table].columns
            if column.unit == "epoch_ns" or column.name == TRACE_COLUMN
        ]
        new = [segment for segment in segments if segment not in self._extents]
        self._paths(new)  # fetches them concurrently
        for first in range(0, len(new), _MAX_EXTENT_FILES):
            self._extents |= self._read_extents(new[first : first + _MAX_EXTENT_FILES], columns)
        return {segment: self._extents[segment] for segment in segments}

    def _read_extents(
        self, segments: Sequence[Segment], columns: Sequence[str]
    ) -> dict[Segment, Extents]:
        """Read the first and last value of columns of each segment.

        DuckDB answers this from the footer of a single file, several times faster than it lists the
        statistics of every row group; in one query, in half the time of a query per file.
        """
        if not columns:
            return {segment: {} for segment in segments}
        bounds = ", ".join(f"min({identifier(name)}), max({identifier(name)})" for name in columns)
        queries = [
            select(f"{index}, {bounds}", f"({self._rows(segment.table, [segment])})")
            for index, segment in enumerate(segments)
        ]
        rows = self._engine().execute(" UNION ALL ".join(queries)).fetchall()
        return {
            segments[index]: {
                column: (first, last)
                for column, first, last in zip(columns, values[::2], values[1::2], strict=True)
                if first is not None
            }
            for index, *values in rows
        }

    # --- views -------------------------------------------------------------------------------

    def _create_views(self, segments: dict[str, list[Segment]], node: str | None) -> None:
        for table, table_segments in segments.items():
            if self._views.get(table) != table_segments:
                self._views.pop(table, None)
                self._repeating.discard(table)
                if table in self._continued and self._find_repeats(table, node, table_segments):
                    self._repeating.add(table)
                view = self._view(schema.TABLES[table], table_segments)
                self._engine().execute(f"CREATE OR REPLACE TEMP VIEW {table} AS {view}")
                self._views[table] = table_segments

    def _view(self, table: schema.Table, segments: Sequence[Segment]) -> str:
        if not segments:
            nulls = (f"CAST(NULL AS {c.type}) AS {identifier(c.name)}" for c in table.columns)
            return f"SELECT {', '.join(nulls)} WHERE false"
        # Naming the columns here makes a file that lacks one fail at once.
        columns = ", ".join(map(_column_expression, table.columns))
        return select(columns, f"({self._rows(table.name, segments)})")

    def _find_repeats(self, table: str, node: str | None, segments: list[Segment]) -> bool:
        """Check once whether a record is in the segments of a node, or of all, twice."""
        checked, repeats = self._checked.get((table, node), (None, False))
        if checked != segments:
            repeats = self._has_repeats(table, segments)
            self._checked[table, node] = (segments, repeats)
        return repeats

    def _has_repeats(self, table: str, segments: Sequence[Segment]) -> bool:
        """Check whether a record is in the segments twice, as two writers at once leave it.

        For every thousand numbers of a log, the rows are compared with the distinct numbers, which
        are bits of a string: 30 ns per row, a fifth of counting distinct keys.
        """
        if not segments:
            return False
        counts = select(
            "count(*) AS n, bit_count(bitstring_agg(CAST(seq % 1000 AS INTEGER), 0, 999)) AS d",
            scan(self._paths(segments)),
            f" GROUP BY {_RECORD} // 1000 HAVING n > d",
        )
        return bool(self._engine().execute(select("1", f"({counts})", " LIMIT 1")).fetchall())

    def _rows(self, table: str, segments: Sequence[Segment]) -> str:
        """Return a query of the rows of segments, upgraded to the current schema version."""
        repeats = _FIRST_OF_RECORD if table in self._repeating else ""
        query = select("*", scan(self._paths(segments)), repeats)
        for upgrade in self._upgrades:
            query = upgrade.rows(table, query)
        return query

    def _paths(self, segments: Iterable[Segment]) -> Sequence[Path]:
        return self._store.local_paths([segment.key for segment in segments])

    # --- connection --------------------------------------------------------------------------

    def _forget_stale_files(self, segments: dict[str, list[Segment]], node: str | None) -> None:
        """Open a new connection if the present one has read many files that were merged since.

        Its cache of footers would grow by each file of a growing run.
        """
        for table, table_segments in segments.items():
            read = self._read.get((table, node), [])
            if read == table_segments:
                continue
            stale = set(read).difference(table_segments)
            self._stale_count += len(stale)
            for segment in stale:
                self._extents.pop(segment, None)
            self._read[table, node] = table_segments
        if self._stale_count > _MAX_STALE_FILES:
            self._reset_connection()

    def _reset_connection(self) -> None:
        self._stale_count = 0
        self._is_caching = True
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._process = os.getpid()
        self._views: dict[str, list[Segment]] = {}

    def _limit_cache(self) -> None:
        """Cache no footers once many files are read; the extents of segments are kept.

        Only a new connection releases what the present one has cached.
        """
        if self._is_caching and sum(map(len, self._read.values())) > _MAX_CACHED_FILES:
            self._reset_connection()
            self._is_caching = False
            self._engine().execute("SET parquet_metadata_cache = false")

    def _abandon_inherited_connection(self) -> None:
        """Start over after a fork.

        DuckDB's threads exist only in the parent, so even closing the connection would hang.
        """
        _INHERITED_CONNECTIONS.append(self._connection)
        self._lock = threading.Lock()  # another thread of the parent may have held it
        self._reset_connection()

    def _engine(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = connect(threads=self._threads)
        return self._connection

    # --- damage ------------------------------------------------------------------------------

    def _should_repeat(self, segments: dict[str, list[Segment]], error: duckdb.Error) -> bool:
        used = [segment for table_segments in segments.values() for segment in table_segments]
        is_missing = any(not self._store.has_local_file(segment.key) for segment in used)
        if is_missing or self._find_broken(used, _footer_check):
            return True
        return not _is_query_error(error) and self._find_broken(used, _content_check)

    def _find_broken(
        self, segments: Iterable[Segment], check: Callable[[schema.Table, str], str]
    ) -> bool:
        """Mark the segments that fail a check; return True if there is one."""
        import _duckdb as duckdb

        before = len(self._broken)
        for segment in segments:
            table = schema.TABLES[segment.table]
            try:
                query = check(table, f"({self._view(table, [segment])})")
                self._engine().execute(query).fetchall()
            except duckdb.Error as error:
                if self._store.has_local_file(segment.key):
                    text = f"{segment.key} cannot be read: {explain_unreadable(error)}."
                    self._broken[segment.key] = segment.table, text
        return len(self._broken) > before


def with_tables(tables: dict[str, str], query: str) -> str:
    """Return a query in which some table names mean other rows than those of their views.

    Recreating the views would take longer than most queries.
    """
    if not tables:
        return query
    ctes = ", ".join(f"{table} AS NOT MATERIALIZED ({rows})" for table, rows in tables.items())
    keyword, rest = query.lstrip()[:5], query.lstrip()[5:]
    return f"WITH {ctes}, {rest}" if keyword.upper() == "WITH " else f"WITH {ctes} {query}"


def _column_expression(column: schema.Column) -> str:
    name = identifier(column.name)
    return name if column.stored_type is None else f"CAST({name} AS {column.type}) AS {name}"


def _footer_check(_table: schema.Table, rows: str) -> str:
    """Return a query that reads only the footer of a file and its column names."""
    return select("*", rows, " LIMIT 0")


def _content_check(table: schema.Table, rows: str) -> str:
    """Return a query that decodes every value; footer statistics cannot answer a hash."""
    hashes = ", ".join(f"bit_xor(hash({identifier(name)}))" for name in table.column_names)
    return select(hashes, rows)


def explain_unreadable(error: duckdb.Error) -> str:
    """Explain why a file cannot be read, without its path, which the caller names."""
    reason = re.sub(r"^[\w ]*Error: ", "", str(error).strip().splitlines()[0])
    if "magic bytes" in reason or "too small to be a Parquet file" in reason:
        return "it is cut short or no Parquet file"
    return re.sub(r" (?:in|of|for)? ?(?:file )?['\"][^'\"]*\.parquet['\"]", "", reason)


def _is_query_error(error: duckdb.Error) -> bool:
    """Return True if a wrong query may have raised the error.

    A BinderException is also raised by a file with wrong columns.
    """
    import _duckdb as duckdb

    return isinstance(
        error, duckdb.ParserException | duckdb.CatalogException | duckdb.BinderException
    )
