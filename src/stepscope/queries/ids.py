"""Ids of the rows and numbers in payloads.

An id is a path that needs no state: `SOURCE[?OPTION=VALUE&…]/SEGMENT/…`, percent-encoded as a URL.

    SOURCE    a view, or one of `sources.SOURCES`, such as `verdict` or `compare?base=RUN`
    OPTION    an option of the view, as in `/api/views`, or of the command
    SEGMENT   a field, a key of a mapping, the position in a list, or FIELD=VALUE: the one item of a
              list with this value

`kernels?top=5/traces/0/kernels/name=gemm/total_ns` is the total time of a kernel.

Commands print ids with stored payloads, so that this file imports nothing that computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from stepscope import schema

ROW_ID = "at"
"""Name of the id in a row."""
_KEYS = ("name", "suspect", "phase", "rule", *schema.IDENTITY_FIELDS)
"""Fields that identify a row, where their values differ."""
MAX_KEY_LENGTH = 60


def make_id(source: str, options: Mapping[str, str] | None = None) -> str:
    """Make the id of a whole payload.

    >>> make_id("kernels", {"top": "5"}), make_id("sql", {"query": "SELECT 1/2"})
    ('kernels?top=5', 'sql?query=SELECT%201%2F2')
    """
    return f"{source}?{urlencode(options, quote_via=quote, safe='')}" if options else source


def with_ids(payload: msgspec.Struct | msgspec.Raw, source_id: str) -> dict[str, Any]:
    """Convert a payload to plain data in which each row of a list has its id.

    Args:
        payload: the payload, or its JSON.
        source_id: id of the whole payload.
    """
    plain = (
        msgspec.json.decode(payload)
        if isinstance(payload, msgspec.Raw)
        else msgspec.to_builtins(payload, str_keys=True)
    )
    marked: dict[str, Any] = _mark(plain, source_id)
    return {ROW_ID: source_id, **marked}


def _mark(value: Any, at: str) -> Any:
    if isinstance(value, dict):
        return {
            key: _mark(item, f"{at}/{quote(key, safe='')}")
            if isinstance(item, dict | list)
            else item
            for key, item in value.items()
        }
    if not value or not all(isinstance(item, dict) for item in value):
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
