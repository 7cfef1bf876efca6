"""Entry points of installed packages: views, rules, importers and adapters that they offer.

Standard library only: a job and every command look for them when they start.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of a group.

    Importing `importlib.metadata` takes ten times as long as a look for the name of a group that
    no installed package has.
    """
    if not any(_has_group(path, group) for path in _entry_point_files()):
        return ()
    from importlib import metadata

    return metadata.entry_points(group=group)


def _entry_point_files() -> Iterator[str]:
    for directory in sys.path:
        try:
            names = os.listdir(directory or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")):
                yield os.path.join(directory, name, "entry_points.txt")


def _has_group(path: str, group: str) -> bool:
    try:
        with open(path, "rb") as file:
            return f"[{group}]".encode() in file.read()
    except OSError:
        return False
