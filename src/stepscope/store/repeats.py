"""Repeated runs of one program: the runs in a directory."""

from __future__ import annotations

from pathlib import Path

from stepscope.store import layout
from stepscope.store.location import is_remote, open_store


def repeated_runs(location: str | Path) -> list[str]:
    """Return the runs directly below a location, by name; the location itself if there are none.

    Raises:
        UsageError: the location is an invalid bucket URL.
        OSError: a bucket cannot be reached.
    """
    runs = _runs_below_url(str(location)) if is_remote(location) else _runs_below(Path(location))
    return runs or [str(location)]


def _runs_below(path: Path) -> list[str]:
    if not path.is_dir() or (path / layout.RUN_KEY).exists():
        return []
    return sorted(str(child) for child in path.iterdir() if (child / layout.RUN_KEY).is_file())


def _runs_below_url(url: str) -> list[str]:
    keys = list(open_store(url).list(""))
    if layout.RUN_KEY in keys:
        return []
    base = url.rstrip("/")
    return [
        f"{base}/{key.removesuffix('/' + layout.RUN_KEY)}"
        for key in keys
        if key.endswith("/" + layout.RUN_KEY) and key.count("/") == 1
    ]
