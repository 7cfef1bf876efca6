"""The shape of a table declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stepscope.schema.units import Unit

ColumnType = Literal["VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "DOUBLE"]
"""DuckDB type names; each maps onto one Parquet type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: an identifier with its unit, and one sentence that says what it holds."""

    name: str
    type: ColumnType
    unit: Unit = "none"
    nullable: bool = False
    stored: ColumnType | None = None
    """Type in the files, where another one takes less room: Parquet's byte-stream-split holds
    whole numbers of mixed size as doubles in two thirds of what integers take. Readers of the run
    see `type`."""
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table of a run.

    `key` names the columns that identify a row; writing the same row twice is prevented by
    them, so that a drain may be repeated after a crash.
    """

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    together: str | None = None
    """A string column with few values: wide segments keep rows of one value together, so that a
    reader of some values passes over the others. Within a value rows keep their order."""

    @property
    def time_column(self) -> str | None:
        """The column that says when; None for a table without times."""
        return next((column.name for column in self.columns if column.unit == "epoch_ns"), None)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names in the order in which they are stored."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """The declaration of one column; KeyError when there is none of that name."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


PROVENANCE = (
    Column(name="node", type="VARCHAR", doc="Host on which the record was made."),
    Column(
        name="process",
        type="VARCHAR",
        doc="Process that made it: pid, start time in clock ticks, and a serial number, "
        "joined by dashes; names the file processes/<process>.json.",
    ),
    Column(
        name="log",
        type="VARCHAR",
        doc="Log within the process: native thread id and log class, such as 4711c.",
    ),
    Column(name="seq", type="BIGINT", unit="count", doc="Place of the record in its log."),
)
"""Who wrote a row and where it stood in the spool: unique, and the same after a crash."""
