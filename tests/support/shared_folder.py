"""Folder of what is expensive to make, for all tests and worker processes of a session."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable
from pathlib import Path


class SharedFolder:
    """Runs and other files by name, each made once. Tests read them only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self, name: str, make: Callable[[Path], object]) -> Path:
        """Return the path of a name; `make` creates a file or a directory there if it is new.

        Another process that needs it meanwhile waits.
        """
        path = self.path / name / "run"
        path.parent.mkdir(parents=True, exist_ok=True)
        with (path.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                with tempfile.TemporaryDirectory(dir=path.parent) as directory:
                    make(Path(directory, "run"))
                    Path(directory, "run").rename(path)
        return path
