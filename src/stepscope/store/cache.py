"""Cache directory of this machine, with copies of immutable objects of buckets.

The name of a copy is a hash of its content's tag, so an existing copy is correct. Several processes
share the files. Removing one is safe: a process that has it open keeps reading it, and a process
that does not find it downloads it again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from stepscope import errors

LIMIT_VARIABLE = "STEPSCOPE_CACHE_GB"
DEFAULT_LIMIT_GB = 10.0
RECENT_S = 600
"""Time since the last use within which a copy stays even above the limit: a query may be about to
open it."""
_ABANDONED_S = 86_400
"""Age at which a partial download is removed."""
_PART = ".part"


def cache_home() -> Path:
    """Return stepscope's cache directory, by the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if Path(base).is_absolute() else Path.home() / ".cache") / "stepscope"


def make_private_directory(directory: Path) -> None:
    """Create a directory that only this user can read: other users may not see the runs.

    Raises:
        OSError: it cannot be created.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)


@contextmanager
def write_errors(directory: Path, content: str) -> Iterator[None]:
    """Explain errors of the block as those of a cache directory.

    Raises:
        OSError: an error of the block, with the remedy.
    """
    try:
        yield
    except OSError as error:
        raise _cannot_write(directory, content, error) from error


def _cannot_write(directory: Path, content: str, error: OSError) -> OSError:
    reason = (
        f"cannot cache {content} here: {error.strerror}; set XDG_CACHE_HOME to another directory"
    )
    return OSError(error.errno or errno.EIO, reason, str(directory))


class ObjectCache:
    """Copies of the objects of one store.

    Args:
        url: URL of the store.
    """

    def __init__(self, url: str) -> None:
        self._root = cache_home() / "objects"
        self.directory = self._root / _digest(url)

    def path(self, key: str, tag: str) -> Path:
        """Return the path of an object's copy, present or not."""
        return self.directory / (_digest(f"{key}\0{tag}") + Path(key).suffix)

    def touch(self, paths: Iterable[Path]) -> None:
        """Mark copies as used now; eviction removes the least recently used ones first."""
        for path in paths:
            try:
                os.utime(path)
            except OSError:  # missing, or in a read-only directory
                continue

    def add(self, path: Path, fill: Callable[[BinaryIO], None]) -> None:
        """Create a copy in one process while others wait for it.

        Raises:
            OSError: the file cannot be written, or an error of `fill`.
        """
        if sys.platform == "win32":
            self._add_unlocked(path, fill)
            return
        import fcntl

        part = path.with_name(f".{path.name}{_PART}")
        with write_errors(self.directory, "objects"):
            self._make_directories()
        while not path.exists():
            with write_errors(self.directory, "objects"):
                file = part.open("ab")
            with file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # The previous holder of the lock may have renamed the file or removed it.
                if not _is_same_file(part, file) or path.exists():
                    continue
                file.truncate(0)
                try:
                    fill(file)
                except OSError as error:
                    part.unlink(missing_ok=True)
                    if error.filename is None:  # of this file, not of its source
                        raise _cannot_write(self.directory, "objects", error) from error
                    raise
                with write_errors(self.directory, "objects"):
                    file.flush()
                    os.fsync(file.fileno())
                    part.replace(path)

    def _add_unlocked(self, path: Path, fill: Callable[[BinaryIO], None]) -> None:
        """Create a copy where files in use cannot be renamed: two processes may both download it.

        Raises:
            OSError: see `add`.
        """
        part = self.staging_path(path.name)
        try:
            with part.open("wb") as file:
                fill(file)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def staging_path(self, name: str) -> Path:
        """Create an empty file that no reader opens."""
        with write_errors(self.directory, "objects"):
            self._make_directories()
            descriptor, path = tempfile.mkstemp(_PART, f".{name}.", self.directory)
        os.close(descriptor)
        return Path(path)

    def evict(self) -> None:
        """Remove the least recently used copies of all stores, down to the limit."""
        limit = cache_limit_bytes()
        now = time.time()
        files = sorted(_files(self._root))
        total = sum(size for _, size, _ in files)
        for used_s, size, path in files:
            is_part = path.name.endswith(_PART)
            if now - used_s < (_ABANDONED_S if is_part else RECENT_S):
                continue
            if is_part or total > limit:
                path.unlink(missing_ok=True)
                total -= size

    def _make_directories(self) -> None:
        for directory in (self._root, self.directory):
            make_private_directory(directory)


def _is_same_file(part: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(part.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _files(directory: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield time of last use in seconds, size in bytes and path of each file."""
    for path in directory.glob("*/*"):
        try:
            status = path.stat()
        except OSError:
            continue
        yield status.st_mtime, status.st_size, path


def cache_limit_bytes() -> float:
    """Return the size to which each part of the cache is limited.

    Raises:
        UsageError: the variable for it is not a number.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    try:
        return 1e9 * (float(text) if text else DEFAULT_LIMIT_GB)
    except ValueError:
        raise errors.UsageError(
            f"{LIMIT_VARIABLE}={text!r} is not a number of gigabytes."
        ) from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
