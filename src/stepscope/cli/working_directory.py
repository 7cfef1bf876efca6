"""Working directory of this process."""

from __future__ import annotations

import os
from pathlib import Path


def working_directory() -> Path:
    """Return the working directory; if it was deleted, the path that it had."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.environ.get("PWD", "/"))
