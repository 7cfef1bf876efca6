"""Files that users name and that appear when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends well, and else is gone.

    It is opened at once: where nothing can be written, OSError comes before the work. Links are
    followed. What is no regular file, such as a pipe or a terminal, is written to.
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
    finally:
        unfinished.unlink(missing_ok=True)
