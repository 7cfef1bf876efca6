"""Blocks of events, decoded by the compiled scanner and by Python, which defines the result."""

from __future__ import annotations

from typing import Any
from unittest import mock

from stepscope.importers.kineto import decode
from stepscope.importers.kineto.blocks import Block
from stepscope.importers.kineto.columns import Chunk
from stepscope.importers.kineto.gather import STRING_COLUMNS, absent


def decode_by_both(text: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Decode events separated by commas, and return the content of both results."""
    scanned = decode.decode_block(Block(text=text))
    with mock.patch.object(decode, "scan_block", return_value=None):
        decoded = decode.decode_block(Block(text=text))
    names = {
        kind: {*scanned.columns.get(kind, ()), *decoded.columns.get(kind, ())}
        for kind in (*scanned.columns, *decoded.columns)
    }
    return _content(scanned, names), _content(decoded, names)


def _content(chunk: Chunk, names: dict[Any, set[str]]) -> dict[str, Any]:
    """Return everything that a chunk says; a column that is left out has no value in any row."""
    content: dict[str, Any] = {
        field: getattr(chunk, field)
        for field in (
            "tracks", "metadata", "event_count", "flow_counts", "repaired", "lost_bytes",
            "lost_events", "fragments",
        )
    }  # fmt: skip
    content["kinds"] = list(chunk.columns)
    for kind, columns in chunk.columns.items():
        rows = len(columns["order"])
        for name in names[kind]:
            values = (columns[name] if name in columns else absent(name, rows)).tolist()
            if name in STRING_COLUMNS:
                values = [chunk.strings[code] if code >= 0 else None for code in values]
            content[f"{kind} {name}"] = list(map(repr, values))  # NaN equals itself so
    return content
