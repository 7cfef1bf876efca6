"""Files that were written a while ago."""

from __future__ import annotations

import os
from pathlib import Path


def written_before(path: Path) -> Path:
    """Return a run whose files are older than a tick of their clock."""
    for file in path.rglob("*"):
        changed_ns = file.stat().st_mtime_ns - 10**9
        os.utime(file, ns=(changed_ns, changed_ns))
    return path
