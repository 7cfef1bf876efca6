"""Libraries that only some users need: the extras of the package."""

from __future__ import annotations

import importlib
from typing import Any

from stepscope.errors import UsageError


def require(library: str, *, extra: str, otherwise: str = "") -> Any:
    """Import a library.

    Args:
        library: its module.
        extra: the extra of stepscope that installs it.
        otherwise: what can be done without it.

    Raises:
        UsageError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module(library)
    except ImportError:
        said = f"{library} is not installed: pip install 'stepscope[{extra}]'"
        raise UsageError(f"{said}, or {otherwise}." if otherwise else f"{said}.") from None
