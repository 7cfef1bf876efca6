"""The part of a payload that an id names, and what reproduces it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from stepscope import errors, schema, views
from stepscope.queries.sources import OpenBase, command_of, make_payload
from stepscope.run import Run


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a payload, and what reproduces it."""

    at: str
    """Its id."""
    value: Any
    """A number, text, row or list."""
    title: str | None
    unit: str | None
    """Unit of a number, as in its name."""
    description: str | None
    share_of: str | None
    """Denominator, where the row states one."""
    row: dict[str, Any] | None
    """Scalars of the row that has the number."""
    command: str
    """Command that prints the payload."""
    shown_by: str | None
    """Command that prints the view which an evidence of the verdict names."""
    tables: list[str]
    """Tables of the run that were read for the payload; none if it was stored with the run."""


def find_origin(run: Run, at: str, open_base: OpenBase) -> Origin:
    """Find the part of a payload that an id names.

    Raises:
        UsageError: there is none.
    """
    path, *segments = at.split("/")
    source, _, query = path.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    with run.reader.trace_use() as reader:
        value: Any = make_payload(run.reread(reader), source, options, open_base)
        tables = reader.tables_used
    row: msgspec.Struct | None = None
    label: schema.FieldLabel | None = None
    for segment in map(unquote, segments):
        if isinstance(value, msgspec.Struct):
            field = _fields(value).get(segment, "")
            row, label = value, schema.labels_of(type(value)).get(field)
        value = _take(value, segment, at)
    if isinstance(value, msgspec.Struct):
        row, label = value, None
    plain = {} if row is None else msgspec.to_builtins(row, str_keys=True)
    scalars = {name: cell for name, cell in plain.items() if not isinstance(cell, dict | list)}
    view = scalars.get("source")
    unit = None if label is None or label.unit == "none" else label.unit
    return Origin(
        at=at,
        value=msgspec.to_builtins(value, str_keys=True),
        title=None if label is None else label.title,
        unit=scalars.get("unit") if unit == "inherited" else unit,
        description=None if label is None else label.description,
        share_of=scalars.get("share_of"),
        row=scalars or None,
        command=command_of(source, options),
        shown_by=f"stepscope show RUN {view}" if view in views.VIEWS else None,
        tables=tables,
    )


def _take(value: Any, segment: str, at: str) -> Any:
    """Take a field, item or row of a part of a payload."""
    if isinstance(value, msgspec.Struct) and segment in _fields(value):
        return getattr(value, _fields(value)[segment])
    if isinstance(value, Mapping):
        by_text = {str(key): item for key, item in value.items()}
        if segment in by_text:
            return by_text[segment]
    if isinstance(value, list | tuple):
        if segment.isdecimal() and int(segment) < len(value):
            return value[int(segment)]
        field, _, text = segment.partition("=")
        rows = [item for item in value if str(_plain(_read(item, field))) == text]
        if len(rows) == 1:
            return rows[0]
    raise errors.UsageError(f"There is nothing at {at}: {segment!r} is no part of what is there.")


def _read(row: Any, field: str) -> Any:
    """Return a field of a row by its name in JSON; None where it has none."""
    if isinstance(row, msgspec.Struct):
        return getattr(row, _fields(row).get(field, ""), None)
    return row.get(field) if isinstance(row, Mapping) else None


def _fields(row: msgspec.Struct) -> dict[str, str]:
    """Return the fields of a row by their names in JSON."""
    return dict(zip(row.__struct_encode_fields__, row.__struct_fields__, strict=True))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)
