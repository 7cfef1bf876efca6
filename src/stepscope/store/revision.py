"""Revision and size of a run, and the cache of runs that were imported from trace files.

With a cached run a command can work on a trace. It is complete and never changes, and several
processes share it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope import errors, schema
from stepscope.store import layout
from stepscope.store.cache import (
    RECENT_S,
    cache_home,
    cache_limit_bytes,
    make_private_directory,
    write_errors,
)
from stepscope.store.local import LocalStore, check_link
from stepscope.store.location import is_remote

if TYPE_CHECKING:
    from stepscope.store.bucket import Entry

QUIET_NS = 31_000_000_000
"""Time without a change after which the revision changes once more: a job whose monitor has sent no
heartbeat for half a minute counts as lost, and that is a change of state."""
_HEX_DIGITS = 13
"""Of the hash: 52 bits, which JavaScript's doubles hold as well."""


def revision_of(location: str | Path) -> int:
    """Return a number that changes with every addition to a run and every replacement in it.

    It changes once more when the run has not changed for `QUIET_NS`. Nothing in a run changes in
    place: files are created under new names or replaced by a rename, and both change the time of
    their directory. Stored results (`store.results`) do not count. For a bucket it takes one
    listing of the run: a request per thousand objects.

    Raises:
        NotARunError: the run does not exist or was removed.
        UsageError: it contains a symbolic link that may not be followed.
        OSError: a bucket cannot be reached.
    """
    if is_remote(location):
        from stepscope.store.remote import RemoteStore  # 10 ms, for buckets alone

        entries = RemoteStore(str(location)).entries()
        if not any(entry.key == layout.RUN_KEY for entry in entries):
            raise _no_run(location)
        return revision_of_entries(entries)
    manifest = LocalStore(Path(location)).local_path(layout.RUN_KEY)
    root = manifest.parent
    try:
        created_ns = manifest.stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        raise _no_run(location) from None
    results = str(root / layout.RESULTS)
    below = [one for one in _directories(str(root)) if not one[0].startswith(results)]
    directories = sorted([("", created_ns), *below])
    return _hash(
        (f"{path}\0{changed_ns}\0" for path, changed_ns in directories),
        latest_ns=max(changed_ns for _, changed_ns in directories),
    )


class RunWatch:
    """Revision of a local run in a list of many: a number that changes with its manifest, its
    labels and the state of its job on each node, and once more after `QUIET_NS`.

    Directories of tables, which are most, are not read: while tables grow, monitors send
    heartbeats. Without a change, a reading takes one `stat` per node and one of the labels.

    Args:
        location: directory of the run.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._directories: list[str] = []
        self._times_ns: list[int] = []
        self._quiet_ns = 0
        """Time from which the run is quiet, epoch nanoseconds; 0 once it is."""
        self._revision = 0

    def read(self, created_ns: int, changed_ns: int, now_ns: int) -> int:
        """Read the revision.

        Args:
            created_ns: time of the run's manifest.
            changed_ns: time of the change (ctime) of the run's directory.
            now_ns: current time.

        Raises:
            UsageError: there is a symbolic link that may not be followed.
            OSError: the run was removed.
        """
        try:
            times_ns = [created_ns, changed_ns, *map(_change_ns, self._directories)]
        except FileNotFoundError:  # labels or a node were removed
            times_ns = []
        if times_ns != self._times_ns or 0 < self._quiet_ns < now_ns:
            paths = [
                e.path for e in _list_entries(f"{self._location}/{layout.NODES}") if e.is_dir()
            ]
            labels = f"{self._location}/{layout.LABELS}"
            self._directories = [*sorted(paths), *([labels] if os.path.isdir(labels) else [])]  # noqa: PTH112
            watched_ns = [created_ns, *map(_change_ns, self._directories)]
            self._times_ns = [created_ns, changed_ns, *watched_ns[1:]]
            latest_ns = max(watched_ns)
            self._quiet_ns = 0 if now_ns - latest_ns > QUIET_NS else latest_ns + QUIET_NS
            self._revision = _hash(map(str, watched_ns), latest_ns=latest_ns)
        return self._revision


def _change_ns(path: str) -> int:
    return os.stat(path).st_ctime_ns  # noqa: PTH116 - a Path takes twice the time


def revision_of_entries(entries: Iterable[Entry]) -> int:
    """Return the revision of a run in a bucket from its listing; keys are relative to the run."""
    ordered = sorted(entry for entry in entries if not entry.key.startswith(layout.RESULTS))
    return _hash(
        (f"{key}\0{size}\0{tag}\0{changed_ns}\0" for key, size, tag, changed_ns in ordered),
        latest_ns=max((entry.changed_ns for entry in ordered), default=0),
    )


def size_of(location: str | Path) -> int:
    """Return the total size of a run's files in bytes, without stored results.

    Raises:
        OSError: a bucket cannot be reached.
    """
    if is_remote(location):
        from stepscope.store.remote import RemoteStore

        entries = RemoteStore(str(location)).entries()
        return sum(e.size_bytes for e in entries if not e.key.startswith(layout.RESULTS))
    store = LocalStore(Path(location))
    keys = [key for key in store.list("") if not key.startswith(layout.RESULTS)]
    return sum(_file_bytes(path) for path in store.local_paths(keys))


def _no_run(location: str | Path) -> errors.NotARunError:
    return errors.NotARunError(f"{location} is not a run, or it was removed.")


def _hash(parts: Iterable[str], *, latest_ns: int) -> int:
    is_quiet = time.time_ns() - latest_ns > QUIET_NS
    digest = hashlib.blake2b(b"quiet" if is_quiet else b"")
    for part in parts:
        digest.update(part.encode("utf-8", "surrogateescape"))
    return int(digest.hexdigest()[:_HEX_DIGITS], 16)


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # merged into another file since the listing
        return 0


def _directories(directory: str) -> Iterator[tuple[str, int]]:
    """Yield the directories below this one, with the times of their last change."""
    for entry in _list_entries(directory):
        if entry.is_dir():
            try:
                yield entry.path, entry.stat().st_mtime_ns
            except FileNotFoundError:
                continue
            yield from _directories(entry.path)


def _list_entries(directory: str) -> list[os.DirEntry[str]]:
    """List what is directly in a directory; nothing of one that was removed.

    Raises:
        UsageError: there is a symbolic link that may not be followed.
    """
    try:
        with os.scandir(directory) as scan:
            entries = [entry for entry in scan if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):  # removed since the scan of its parent
        return []
    for entry in entries:
        if entry.is_symlink():
            check_link(Path(entry.path))
    return entries


_ABANDONED_S = 86_400
"""Age at which the rest of an interrupted import is removed."""


def describe_source(path: Path) -> schema.SourceFile:
    """Describe the present state of a file.

    Raises:
        OSError: it does not exist.
    """
    status = path.stat()
    return schema.SourceFile(
        path=os.path.realpath(path), size_bytes=status.st_size, changed_ns=status.st_mtime_ns
    )


def import_cache() -> Path:
    """Return the directory of the cached imports."""
    return cache_home() / "runs"


class CachedRun:
    """Run of exactly these files, present or not.

    Args:
        sources: the imported files.
        version: of stepscope; another version may import the files differently.
    """

    def __init__(self, sources: Iterable[schema.SourceFile], version: str) -> None:
        key = [version, *(f"{s.path}\0{s.size_bytes}\0{s.changed_ns}" for s in sources)]
        digest = hashlib.sha256("\n".join(key).encode("utf-8", "surrogateescape")).hexdigest()
        self._root = import_cache()
        self.path = self._root / digest[:32]

    def use(self) -> bool:
        """Mark the run as used now; return False if it is not present."""
        with contextlib.suppress(OSError):  # missing, or in a read-only directory
            os.utime(self.path)
        return self.path.is_dir()

    @contextlib.contextmanager
    def create(self) -> Iterator[Path]:
        """Yield a path for the run, which is moved to its place unless an error occurs.

        Raises:
            OSError: the cache cannot be written, or an error of the block.
        """
        with write_errors(self._root, "imports"):
            make_private_directory(self._root)
            scratch_directory = tempfile.TemporaryDirectory(prefix=".", dir=self._root)
        with scratch_directory as scratch:
            staged = Path(scratch, self.path.name)
            yield staged
            try:
                staged.rename(self.path)
            except OSError:
                if not self.path.is_dir():  # else another process has imported the same files
                    raise
        self._evict_others()

    def _evict_others(self) -> None:
        """Remove the least recently used runs, down to the limit of the cache."""
        now, limit = time.time(), cache_limit_bytes()
        runs = sorted((path.stat().st_mtime, path) for path in self._root.iterdir())
        sizes = {path: size_of(path) for _, path in runs}
        total = sum(sizes.values())
        for used_s, path in runs:
            is_part = path.name.startswith(".")
            if path == self.path or now - used_s < (_ABANDONED_S if is_part else RECENT_S):
                continue
            if is_part or total > limit:
                shutil.rmtree(path, ignore_errors=True)
                total -= sizes[path]
