"""Traces of TensorFlow's own profiler, started by Debugger.

They are Chrome traces whose times count from a moment in the name of another file.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stepscope.importers.content import is_compressed
from stepscope.importers.kineto import Frame, Identity, import_trace, inflated
from stepscope.importers.results import Imported
from stepscope.store import RunWriter

_METADATA = re.compile(r"(?P<recorder>.+)_(?P<start_us>\d+)_\d+\.metadata")
_FOLDERS_ABOVE = 3
"""Of <step>/plugins/profile/<time>/<host>.trace.json.gz; the file that names the start is in
<step>."""
_PIECE_BYTES = 1 << 20


def start_us(path: Path) -> int | None:
    """Return the start of a trace in microseconds since 1970; None if it is unknown."""
    if len(path.parents) <= _FOLDERS_ABOVE:
        return None
    names = (file.name for file in path.parents[_FOLDERS_ABOVE].iterdir())
    matches = [match for match in map(_METADATA.fullmatch, names) if match is not None]
    host = path.name.partition(".")[0]
    host_matches = [match for match in matches if host in match["recorder"]] or matches
    return int(host_matches[0]["start_us"]) if len(host_matches) == 1 else None


def import_detail(path: Path, writer: RunWriter, scratch: Path) -> Imported:
    """Store the trace, with times since 1970 if its start is known.

    Raises:
        UnreadableTraceError: the file has no readable event.
        OSError: the file cannot be read, or the run cannot be written.
    """
    identity = Identity(name=path.name)
    trace_start_us = start_us(path)
    if trace_start_us is None:
        return import_trace(path, writer, identity, scratch=scratch)
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".import-") as directory:
        based = Path(directory) / path.name
        _copy_with_base(path, based, trace_start_us * 1000)
        return import_trace(based, writer, identity, scratch=scratch)


def _copy_with_base(path: Path, target: Path, base_ns: int) -> None:
    """Copy the text, with one more key at its top."""
    texts = _texts(path)
    before, brace, rest = next(texts, b"").partition(b"{")
    base = b'"baseTimeNanoseconds":%d,' % base_ns if brace and not before.strip() else b""
    with target.open("wb") as copy:
        copy.write(before + brace + base + rest)
        copy.writelines(texts)


def _texts(path: Path) -> Iterator[bytes]:
    """Yield the text of a file, compressed or not, as far as it can be read.

    The import of the copy reports a missing end.
    """
    with path.open("rb") as file:
        if is_compressed(path):
            yield from inflated(file, Frame())
        else:
            yield from iter(lambda: file.read(_PIECE_BYTES), b"")
