"""Importer of memory timelines, which `export_memory_timeline` of torch.profiler writes.

    raw    [[time in ns, action, bytes, category], …], x.raw.json.gz
    sums   [[time in µs, …], [[0, bytes of each category …], …]], x.json and x.json.gz

Memory from before the profile has the time -1 in raw files; it gets that of the first change, as
torch draws it. Actions and categories are numbers, see `schema.MEMORY_ACTIONS`.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from stepscope import intervals, schema, store
from stepscope.importers.content import (
    Format,
    ProgressCallback,
    Recorded,
    Refused,
    Result,
    read_content,
    refuse,
)

FORMAT = Format(
    name="memory timeline",
    tables=("memory_categories",),
    file="memory timeline",
    event="change",
    sentence="{files}, {events} in {run}",
    view="memory",
)
_RAW = re.compile(rb"\s*\[\s*\[\s*-?\d+\s*,\s*[1-4]\s*,\s*-?\d+\s*,\s*[0-7]\s*\]")
_SUMS = re.compile(rb"\s*\[\s*\[\s*-?\d+\s*(,\s*-?\d+\s*)*(\]\s*,\s*\[\s*\[|,?\s*-?\d*\Z)")
_EMPTY = re.compile(rb"\s*\[\s*\[\s*\]\s*,\s*\[\s*\]\s*\]")
"""Sums of a device without memory."""
_MAX_BYTES = 2**62
_Bytes = Annotated[int, Meta(gt=-_MAX_BYTES, lt=_MAX_BYTES)]
_Change = tuple[
    _Bytes,
    Annotated[int, Meta(ge=1, le=len(schema.MEMORY_ACTIONS))],
    _Bytes,
    Annotated[int, Meta(ge=0, lt=len(schema.MEMORY_CATEGORY_NAMES))],
]
_Sums = tuple[list[_Bytes], list[list[_Bytes]]]
_SUM_COLUMNS = 1 + len(schema.MEMORY_CATEGORY_NAMES)
"""A zero comes first, so that torch can draw the sums of the columns as areas."""


class MemoryTimelineImporter:
    """Importer of memory timelines; see `registry.Importer`."""

    formats = (FORMAT,)

    def recognise(self, head: bytes, _path: Path) -> bool:
        """Return True for a file that begins like a memory timeline."""
        return any(form.match(head) for form in (_RAW, _SUMS, _EMPTY))

    def import_files(
        self, files: Sequence[Path], run: Path, node: str, progress: ProgressCallback
    ) -> list[Result]:
        """Import memory timelines one after the other; see `registry.Importer.import_files`."""
        names = [path.name for path in files]
        results: list[Result] = []
        with store.RunWriter(run, node) as writer:
            for index, path in enumerate(files):
                is_unique = names.count(path.name) == 1
                name = path.name if is_unique else f"{path.parent.name}/{path.name}"
                results.append(_import_file(path, writer, name))
                progress(index, 1.0)
        return results


def _import_file(path: Path, writer: store.RunWriter, name: str) -> Result:
    try:
        content = read_content(path)
    except (OSError, EOFError, zlib.error) as error:
        return refuse(path, error)
    if _EMPTY.match(content):
        return Refused(path, f"{path} has no memory: its device allocated none while it profiled.")
    try:
        columns = _read_raw(content) if _RAW.match(content) else _read_sums(content)
    except (*schema.MALFORMED_JSON, ValueError) as error:
        return Refused(path, f"{path} is not a complete memory timeline: {error}.")
    count = len(columns["t_ns"])
    rows = {
        "timeline": np.full(count, secrets.randbits(48), dtype=np.int64),
        "id": np.arange(count, dtype=np.int64),
        "name": store.DictColumn.constant(name, count),
        **columns,
    }
    writer.append("memory_categories", rows)
    return Recorded(name=name, form=FORMAT.name, event_count=count)


def _read_raw(content: bytes) -> dict[str, Any]:
    changes = np.array(msgspec.json.decode(content, type=list[_Change]), dtype=np.int64)
    t_ns, action, size, category = changes.T
    recorded_ns = t_ns[t_ns >= 0]
    return {
        "t_ns": np.where(t_ns >= 0, t_ns, recorded_ns.min() if len(recorded_ns) else 0),
        "action": store.DictColumn(
            (action - 1).astype(np.int32), list(schema.MEMORY_ACTIONS)
        ).drop_unused(),
        "category": _category_column(category),
        "size_bytes": size,
    }


def _read_sums(content: bytes) -> dict[str, Any]:
    times, sums = msgspec.json.decode(content, type=_Sums)
    if len(times) != len(sums) or any(len(row) != _SUM_COLUMNS for row in sums):
        raise ValueError(f"it needs {_SUM_COLUMNS} sums for each of its times")
    changes = np.diff(np.array(sums, dtype=np.int64)[:, 1:], axis=0, prepend=0)
    row, category = np.nonzero(changes)
    t_ns = np.array(times, dtype=np.int64) * 1000
    return {
        "t_ns": t_ns[row],
        "action": store.DictColumn.constant(None, len(row)),
        "category": _category_column(category),
        "size_bytes": changes[row, category],
    }


def _category_column(numbers: intervals.Int) -> store.DictColumn:
    return store.DictColumn(
        numbers.astype(np.int32), list(schema.MEMORY_CATEGORY_NAMES)
    ).drop_unused()
