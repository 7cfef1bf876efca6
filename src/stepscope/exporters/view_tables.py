"""Payloads as flat tables, for spreadsheets and data frames.

scalars of the payload              one row of the table `summary`
a list of structs                   a table, named by its path without a leading `traces.`
a struct                            columns of its owner, `owner.field`
a mapping                           a table with the column `key`
a list of numbers or texts          a cell of JSON

Rows repeat what identifies the rows around them: rank, trace, device, name. Columns are named by
fields, which end in their units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from stepscope.errors import UsageError
from stepscope.quantities import count_of
from stepscope.schema import IDENTITY_FIELDS, FieldLabel, labels_of

Cell = str | int | float | bool | None
SUMMARY = "summary"
"""Table of a payload's own scalars."""
_ASIDES = (SUMMARY, "quality")
"""Tables that are not what a view is about."""
_PARENT = "parent."
_NO_LABEL = FieldLabel(title="", unit="none")
_KEY = FieldLabel(title="key", unit="none", display="identifier")
_ROW = FieldLabel(title="row", unit="none", display="identifier")


class _Value(NamedTuple):
    """Value of a field with its label."""

    label: FieldLabel
    value: Any


@dataclass(slots=True, kw_only=True)
class ViewTable:
    """Rows of one kind in a payload."""

    name: str
    labels: dict[str, FieldLabel] = field(default_factory=dict)
    """Columns in order, with their labels."""
    rows: list[dict[str, Cell]] = field(default_factory=list)
    """Cells by column; absent like None: no value."""


def tabulate(payload: msgspec.Struct) -> list[ViewTable]:
    """Arrange a payload as tables, each of at least one row; the first is `summary`."""
    tables: dict[str, ViewTable] = {}
    _add_rows(tables, "", _Value(_NO_LABEL, [payload]), {})
    return list(tables.values())


def choose_table(tables: Sequence[ViewTable], view: str, name: str | None = None) -> ViewTable:
    """Choose one table of a view.

    Args:
        tables: see `tabulate`.
        view: name of the view.
        name: name of the table; None for the one that is named like the view, else the longest.

    Raises:
        UsageError: there is no such table.
    """
    by_name = {table.name: table for table in tables}
    if name is not None:
        if name not in by_name:
            raise UsageError(
                f"The view {view} of this run has no table {name!r}; its tables: "
                f"{', '.join(by_name)}."
            )
        return by_name[name]
    if view in by_name:
        return by_name[view]
    main = [table for table in tables if table.name not in _ASIDES] or tables
    return max(main, key=lambda table: len(table.rows))


def describe_tables(tables: Iterable[ViewTable]) -> str:
    """List tables with their lengths.

    >>> describe_tables([ViewTable(name="kernels", rows=[{}, {}])])
    'kernels (2 rows)'
    """
    return ", ".join(f"{table.name} ({count_of(len(table.rows), 'row')})" for table in tables)


def _add_rows(
    tables: dict[str, ViewTable], path: str, part: _Value, inherited: Mapping[str, _Value]
) -> None:
    """Add the items of a list or mapping, and the tables inside them.

    Args:
        tables: by name.
        path: fields from the payload to the list, joined by points; empty for the payload.
        part: the list or mapping.
        inherited: columns that identify the owner of the list.
    """
    name = path.removeprefix("traces.") or SUMMARY
    table = tables.setdefault(name, ViewTable(name=name))
    keys = [{"key": _Value(_KEY, key)} for key in part.value] if _is_mapping(part.value) else None
    items = part.value.values() if _is_mapping(part.value) else part.value
    for number, item in enumerate(items):
        cells = dict(keys[number]) if keys else {}
        nested: dict[str, _Value] = {}
        if isinstance(item, msgspec.Struct):
            _flatten(item, "", cells, nested)
        else:
            cells["value"] = _Value(part.label, _to_cell(item))
        identity = {column: cell for column, cell in cells.items() if _is_identity(column, cell)}
        if nested and path and not identity:
            identity = {"row": _Value(_ROW, number)}
            cells = identity | cells
        row = _beside(inherited, cells) | cells
        table.labels |= {column: label for column, (label, _) in row.items()}
        table.rows.append({column: value for column, (_, value) in row.items()})
        outer = {column: cell for column, cell in inherited.items() if column not in identity}
        for field_name, inner in nested.items():
            # Children of children are rows of one table.
            is_recursive = path.rpartition(".")[2] == field_name
            inner_path = path if is_recursive else f"{path}.{field_name}".lstrip(".")
            _add_rows(tables, inner_path, inner, outer | identity)


def _beside(inherited: Mapping[str, _Value], cells: Mapping[str, _Value]) -> dict[str, _Value]:
    """Rename inherited columns that a row has, too."""
    return {f"{_PARENT}{c}" if c in cells else c: cell for c, cell in inherited.items()}


def _flatten(
    part: msgspec.Struct, prefix: str, cells: dict[str, _Value], nested: dict[str, _Value]
) -> None:
    """Sort the fields of a struct into cells of its row, and tables of their own."""
    for name, label in labels_of(type(part)).items():
        value = getattr(part, name)
        column = f"{prefix}{name}"
        if isinstance(value, msgspec.Struct):
            _flatten(value, f"{column}.", cells, nested)
        elif _is_mapping(value) or _is_struct_list(value):
            nested[column] = _Value(label, value)
        elif not _is_empty_list(value):
            cells[column] = _Value(label, _to_cell(value))


def _is_identity(column: str, cell: _Value) -> bool:
    return column in (*IDENTITY_FIELDS, "name") or cell.label.display == "identifier"


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_struct_list(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], msgspec.Struct)


def _is_empty_list(value: object) -> bool:
    return isinstance(value, list | tuple) and not value


def _to_cell(value: object) -> Cell:
    """Convert a value without structs; lists and mappings become JSON."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    return msgspec.json.encode(value).decode()
