"""File systems of one mebibyte, to fill them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def mount_small_disk(directory: Path, *options: str) -> Iterator[Path]:
    """Mount a file system of one mebibyte for the time of a test; skip the test where this user
    may not.

    Args:
        options: further options of tmpfs.
    """
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(("size=1m", *options)), "tmpfs", str(directory)],
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)
