"""Directories without permissions, also when root runs the tests."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

UNPRIVILEGED_UID = 65534


@contextmanager
def restricted(directories: Iterable[Path], mode: int) -> Iterator[None]:
    """Change the mode of directories, and drop root's right to ignore it."""
    changed = list(directories)
    for directory in changed:
        directory.chmod(mode)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(UNPRIVILEGED_UID)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        for directory in changed:
            directory.chmod(0o755)


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """Directory that every user can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
