"""Optional third-party modules, imported where they are used and named when they are absent."""

from __future__ import annotations

import importlib
from types import ModuleType

from stepscope.errors import MissingDataError


def optional(module: str, *, needed_for: str, install: str) -> ModuleType:
    """Import *module*, or raise a `MissingDataError` that says what to install and why."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingDataError(
            f"{needed_for} needs the Python module {module!r}, which cannot be imported "
            f"({error}); install it with: {install}"
        ) from None
