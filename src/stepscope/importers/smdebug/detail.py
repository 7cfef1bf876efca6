"""TensorFlow's own profiler, started by Debugger: Chrome traces whose times count from a moment
that stands in the name of a file beside them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stepscope.importers.kineto import (
    Frame,
    Identity,
    import_trace,
    inflated,
    is_compressed,
)
from stepscope.importers.results import Imported
from stepscope.store import RunWriter

_METADATA = re.compile(r"(?P<recorder>.+)_(?P<start_us>\d+)_\d+\.metadata")
_FOLDERS_ABOVE = 3
"""Of <step>/plugins/profile/<time>/<host>.trace.json.gz: what names the start lies in <step>."""
_PIECE_BYTES = 1 << 20


def start_us(path: Path) -> int | None:
    """When a trace begins, in microseconds since 1970; None when nothing tells."""
    if len(path.parents) <= _FOLDERS_ABOVE:
        return None
    named = map(_METADATA.fullmatch, (p.name for p in path.parents[_FOLDERS_ABOVE].iterdir()))
    found = [match for match in named if match is not None]
    host = path.name.partition(".")[0]
    own = [match for match in found if host in match["recorder"]] or found
    return int(own[0]["start_us"]) if len(own) == 1 else None


def import_detail(path: Path, writer: RunWriter, scratch: Path) -> Imported:
    """Stores the trace, its times counted from 1970 where it is known from when they count.

    Raises:
        UnreadableTraceError: the file holds no readable event.
        OSError: the file cannot be read or the run not be written.
    """
    identity = Identity(name=path.name)
    begun_us = start_us(path)
    if begun_us is None:
        return import_trace(path, writer, identity, scratch=scratch)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".import-") as directory:
        based = Path(directory) / path.name
        _copy_with_base(path, based, begun_us * 1000)
        return import_trace(based, writer, identity, scratch=scratch)


def _copy_with_base(path: Path, target: Path, base_ns: int) -> None:
    """The same text, with one more key at its top."""
    texts = _texts(path)
    before, brace, rest = next(texts, b"").partition(b"{")
    added = b'"baseTimeNanoseconds":%d,' % base_ns if brace and not before.strip() else b""
    with target.open("wb") as copy:
        copy.write(before + brace + added + rest)
        copy.writelines(texts)


def _texts(path: Path) -> Iterator[bytes]:
    """The text of a file, compressed or not, as far as it can be read: whoever reads the copy
    finds that its end is missing, and says so."""
    with path.open("rb") as file:
        if is_compressed(str(path)):
            yield from inflated(file, Frame())
        else:
            yield from iter(lambda: file.read(_PIECE_BYTES), b"")
