"""Atomic writing of output files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` when the block succeeds, and is removed if it fails.

    The file is opened immediately, so OSError is raised before the work if the directory is not
    writable; it names `path`, not the unfinished file. Links are followed. A pipe, terminal or
    other special file is written in place.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with path.open("wb") as file:
            yield file
        return
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            yield file
        unfinished.replace(target)
    except OSError as error:
        if error.filename == str(unfinished):
            error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # as creating it failed
            unfinished.unlink()
