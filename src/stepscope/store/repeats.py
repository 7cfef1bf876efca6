"""Several runs of one program, given by the directory that holds them."""

from __future__ import annotations

from pathlib import Path

from stepscope.store import layout
from stepscope.store.objectstore import is_remote, open_store


def repeated_runs(location: str | Path) -> list[str]:
    """The place itself where it is a run or holds none; else the runs right below it, by name.

    Raises:
        UsageError: it is no URL of a bucket.
        OSError: a bucket cannot be reached.
    """
    below = _below_url(str(location)) if is_remote(location) else _below(Path(location))
    return below or [str(location)]


def _below(path: Path) -> list[str]:
    if not path.is_dir() or (path / layout.RUN_KEY).exists():
        return []
    return sorted(str(each) for each in path.iterdir() if (each / layout.RUN_KEY).is_file())


def _below_url(url: str) -> list[str]:
    keys = list(open_store(url).list(""))
    if layout.RUN_KEY in keys:
        return []
    base = url.rstrip("/")
    return [
        f"{base}/{key.removesuffix('/' + layout.RUN_KEY)}"
        for key in keys
        if key.endswith("/" + layout.RUN_KEY) and key.count("/") == 1
    ]
