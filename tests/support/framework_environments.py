"""Environments of frameworks that are too large for that of the tests: `make frameworks`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / ".venv-frameworks"
VARIABLE = "STEPSCOPE_FRAMEWORKS"
"""Environment variable with another directory of environments."""


def find_python(name: str) -> str:
    """Return the interpreter of an environment; skips the test without one."""
    python = Path(os.environ.get(VARIABLE, ROOT)) / name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{name} is not installed: make frameworks")
    return str(python)
