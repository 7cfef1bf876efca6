"""Declarations of tables and columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from stepscope.schema.labels import Unit

ColumnType = Literal["VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "DOUBLE"]
"""DuckDB type names; each maps to one Parquet type."""
DeclaredType = Literal[
    "VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "DOUBLE",
    "VARCHAR NULL", "BIGINT NULL", "INTEGER NULL", "SMALLINT NULL", "DOUBLE NULL",
]  # fmt: skip
"""Type of a column as it is declared: nullable if it ends in NULL, as in SQL."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """Column of a table: an identifier, its type and unit, and one sentence on its content."""

    name: str
    type: ColumnType
    unit: Unit
    nullable: bool
    stored_type: ColumnType | None
    """Type in the files, if another one is smaller: Parquet's byte-stream-split encodes whole
    numbers of mixed size as doubles in two thirds of the space of integers. Readers of a run get
    `type`."""
    doc: str


def column(
    name: str,
    declared_type: DeclaredType,
    doc: str,
    unit: Unit = "none",
    *,
    stored_type: ColumnType | None = None,
) -> Column:
    """Declare a column."""
    type_name = cast(ColumnType, declared_type.removesuffix(" NULL"))
    return Column(
        name=name,
        type=type_name,
        unit=unit,
        nullable=declared_type.endswith(" NULL"),
        stored_type=stored_type,
        doc=doc,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Table of a run.

    `key` names the columns that identify a row. It prevents duplicates when a drain is repeated
    after a crash, and lets readers drop those of two drains at once.
    """

    name: str
    doc: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    cluster_by: str | None = None
    """String column with few values: wide segments hold the rows of each value together, so that a
    reader of some values skips the others. Within a value, rows keep their order."""

    @property
    def time_column(self) -> str | None:
        """Name of the first column of times; None for a table without times."""
        return next((column.name for column in self.columns if column.unit == "epoch_ns"), None)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Column names in stored order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Declaration of a column; KeyError if the table has no such column."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


PROVENANCE = (
    column("node", "VARCHAR", "Host on which the record was made."),
    column(
        "process",
        "VARCHAR",
        "Process that made the record: pid, start time in clock ticks and a serial number, joined "
        "by dashes. Its manifest is processes/<process>.json.",
    ),
    column(
        "log",
        "VARCHAR",
        "Log within the process: native thread id and class of the log, such as 4711c.",
    ),
    column("seq", "BIGINT", "Index of the record in its log.", "count"),
)
"""Origin of a row in the spool: unique, and stable across crashes."""
RECORD_KEY = ("process", "log", "seq")
"""Key of records of the spool."""
