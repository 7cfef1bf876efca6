"""Import of optional libraries: the extras of the package."""

from __future__ import annotations

import importlib
from typing import Any

from stepscope.errors import UsageError


def require(library: str, *, extra: str, alternative: str = "") -> Any:
    """Import a library.

    Args:
        library: name of the module, which may be part of a package.
        extra: extra of stepscope that installs it.
        alternative: a command or option that works without it, for the error message.

    Raises:
        UsageError: the library is not installed; the message has the install command.
    """
    try:
        return importlib.import_module(library)
    except ImportError:
        package = library.partition(".")[0]
        hint = f"{package} is not installed: pip install 'stepscope[{extra}]'"
        raise UsageError(f"{hint}, or {alternative}." if alternative else f"{hint}.") from None
