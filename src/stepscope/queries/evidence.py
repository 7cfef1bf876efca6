"""Ids of the numbers in payloads, and what reproduces a number.

An id is a path that needs no state: `SOURCE[?OPTION=VALUE&…]/SEGMENT/…`, percent-encoded as a URL.

    SOURCE    a view, or `verdict`, `rules`, `compare?base=RUN`, `sql?query=QUERY`
    OPTION    an option of the view, as in `/api/views`
    SEGMENT   a field, a key of a mapping, the position in a list, or FIELD=VALUE: the one item of a
              list with this value

`kernels?top=5/traces/0/kernels/name=gemm/total_ns` is the total time of a kernel.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import msgspec

from stepscope import comparison, errors, rule_feed, schema, views
from stepscope.queries.sql import QueryLimits, query_rows
from stepscope.run import Run

OpenBase = Callable[[str], Run]
"""Opens the run that `compare?base=RUN` names."""
ROW_ID = "at"
"""Name of the id in a row."""
_KEYS = ("name", "suspect", "phase", "rule", *schema.IDENTITY_FIELDS)
"""Fields that identify a row, where their values differ."""
MAX_KEY_LENGTH = 60


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


def make_id(source: str, options: Mapping[str, str] | None = None) -> str:
    """Make the id of a whole payload.

    >>> make_id("kernels", {"top": "5"}), make_id("sql", {"query": "SELECT 1/2"})
    ('kernels?top=5', 'sql?query=SELECT%201%2F2')
    """
    return f"{source}?{urlencode(options, quote_via=quote, safe='')}" if options else source


def with_ids(payload: msgspec.Struct, source_id: str) -> dict[str, Any]:
    """Convert a payload to plain data in which each row of a list has its id."""
    marked: dict[str, Any] = _mark(msgspec.to_builtins(payload, str_keys=True), source_id)
    return {ROW_ID: source_id, **marked}


def _mark(value: Any, at: str) -> Any:
    if isinstance(value, dict):
        return {key: _mark(item, f"{at}/{quote(key, safe='')}") for key, item in value.items()}
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return value
    paths = [f"{at}/{key}" for key in _row_keys(value)]
    return [{ROW_ID: path, **_mark(row, path)} for path, row in zip(paths, value, strict=True)]


def _row_keys(rows: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    """Return the last segments of the ids of rows."""
    for field in _KEYS:
        values = [row.get(field) for row in rows]
        texts = [str(value) for value in values if isinstance(value, str | int)]
        if len(set(texts)) == len(rows) and all(0 < len(text) <= MAX_KEY_LENGTH for text in texts):
            return [f"{field}={quote(text, safe='')}" for text in texts]
    return [str(position) for position in range(len(rows))]


def make_payload(
    run: Run, source: str, options: Mapping[str, str], open_base: OpenBase
) -> msgspec.Struct:
    """Make the payload that an id begins with.

    Raises:
        UsageError: there is no such source or option.
    """
    if source in views.VIEWS:
        view = views.VIEWS[source]
        return view(run, view.parse_options(source, options))
    match source, dict(options):
        case "verdict", {**rest} if not rest:
            return rule_feed.make_verdict(run)
        case "rules", {**rest} if not rest:
            report = rule_feed.check_rules(run.reader, rule_feed.choose_rules())
            findings = rule_feed.refuse_advice(report.findings, run)
            return msgspec.structs.replace(report, findings=findings)
        case "compare", {"base": base, **rest} if base and not rest:
            return comparison.compare_runs([open_base(base)], [run])
        case "sql", {"query": query, **rest} if not rest:
            return query_rows(run, query, QueryLimits())
    raise errors.UsageError(
        f"An id does not begin with {make_id(source, options)!r}. It begins with verdict, rules, "
        "compare?base=RUN, sql?query=QUERY, or the name of a view."
    )


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
        command=_command(source, options),
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
        rows = [
            item
            for item in value
            if isinstance(item, msgspec.Struct)
            and str(_plain(getattr(item, _fields(item).get(field, ""), None))) == text
        ]
        if len(rows) == 1:
            return rows[0]
    raise errors.UsageError(f"There is nothing at {at}: {segment!r} is no part of what is there.")


def _fields(row: msgspec.Struct) -> dict[str, str]:
    """Return the fields of a row by their names in JSON."""
    return dict(zip(row.__struct_encode_fields__, row.__struct_fields__, strict=True))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)


def _command(source: str, options: Mapping[str, str]) -> str:
    """Return the command that prints a payload."""
    if source in views.VIEWS:
        flags = [
            word for field, text in options.items() for word in (views.OPTION_FLAGS[field], text)
        ]
        return shlex.join(["stepscope", "show", "RUN", source, *flags, "--json"])
    words = {
        "verdict": ["diagnose", "RUN"],
        "rules": ["rules", "check", "RUN"],
        "compare": ["compare", options.get("base", ""), "RUN"],
        "sql": ["sql", "RUN", options.get("query", "")],
    }
    return shlex.join(["stepscope", *words[source], "--json"])
