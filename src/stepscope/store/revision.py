"""Whether a run has changed, and how large it is, without opening any file of it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from stepscope.errors import NotARunError, UsageError
from stepscope.store import layout
from stepscope.store.bucket import Entry
from stepscope.store.objectstore import LocalStore, is_remote, open_store

__all__ = ["revision_of", "revision_of_entries", "size_of"]

QUIET_NS = 31_000_000_000
"""A job in progress whose monitor has not been heard for half a minute is given up for lost, and
that is news as well."""
_DIGITS = 13
"""Of the hash: 52 bits, which also JavaScript's doubles hold."""


def revision_of(location: str | Path) -> int:
    """A number that is another one once anything was added to a run or replaced in it, and once
    more when nothing has been for a while.

    Nothing in a run changes in place: files are put there under a new name or take the place of
    another by a rename, and both change the time of their directory. Of a bucket it takes one
    listing of the run: a request for a thousand objects.

    Raises:
        NotARunError: there is no run, or no longer.
        UsageError: it holds a symbolic link. No link is ever made in a run, and one could lead
            anywhere.
        OSError: a bucket cannot be reached.
    """
    if is_remote(location):
        entries = _entries(location)
        if not any(entry.key == layout.RUN_KEY for entry in entries):
            raise NotARunError(f"There is no run at {location}, or no longer.")
        return revision_of_entries(entries)
    manifest = LocalStore(Path(location)).local_path(layout.RUN_KEY)
    root = manifest.parent
    try:
        manifest.stat()
        own_ns = root.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        raise NotARunError(f"There is no run at {location}, or no longer.") from None
    changed = sorted([("", own_ns), *_directories(str(root))])
    return _number_of(
        (f"{path}\0{changed_ns}\0" for path, changed_ns in changed),
        latest_ns=max(changed_ns for _, changed_ns in changed),
    )


def revision_of_entries(entries: Iterable[Entry]) -> int:
    """The revision of a run in a bucket, by all its objects, whose keys are relative to it."""
    ordered = sorted(entries)
    return _number_of(
        (f"{key}\0{size}\0{tag}\0{changed_ns}\0" for key, size, tag, changed_ns in ordered),
        latest_ns=max((entry.changed_ns for entry in ordered), default=0),
    )


def _number_of(parts: Iterable[str], *, latest_ns: int) -> int:
    found = hashlib.blake2b(b"quiet" if time.time_ns() - latest_ns > QUIET_NS else b"")
    for part in parts:
        found.update(part.encode("utf-8", "surrogateescape"))
    return int(found.hexdigest()[:_DIGITS], 16)


def _entries(location: str | Path) -> Sequence[Entry]:
    from stepscope.store.remote import RemoteStore

    return RemoteStore(str(location)).entries()


def size_of(location: str | Path) -> int:
    """Bytes that the files of a run hold.

    Raises:
        OSError: a bucket cannot be reached.
    """
    if is_remote(location):
        return sum(entry.size_bytes for entry in _entries(location))
    store = open_store(location)
    return sum(_file_bytes(path) for path in store.local_paths(list(store.list(""))))


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # merged away just now
        return 0


def _directories(directory: str) -> Iterator[tuple[str, int]]:
    """The directories below this one, with the times of their last change."""
    try:
        with os.scandir(directory) as scan:
            entries = [entry for entry in scan if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):  # it was removed just now
        return
    for entry in entries:
        if entry.is_symlink():
            raise UsageError(f"{entry.path} is a symbolic link, which a run does not hold.")
        if entry.is_dir():
            try:
                yield entry.path, entry.stat().st_mtime_ns
            except FileNotFoundError:
                continue
            yield from _directories(entry.path)
