"""Name of the user whose request a run records."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """Return the name of the user of this process, or the number where there is no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return f"user {os.getuid()}"
