"""Lists of the segments that one node has uploaded of one table: `segments/<table>/<node>.json`.

A job of many machines leaves a million segments in an object store. With these lists, a reader
finds those of a table by one small object per node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from stepscope.store import layout
from stepscope.store.bucket import Entry


class ListedSegment(NamedTuple):
    """One segment, or the mark `continued`."""

    file_name: str
    size_bytes: int
    tag: str
    """Tag of the object, as in an `Entry`."""


class SegmentList(msgspec.Struct, frozen=True):
    """Content of a list."""

    segments: list[ListedSegment]


def parse_segments(key: str, content: bytes) -> Iterator[Entry]:
    """Yield the objects that a list names, as a listing of the bucket would.

    Args:
        key: key of the list.
        content: its content.

    Raises:
        msgspec.DecodeError: it is damaged.
    """
    prefix = layout.table_prefix_of(key)
    for segment in msgspec.json.decode(content, type=SegmentList).segments:
        yield Entry(prefix + segment.file_name, segment.size_bytes, segment.tag, 0)
