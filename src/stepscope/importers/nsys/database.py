"""Tables of an export as numpy columns.

The file is opened read-only and as immutable: SQLite takes no locks and creates no
other files.
Only plain tables are read, as a view or a virtual table of a foreign file could run for ever.
Damaged pages end a table early; the rows before them count.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from stepscope import errors
from stepscope.importers.content import INVALID

Int = NDArray[np.int64]
Rows = dict[str, NDArray[Any]]
"""Columns of some rows: integers, -1 for NULL, and objects for texts, None for NULL."""

ABSENT = -1
CHUNK_ROWS = 1 << 16
MAX_TEXT_CHARACTERS = (64 << 10) + 1
"""Characters that are read of a text: one more than `kineto` keeps, which notes that it is cut."""
_LOOK_UPS = 500
_TIMES = ("start", "end")


class Database:
    """An export that is open for reading.

    Raises:
        UnreadableTraceError: the list of tables cannot be read.
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.damages = _find_damages(path)
        """Unreadable parts, as the rest of a sentence."""
        self.missing: dict[str, list[str]] = {}
        """Columns that tables with events lack."""
        self._names: dict[int, str] = {}
        uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._connection = sqlite3.connect(uri, uri=True)
        self._connection.text_factory = _decode
        try:
            # A file whose end is missing is opened only so.
            self._connection.execute("PRAGMA writable_schema = ON")
            self._connection.execute("PRAGMA trusted_schema = OFF")
            self._columns = self._list_columns()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise errors.UnreadableTraceError(
                f"{path} is an SQLite database that cannot be read ({error}). Copy it again, as "
                "binary data."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def has_columns(self, table: str, *columns: str) -> bool:
        """Return True for a table with some columns."""
        return table in self._columns and self._columns[table].issuperset(columns)

    def count_rows(self, table: str) -> int:
        """Estimate the number of rows of a table from its last row; 0 without it."""
        if table not in self._columns:
            return 0
        try:
            ((last,),) = self._connection.execute(f"SELECT max(rowid) FROM {table}")  # noqa: S608
        except sqlite3.DatabaseError:
            return 0
        return last if isinstance(last, int) else 0

    def read(
        self,
        table: str,
        integers: Mapping[str, tuple[str, ...]],
        texts: Sequence[str] = (),
        condition: str = "1",
    ) -> Iterator[Rows]:
        """Yield the rows of a table in chunks.

        Args:
            table: its name; one that is not there has no rows.
            integers: columns of integers by name in the result: the first one of them that is not
                NULL counts. -1 where all are NULL, are missing or hold no integer; `INVALID` for
                `start` and `end`.
            texts: columns of texts.
            condition: of the rows.
        """
        stored = self._columns.get(table, frozenset())
        absent = [names[0] for names in integers.values() if stored.isdisjoint(names)]
        absent += [name for name in texts if name not in stored]
        if absent and stored:
            self.missing[table] = absent
        present = {
            name: ", ".join(f'"{column}"' for column in columns if column in stored)
            for name, columns in integers.items()
            if not stored.isdisjoint(columns)
        }
        values = [f"coalesce({names}, {_null_of(name)})" for name, names in present.items()]
        present_texts = [name for name in texts if name in stored]
        values += [f'substr("{name}", 1, {MAX_TEXT_CHARACTERS})' for name in present_texts]
        query = f"SELECT {', '.join(values)} FROM {table} WHERE {condition}"  # noqa: S608
        for rows in self._fetch(query, table) if values else ():
            result: Rows = dict(
                zip(present, _integers(rows, [*map(_null_of, present)]), strict=True)
            )
            for position, name in enumerate(present_texts, len(present)):
                result[name] = np.array([row[position] for row in rows] + [None], dtype=object)[:-1]
            for name in integers.keys() - present.keys():
                result[name] = np.full(len(rows), _null_of(name), dtype=np.int64)
            for name in set(texts).difference(present_texts):
                result[name] = np.full(len(rows), None, dtype=object)
            yield result

    def list_rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        """List the rows of a small table, with those of some columns that it has."""
        present = [name for name in columns if name in self._columns.get(table, ())]
        if not present:
            return []
        names = ", ".join(f'"{name}"' for name in present)
        rows = self._fetch(f"SELECT {names} FROM {table}", table)  # noqa: S608
        return [
            dict(zip(present, map(_shorten, row), strict=True)) for row in chain.from_iterable(rows)
        ]

    def names_of(self, ids: Sequence[int]) -> list[str | None]:
        """Return the texts of ids of StringIds; None for -1, and the id where there is none."""
        new = list(dict.fromkeys(number for number in ids if number not in self._names))
        for start in range(0, len(new), _LOOK_UPS):
            part = new[start : start + _LOOK_UPS]
            if self.has_columns("StringIds", "id", "value"):
                query = (
                    f"SELECT id, substr(value, 1, {MAX_TEXT_CHARACTERS}) FROM StringIds "  # noqa: S608
                    f"WHERE id IN ({', '.join(map(str, part))})"
                )
                rows = chain.from_iterable(self._fetch(query, "StringIds"))
                self._names.update((number, str(text)) for number, text in rows)
            for number in part:
                self._names.setdefault(number, f"name {number}")
        return [None if number == ABSENT else self._names[number] for number in ids]

    def _list_columns(self) -> dict[str, frozenset[str]]:
        """Return the columns of each plain table.

        Raises:
            sqlite3.DatabaseError: the list of tables cannot be read.
        """
        tables = self._connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
        ).fetchall()
        return {
            name: frozenset(
                row[1]
                for row in self._connection.execute("SELECT * FROM pragma_table_info(?)", (name,))
            )
            for name, sql in tables
            if str(name).isidentifier() and "VIRTUAL" not in str(sql).split("(")[0].upper()
        }

    def _fetch(self, query: str, table: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield rows in chunks, up to the first one that is damaged."""
        rows: list[tuple[Any, ...]] = []
        try:
            cursor = self._connection.execute(query)
            while len(rows) in {0, CHUNK_ROWS}:
                rows = []
                rows.extend(islice(cursor, CHUNK_ROWS))  # at an error, it has those before
                if not rows:
                    return
                yield rows
        except sqlite3.DatabaseError as error:
            damage = f"the table {table} could not be read to its end ({error})"
            self.damages += [damage] if damage not in self.damages else []
            if rows:
                yield rows


def _find_damages(path: Path) -> list[str]:
    """Find a missing end, and changes that are not in the file
    (https://www.sqlite.org/fileformat.html#the_database_header)."""
    damages = []
    with path.open("rb") as file:
        head = file.read(32)
    page_bytes, page_count = (int.from_bytes(head[i:j], "big") for i, j in ((16, 18), (28, 32)))
    if path.stat().st_size < page_count * (65536 if page_bytes == 1 else page_bytes):
        damages.append("the file is truncated")
    log = path.with_name(path.name + "-wal")
    if log.is_file() and log.stat().st_size:
        damages.append(f"the changes in {log.name} are not read, as they are incomplete")
    return damages


def _null_of(name: str) -> int:
    return int(INVALID) if name in _TIMES else ABSENT


def _shorten(value: Any) -> Any:
    return value[:MAX_TEXT_CHARACTERS] if isinstance(value, str) else value


def _decode(data: bytes) -> str:
    return data.decode(errors="replace")


def _integers(rows: list[tuple[Any, ...]], nulls: Sequence[int]) -> Int:
    """Return the first columns of rows as integers; of each, `nulls` has what stands for none."""
    count = len(nulls)
    if rows and len(rows[0]) > count:
        rows = [row[:count] for row in rows]
    values = chain.from_iterable(rows)
    try:
        flat = np.fromiter(values, dtype=np.int64, count=count * len(rows))
    except (TypeError, ValueError, OverflowError):  # a text, or a number that is not finite
        pairs = zip(chain.from_iterable(rows), cycle(nulls), strict=False)
        flat = np.array([_integer(value, null) for value, null in pairs], dtype=np.int64)
    return np.ascontiguousarray(flat.reshape(len(rows), count).T)


def _integer(value: Any, null: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return null
    return number if -(2**63) <= number < 2**63 else null
