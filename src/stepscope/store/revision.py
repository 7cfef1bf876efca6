"""Whether a run has changed, and how large it is, without opening any file of it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from stepscope.errors import NotARunError, UsageError
from stepscope.store import layout
from stepscope.store.objectstore import open_store

__all__ = ["revision_of", "size_of"]

QUIET_NS = 31_000_000_000
"""A job in progress whose monitor has not been heard for half a minute is given up for lost, and
that is news as well."""
_DIGITS = 13
"""Of the hash: 52 bits, which also JavaScript's doubles hold."""


def revision_of(location: str | Path) -> int:
    """A number that is another one once anything was added to a run or replaced in it, and once
    more when nothing has been for a while.

    Nothing in a run changes in place: files are put there under a new name or take the place of
    another by a rename, and both change the time of their directory.

    Raises:
        NotARunError: there is no run, or no longer.
        UsageError: it is not on this machine, or it holds a symbolic link. No link is ever made in
            a run, and one could lead anywhere.
    """
    manifest = open_store(location).local_path(layout.RUN_KEY)
    if manifest is None:
        raise UsageError("A run in a store that is not local cannot be followed.")
    root = manifest.parent
    try:
        manifest.stat()
        own_ns = root.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        raise NotARunError(f"There is no run at {location}, or no longer.") from None
    changed = sorted([("", own_ns), *_directories(str(root))])
    latest_ns = max(changed_ns for _, changed_ns in changed)
    found = hashlib.blake2b(b"quiet" if time.time_ns() - latest_ns > QUIET_NS else b"")
    for path, changed_ns in changed:
        found.update(f"{path}\0{changed_ns}\0".encode("utf-8", "surrogateescape"))
    return int(found.hexdigest()[:_DIGITS], 16)


def size_of(location: str | Path) -> int:
    """Bytes that the files of a run hold.

    Raises:
        UsageError: it is not on this machine.
    """
    store = open_store(location)
    paths = (store.local_path(key) for key in store.list(""))
    return sum(_file_bytes(path) for path in paths if path is not None)


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
