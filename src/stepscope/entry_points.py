"""Entry points of installed packages: views, rules, importers and adapters that they offer.

Standard library only: a job and every command look for them when they start.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint
    from typing import Any


class BuiltIn:
    """Entry point of this package, of the same use as those of others.

    It costs no import of `importlib.metadata`, and is that of the code that runs even where an
    older version is installed.
    """

    def __init__(self, name: str, value: str) -> None:
        self.name = name
        self.value = value
        """Module and object, joined by a colon."""

    def load(self) -> Any:
        """Import the module, and return the object."""
        from pkgutil import resolve_name

        return resolve_name(self.value)


_STANDARD_LIBRARY = f"python{sys.version_info.major}{sys.version_info.minor}.zip"


def entry_points(group: str) -> Iterable[EntryPoint]:
    """Return the entry points of a group.

    Importing `importlib.metadata` takes ten times as long as a look for the name of a group that
    no installed package has.
    """
    if not any(_may_offer(directory, group) for directory in sys.path):
        return ()
    from importlib import metadata

    return metadata.entry_points(group=group)


def _may_offer(directory: str, group: str) -> bool:
    """Return False if no package in an entry of the module path has a group."""
    try:
        names = os.listdir(directory or ".")
    except NotADirectoryError:  # a zip file
        return not directory.endswith(_STANDARD_LIBRARY)
    except OSError:
        return False
    return any(
        _has_group(os.path.join(directory, name, "entry_points.txt"), group)
        for name in names
        if name.endswith((".dist-info", ".egg-info", "EGG-INFO"))
    )


def _has_group(path: str, group: str) -> bool:
    try:
        with open(path, "rb") as file:
            return f"[{group}]".encode() in file.read()
    except OSError:
        return False
