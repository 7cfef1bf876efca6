"""Journal of a staging directory, and lists of the segments that a node has uploaded.

`.upload.jsonl` makes a run directory a staging directory. Its first line names the URL; each of the
others says that an object was written, with its version there, or removed. An object whose line was
lost in a crash is written again, which changes nothing.

Lists of the segments that one node has uploaded of one table: `segments/<table>/<node>.json`. A job
of many machines leaves a million segments in an object store. With these lists, a reader finds
those of a table by one small object per node.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import msgspec

from stepscope import schema
from stepscope.store import layout
from stepscope.store.bucket import Entry, Version

JOURNAL = ".upload.jsonl"
_LOCK = ".upload.lock"
_MAX_STALE_LINES = 10_000
"""Lines about earlier versions from which the file is rewritten."""


class UploadTarget(msgspec.Struct, frozen=True, kw_only=True):
    """First line of a journal."""

    url: str
    is_unique: bool
    """True if no other job can have the identity of this one, so that a run of it can be joined
    even after all of its launchers have completed."""


class Upload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An object that was written, or removed."""

    key: str
    stamp: str = ""
    """Content of the local file when it was read: its inode, time of change and size."""
    size_bytes: int = 0
    e_tag: str | None = None
    number: str | None = None
    is_removed: bool = False

    @property
    def version(self) -> Version:
        """Version in the store; without names for one that another machine wrote."""
        return Version(self.e_tag, self.number)


def create_journal(directory: Path, target: UploadTarget) -> bool:
    """Make a directory a staging directory; False if it is one already.

    Raises:
        OSError: it cannot be written.
    """
    path = directory / JOURNAL
    staged = path.with_name(f"{JOURNAL}.{os.getpid()}")
    staged.write_bytes(msgspec.json.encode(target) + b"\n")
    try:
        os.link(staged, path)
    except FileExistsError:
        return False
    finally:
        staged.unlink(missing_ok=True)
    return True


def read_target(directory: Path) -> UploadTarget | None:
    """Read to where a staging directory is uploaded; None for any other directory."""
    try:
        with (directory / JOURNAL).open("rb") as file:
            return msgspec.json.decode(file.readline(), type=UploadTarget)
    except (OSError, *schema.MALFORMED_JSON):
        return None


class UploadJournal:
    """Objects by key. Thread-safe. One process at a time writes it: the holder of the lock.

    Raises:
        OSError: the directory is no staging directory, or cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL
        self._lock_path = directory / _LOCK
        self._lock_file: BinaryIO | None = None
        self._file: BinaryIO | None = None
        self._line_count = 0
        self._mutex = threading.Lock()
        self.uploads: dict[str, Upload] = {}
        self.load()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_owned(self) -> bool:
        """True if this process holds the lock."""
        return self._lock_file is not None

    def take(self) -> bool:
        """Take the lock and read what its last holder has written; False if another process has it.

        Raises:
            OSError: the directory cannot be written.
        """
        if self.is_owned:
            return True
        import fcntl  # recording needs Linux, and reading no lock

        file = self._lock_path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._lock_file = file
        self.load()
        return True

    def close(self) -> None:
        """Release the lock."""
        for file in (self._file, self._lock_file):
            if file is not None:
                file.close()
        self._file = self._lock_file = None

    def load(self) -> None:
        """Read the file."""
        lines = self._path.read_bytes().splitlines()[1:]
        uploads: dict[str, Upload] = {}
        for line in lines:
            try:
                upload = msgspec.json.decode(line, type=Upload)
            except schema.MALFORMED_JSON:  # torn by a crash
                continue
            if upload.is_removed:
                uploads.pop(upload.key, None)
            else:
                uploads[upload.key] = upload
        with self._mutex:
            self.uploads, self._line_count = uploads, len(lines)

    def add(self, upload: Upload) -> None:
        """Note an object.

        Raises:
            OSError: the file cannot be written.
        """
        with self._mutex:
            if upload.is_removed:
                self.uploads.pop(upload.key, None)
            else:
                self.uploads[upload.key] = upload
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
                self._file.write(b"\n")  # ends a line that a crash has torn
            self._file.write(msgspec.json.encode(upload) + b"\n")
            self._line_count += 1
            if self._line_count > len(self.uploads) + _MAX_STALE_LINES:
                self._rewrite()

    def _rewrite(self) -> None:
        with self._path.open("rb") as file:
            first = file.readline()
        lines = [msgspec.json.encode(upload) + b"\n" for upload in self.uploads.values()]
        staged = self._path.with_name(f"{JOURNAL}.new")
        staged.write_bytes(first + b"".join(lines))
        staged.replace(self._path)
        if self._file is not None:
            self._file.close()
        self._file, self._line_count = None, len(lines)


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
