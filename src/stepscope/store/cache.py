"""Copies of objects that never change, on this machine: what a query opens.

Each file has a name that says which content it has, so one that is there is right. Files are used
by several processes; whoever removes one breaks nobody, because whoever has it open keeps it, and
whoever does not find it fetches it again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from stepscope.errors import UsageError

__all__ = ["LIMIT_VARIABLE", "ObjectCache", "cache_home"]

LIMIT_VARIABLE = "STEPSCOPE_CACHE_GB"
DEFAULT_GB = 10.0
RECENT_S = 600
"""What was used within that time stays, even above the limit: somebody may be about to open it."""
_ABANDONED_S = 86_400
"""A part of a download that nobody goes on with is removed after that time."""
_PART = ".part"


def cache_home() -> Path:
    """Where stepscope keeps what it can get again, by the rules of the desktop."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if Path(base).is_absolute() else Path.home() / ".cache") / "stepscope"


class ObjectCache:
    """Copies of the objects of one store.

    Args:
        url: of the store.
    """

    def __init__(self, url: str) -> None:
        self._all = cache_home() / "objects"
        self.directory = self._all / _digest(url)

    def path(self, key: str, tag: str) -> Path:
        """Where the copy of an object lies or will lie."""
        return self.directory / (_digest(f"{key}\0{tag}") + Path(key).suffix)

    def use(self, paths: Iterable[Path]) -> None:
        """These are needed now; which of them were not, will be seen when there is no room."""
        for path in paths:
            try:
                os.utime(path)
            except OSError:  # removed just now, or a directory that is only to be read
                continue

    def add(self, path: Path, fill: Callable[[BinaryIO], None]) -> None:
        """Has a copy made, by one process while others wait for it.

        Raises:
            OSError: it cannot be written, or whatever `fill` raises.
        """
        part = path.with_name(f".{path.name}{_PART}")
        with self._writing():
            self._make_directory()
        while not path.exists():
            with self._writing():
                file = part.open("ab")
            with file:
                fcntl.flock(file, fcntl.LOCK_EX)
                # Who had it before may have given it its name, or removed it.
                if not _is_still(part, file) or path.exists():
                    continue
                file.truncate(0)
                try:
                    fill(file)
                except OSError as error:
                    part.unlink(missing_ok=True)
                    if error.filename is None:  # of this file, not of what it is a copy of
                        raise self._unwritable(error) from error
                    raise
                with self._writing():
                    file.flush()
                    os.fsync(file.fileno())
                    part.replace(path)

    def staging_path(self, name: str) -> Path:
        """A new empty file that nobody reads."""
        with self._writing():
            self._make_directory()
            number, path = tempfile.mkstemp(_PART, f".{name}.", self.directory)
        os.close(number)
        return Path(path)

    def make_room(self) -> None:
        """Removes what was not used for longest, of all stores, down to the limit."""
        limit = _limit_bytes()
        now = time.time()
        found = sorted(_files(self._all))
        held = sum(size for _, size, _ in found)
        for used_s, size, path in found:
            part = path.name.endswith(_PART)
            if now - used_s < (_ABANDONED_S if part else RECENT_S):
                continue
            if part or held > limit:
                path.unlink(missing_ok=True)
                held -= size

    def _make_directory(self) -> None:
        """Rows of others' jobs are nobody else's business."""
        for directory in (self._all, self.directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if directory.stat().st_mode & 0o077:
                directory.chmod(0o700)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> OSError:
        said = f"copies of objects cannot be kept here: {error.strerror}; "
        hint = "name another directory with XDG_CACHE_HOME"
        return OSError(error.errno or errno.EIO, said + hint, str(self.directory))


def _is_still(part: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(part.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _files(directory: Path) -> Iterator[tuple[float, int, Path]]:
    """When each was last used, and its size."""
    for path in directory.glob("*/*"):
        try:
            found = path.stat()
        except OSError:
            continue
        yield found.st_mtime, found.st_size, path


def _limit_bytes() -> float:
    said = os.environ.get(LIMIT_VARIABLE, "")
    try:
        return 1e9 * (float(said) if said else DEFAULT_GB)
    except ValueError:
        raise UsageError(f"{LIMIT_VARIABLE}={said!r} is no number of gigabytes.") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
