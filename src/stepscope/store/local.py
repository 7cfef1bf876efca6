"""Object store in a local directory."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from stepscope import errors
from stepscope.store.objectstore import check_key, check_prefix

FOLLOW_LINKS_VARIABLE = "STEPSCOPE_FOLLOW_LINKS"

_SYNC_THREADS = 4
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Reading waits for no writer of a pipe and, on Windows, translates no ends of lines."""
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""0 on Windows, where a check precedes the opening."""
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class LocalStore:
    """Directory of objects. Unfinished files have names that start with '.'; `list` skips them.

    A writer that is killed leaves such a file behind: it holds nothing that was acknowledged and
    disturbs no reader.
    """

    def __init__(self, root: Path) -> None:
        # Absolute, so that a later chdir of the process does not move the run.
        self.root = root.absolute()
        self._unsynced: dict[Path, None] | None = None
        """Published files and directories that are not durable yet; None: all are, at once."""

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    @property
    def url(self) -> str:
        """Absolute path of the directory."""
        return str(self.root)

    def list(self, prefix: str) -> Iterable[str]:
        """List the keys below `prefix`, sorted.

        Raises:
            UsageError: there is a link, which is not followed; see `check_link`.
        """
        check_prefix(prefix)
        return sorted(_keys_below(f"{self.root}/{prefix}", prefix))

    def get(self, key: str) -> bytes:
        """Read an object; FileNotFoundError if it does not exist.

        A pipe would block forever, so it is no object.

        Raises:
            UsageError: it is a link, which is not followed; see `check_link`.
        """
        check_key(key)
        path = f"{self.root}/{key}"  # a list of runs reads thousands: a Path takes longer than this
        follows_links = _follows_links()
        if not (follows_links or _NO_FOLLOW) and Path(path).is_symlink():
            check_link(Path(path))
        try:
            descriptor = os.open(path, _READ_FLAGS if follows_links else _READ_FLAGS | _NO_FOLLOW)
        except OSError as error:
            if error.errno == errno.ELOOP:
                check_link(Path(path))
            if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link to itself; a socket
                raise _not_a_file(path) from None
            raise
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            os.close(descriptor)
            raise _not_a_file(path)
        with FileIO(descriptor) as file:
            return file.readall()

    def get_all(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Read several objects; None for a missing one."""
        return [_get_or_none(self.get, key) for key in keys]

    def put(self, key: str, data: bytes) -> None:
        """Write or replace an object."""
        staged = self._stage(key, data)
        try:
            staged.replace(self._path(key))
        finally:
            staged.unlink(missing_ok=True)
        _sync(staged.parent)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write an object if it does not exist yet."""
        staged = self._stage(key, data)
        try:
            return self._publish(staged, self._path(key))
        finally:
            staged.unlink(missing_ok=True)

    @contextmanager
    def deferring_sync(self) -> Iterator[None]:
        """Let `sync`, or the end, make durable what `put_file` publishes."""
        self._unsynced = {}
        try:
            yield
            self.sync()
        finally:
            self._unsynced = None

    def sync(self) -> None:
        """Make durable what was published within `deferring_sync`.

        Together that takes a tenth of the time: one commit of the file system serves many files.
        """
        from concurrent.futures import ThreadPoolExecutor

        paths = []
        while self._unsynced:  # another thread may publish meanwhile
            paths.append(self._unsynced.popitem()[0])
        with ThreadPoolExecutor(_SYNC_THREADS) as threads:
            list(threads.map(_sync, paths))

    def staging_path(self, key: str) -> Path:
        """Create an empty file in the object's directory, so that publishing it is a rename."""
        target = self._path(key)
        _make_directory(target.parent, self._sync)
        staged = target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        staged.touch(exist_ok=False)
        return staged

    def put_file(self, key: str, local_path: Path) -> bool:
        """Publish a finished file that `staging_path` created for this key."""
        if self._unsynced is None:
            _sync(local_path)
        target = self._path(key)
        is_new = self._publish(local_path, target)
        if self._unsynced is not None and is_new:
            self._unsynced[target] = None
        return is_new

    def delete(self, key: str) -> None:
        """Remove an object if it exists."""
        self._path(key).unlink(missing_ok=True)

    def local_path(self, key: str) -> Path:
        """Return the path of the object itself."""
        return self._path(key)

    def local_paths(self, keys: Sequence[str]) -> Sequence[Path]:
        """Return the paths of the objects themselves, without checking that they exist."""
        return [self._path(key) for key in keys]

    def has_local_file(self, key: str) -> bool:
        """Return True if the file exists."""
        return self._path(key).exists()

    def refresh(self) -> None:
        """Do nothing: listings are not cached."""

    def _path(self, key: str) -> Path:
        check_key(key)
        return self.root / key

    def _stage(self, key: str, data: bytes) -> Path:
        staged = self.staging_path(key)
        try:
            with staged.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
        return staged

    def _sync(self, directory: Path) -> None:
        """Make the names in a directory durable, at once or by `sync`."""
        if self._unsynced is None:
            _sync(directory)
        else:
            self._unsynced[directory] = None

    def _publish(self, staged: Path, target: Path) -> bool:
        """Rename a staged file unless the target exists."""
        try:
            os.link(staged, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            # Some network and FUSE file systems have no hard links. There, two writers that race
            # within microseconds may both report success; no better primitive exists.
            if target.exists():
                return False
            staged.replace(target)
        else:
            staged.unlink()
        self._sync(target.parent)
        return True


def _get_or_none(get: Callable[[str], bytes], key: str) -> bytes | None:
    try:
        return get(key)
    except FileNotFoundError:
        return None


def _not_a_file(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "it is not a regular file", path)


def _keys_below(directory: str, prefix: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as scan:
            entries = [entry for entry in scan if not entry.name.startswith(".")]
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_file(follow_symlinks=False):
            yield prefix + entry.name
        elif entry.is_dir(follow_symlinks=False):
            yield from _keys_below(entry.path, f"{prefix}{entry.name}/")
        elif entry.is_symlink():
            check_link(Path(entry.path))
            if entry.is_file():
                yield prefix + entry.name


def check_link(path: Path) -> None:
    """Check that a link in a run may be followed.

    Stepscope creates none. Tools that version data replace files by links into their cache, but the
    links of a run from elsewhere could lead to any file of its reader, so they are followed only if
    the reader allows it, and never to directories: those could contain anything, or the run itself.

    Raises:
        UsageError: it may not, or does not lead to a file.
    """
    if not _follows_links():
        raise errors.UsageError(
            f"{path} is a symbolic link, which could lead anywhere, so it is not followed in a "
            f"run. If you trust the run, set {FOLLOW_LINKS_VARIABLE}=1, or copy it with `cp -rL`."
        )
    if not path.is_file():
        raise errors.UsageError(f"{path} is a symbolic link that leads to no file.")


def _follows_links() -> bool:
    return os.environ.get(FOLLOW_LINKS_VARIABLE) == "1"


def make_private_directory(directory: Path) -> None:
    """Create a directory for its owner only, and its parents as the umask allows."""
    if directory.is_dir():
        return
    _make_directory(directory.parent, _sync)
    directory.mkdir(mode=0o700, exist_ok=True)
    _sync(directory.parent)


def _make_directory(directory: Path, sync: Callable[[Path], None]) -> None:
    """Create a directory and its parents so that all their names survive a power loss."""
    if directory.is_dir():
        return
    _make_directory(directory.parent, sync)
    directory.mkdir(exist_ok=True)
    sync(directory.parent)


def _sync(path: Path) -> None:
    """Make the content of a file, or the names in a directory, durable."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
    elif path.is_dir():  # NTFS has a journal of names
        return
    else:
        descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
