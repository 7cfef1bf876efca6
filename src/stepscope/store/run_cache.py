"""Cache of runs that were imported from trace files, so that a command can work on a trace.

A cached run is complete and never changes. Several processes share it.
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

from stepscope.schema import SourceFile
from stepscope.store.cache import (
    RECENT_S,
    cache_home,
    cache_limit_bytes,
    make_private_directory,
    write_errors,
)
from stepscope.store.revision import size_of

_ABANDONED_S = 86_400
"""Age at which the rest of an interrupted import is removed."""


def describe_source(path: Path) -> SourceFile:
    """Describe the present state of a file.

    Raises:
        OSError: it does not exist.
    """
    status = path.stat()
    return SourceFile(
        path=os.path.realpath(path), size_bytes=status.st_size, changed_ns=status.st_mtime_ns
    )


class CachedRun:
    """Run of exactly these files, present or not.

    Args:
        sources: the imported files.
        version: of stepscope; another version may import the files differently.
    """

    def __init__(self, sources: Iterable[SourceFile], version: str) -> None:
        key = [version, *(f"{s.path}\0{s.size_bytes}\0{s.changed_ns}" for s in sources)]
        digest = hashlib.sha256("\n".join(key).encode("utf-8", "surrogateescape")).hexdigest()
        self._root = cache_home() / "runs"
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
