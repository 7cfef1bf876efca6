"""Import of optional libraries: the extras of the package."""

from __future__ import annotations

import importlib
from typing import Any

from stepscope import errors


def require(module: str, *, extra: str, alternative: str = "") -> Any:
    """Import a library.

    Args:
        module: its name, or that of a part of it.
        extra: extra of stepscope that installs it.
        alternative: a command or option that works without it, for the error message.

    Raises:
        UsageError: the library is not installed; the message has the install command.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        library = module.partition(".")[0]
        hint = f"{library} is not installed: pip install 'stepscope[{extra}]'"
        raise errors.UsageError(
            f"{hint}, or {alternative}." if alternative else f"{hint}."
        ) from None
