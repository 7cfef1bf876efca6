"""Walk through the directories below a root, which never leaves it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stepscope.errors import UsageError
from stepscope.quantities import count_of
from stepscope.run.catalog.base import MAX_DEPTH
from stepscope.store import RUN_KEY, check_link

MAX_DIRECTORIES = 100_000


class Directory(NamedTuple):
    """Directory below a root."""

    path: Path
    created_ns: int | None
    """Creation time of the run that it is; None if it is no run."""


def walk_directories(root: Path, notes: list[str]) -> Iterator[Directory]:
    """Yield the directories at or below a root, but none below runs. Links that lead out of the
    root are not followed.

    Args:
        root: the directory, without links in its path.
        notes: receives a sentence if directories are left out or cannot be read.
    """
    pending, visited, unreadable = [(root, 0)], {root}, list[Path]()
    while pending:
        path, depth = pending.pop()
        directory = Directory(path, created_ns_of(path))
        yield directory
        if directory.created_ns is None and depth < MAX_DEPTH:
            try:
                children = set(_children(path, root)) - visited
            except PermissionError:
                unreadable.append(path)
                continue
            visited |= children
            pending += [(child, depth + 1) for child in children]
        if len(visited) > MAX_DIRECTORIES:
            notes.append(
                f"There are more than {MAX_DIRECTORIES} directories; the others were not searched."
            )
            break
    if unreadable:
        name = min(unreadable).name
        count = count_of(len(unreadable), "directory", "directories")
        notes.append(f"No permission to read {count}, e.g. {name}; runs in there are not listed.")


def created_ns_of(directory: Path) -> int | None:
    """Return the creation time of the run in a directory; None if there is no run."""
    manifest = directory / RUN_KEY
    try:
        if manifest.is_symlink():
            check_link(manifest)
        status = manifest.stat()
    except (OSError, UsageError):
        return None
    return status.st_mtime_ns if stat.S_ISREG(status.st_mode) else None


def _children(directory: Path, root: Path) -> Iterator[Path]:
    try:
        with os.scandir(directory) as scan:
            entries = [entry for entry in scan if not entry.name.startswith(".")]
    except PermissionError:
        raise
    except OSError:  # removed
        return
    for entry in entries:
        path = Path(entry.path)
        if entry.is_symlink():
            try:
                path = path.resolve(strict=True)
            except (OSError, RuntimeError):  # a broken link, or a loop
                continue
            if path.is_relative_to(root) and path.is_dir():
                yield path
        elif entry.is_dir(follow_symlinks=False):
            yield path
