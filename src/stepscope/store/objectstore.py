"""Where the files of a run lie: named objects that are written whole.

Object stores have no append, no rename and no compare-and-swap, so nothing above this file may
need them. A segment is written once and never changed; a manifest is replaced whole; whoever
must be first uses put-if-absent.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from stepscope.errors import UsageError

__all__ = [
    "LocalStore",
    "ObjectStore",
    "check_key",
    "check_prefix",
    "is_hidden",
    "is_remote",
    "open_store",
]

_REMOTE_SCHEMES = ("s3:", "gs:", "az:")
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class ObjectStore(Protocol):
    """Named objects. A key is relative, with '/' between its parts; no part begins with '.'.

    Every put is atomic and durable: a reader sees the whole object or none of it, and what was
    acknowledged survives the death of the machine.
    """

    def list(self, prefix: str) -> Iterable[str]:
        """Keys below `prefix`, sorted; the prefix is empty or ends with '/'."""
        ...

    def get(self, key: str) -> bytes:
        """The object; FileNotFoundError when there is none."""
        ...

    def get_all(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Several, in less time than one after the other; None for one that there is not."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Writes or replaces an object."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Writes an object that is not there yet; False, and no change, when it is."""
        ...

    def staging_path(self, key: str) -> Path:
        """A new empty local file, to be filled and handed to `put_file` for the same key."""
        ...

    def put_file(self, key: str, local_path: Path) -> bool:
        """Moves a finished local file into place; False, and no change, when the key exists."""
        ...

    def delete(self, key: str) -> None:
        """Removes an object; removing one that is not there is no error."""
        ...

    def local_path(self, key: str) -> Path:
        """Where an object that never changes can be opened as a file."""
        ...

    def local_paths(self, keys: Sequence[str]) -> Sequence[Path]:
        """The same of several, in less time than one after the other.

        Raises:
            FileNotFoundError: one of them had to be looked for, and is no longer there.
        """
        ...

    def at_hand(self, key: str) -> bool:
        """Whether the file that `local_path` has named can still be opened."""
        ...

    def look_again(self) -> None:
        """Whatever is remembered of listings is forgotten."""
        ...


def is_remote(location: str | Path) -> bool:
    """Whether a location is the URL of an object store, not a directory."""
    scheme, slashes, _ = str(location).partition("//")
    return bool(slashes) and scheme in _REMOTE_SCHEMES


def open_store(location: str | Path) -> ObjectStore:
    """The store at a path or URL; it need not exist yet.

    Raises:
        UsageError: it is no URL of a bucket, or the library that reads one is not installed.
    """
    if is_remote(location):
        from stepscope.store.remote import RemoteStore  # only who names a bucket needs it

        return RemoteStore(str(location))
    if isinstance(location, Path) and location.parts[:1] and location.parts[0] in _REMOTE_SCHEMES:
        raise UsageError(f"{location}: give the URL of a bucket as a string; a Path breaks it.")
    return LocalStore(Path(location))


def is_hidden(key: str) -> bool:
    """Whether a part of a name begins with '.': then it is nobody's key."""
    return any(part.startswith(".") for part in key.split("/"))


def check_key(key: str) -> None:
    """ValueError for what cannot be a key."""
    if is_hidden(key) or "" in key.split("/"):
        raise ValueError(f"not a key: {key!r}")


def check_prefix(prefix: str) -> None:
    """ValueError for what cannot be a prefix."""
    if prefix and not prefix.endswith("/"):
        raise ValueError(f"a prefix ends with '/': {prefix!r}")


class LocalStore:
    """A directory. Files being written have names that begin with '.', and `list` skips them.

    A writer that dies leaves such a file behind: it holds nothing that was acknowledged and
    disturbs nobody.
    """

    def __init__(self, root: Path) -> None:
        # Absolute, so that a later chdir of the process does not move the run.
        self.root = root.absolute()

    def __repr__(self) -> str:
        return f"LocalStore({str(self.root)!r})"

    def list(self, prefix: str) -> Iterable[str]:
        """Keys below `prefix`, sorted."""
        check_prefix(prefix)
        return sorted(_keys_below(self.root / prefix, prefix))

    def get(self, key: str) -> bytes:
        """The object; FileNotFoundError when there is none."""
        return self._path(key).read_bytes()

    def get_all(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """Several; None for one that there is not."""
        return [_or_none(self.get, key) for key in keys]

    def put(self, key: str, data: bytes) -> None:
        """Writes or replaces an object."""
        staged = self._stage(key, data)
        try:
            staged.replace(self._path(key))
        finally:
            staged.unlink(missing_ok=True)
        _sync_directory(staged.parent)

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Writes an object that is not there yet."""
        return self._place(self._stage(key, data), self._path(key))

    def staging_path(self, key: str) -> Path:
        """A new empty file in the directory of the object, so that moving it is a rename."""
        target = self._path(key)
        _make_directory(target.parent)
        staged = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
        staged.touch(exist_ok=False)
        return staged

    def put_file(self, key: str, local_path: Path) -> bool:
        """Moves a finished local file, one that `staging_path` made for this key, into place."""
        with local_path.open("rb") as finished:
            os.fsync(finished.fileno())
        return self._place(local_path, self._path(key))

    def delete(self, key: str) -> None:
        """Removes an object if it is there."""
        self._path(key).unlink(missing_ok=True)

    def local_path(self, key: str) -> Path:
        """The file itself."""
        return self._path(key)

    def local_paths(self, keys: Sequence[str]) -> Sequence[Path]:
        """The files themselves, whether they are there or not."""
        return [self._path(key) for key in keys]

    def at_hand(self, key: str) -> bool:
        """Whether the file is there."""
        return self._path(key).exists()

    def look_again(self) -> None:
        """Nothing is remembered."""

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

    @staticmethod
    def _place(staged: Path, target: Path) -> bool:
        """Gives a staged file its name unless the name is taken; the staged name is gone after."""
        try:
            os.link(staged, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            # Some network and FUSE file systems have no hard links. There two writers that race
            # within microseconds could both believe they were first; nothing better exists.
            if target.exists():
                return False
            staged.replace(target)
        finally:
            staged.unlink(missing_ok=True)
        _sync_directory(target.parent)
        return True


def _or_none(get: Callable[[str], bytes], key: str) -> bytes | None:
    try:
        return get(key)
    except FileNotFoundError:
        return None


def _keys_below(directory: Path, prefix: str) -> Iterator[str]:
    try:
        with os.scandir(directory) as scan:
            entries = [entry for entry in scan if not entry.name.startswith(".")]
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir():
            yield from _keys_below(Path(entry.path), f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name


def _make_directory(directory: Path) -> None:
    """Makes a directory with its parents so that all their names survive a power loss."""
    if directory.is_dir():
        return
    _make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
