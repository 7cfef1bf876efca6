"""The clocks of a job, which a test can step."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SITE = Path(__file__).with_name("stepped_clock")


class SteppingClock:
    """Clocks of the processes that are started while it is in the environment."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        python_path = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
        monkeypatch.setenv("CLOCK_STEP", str(path))
        monkeypatch.setenv("PYTHONPATH", python_path)

    def step(self, *, wall_s: float, monotonic_s: float = 0) -> None:
        """Step the clocks at once in all processes."""
        staged = self._path.with_suffix(".new")
        staged.write_text(f"{wall_s} {monotonic_s}")
        staged.replace(self._path)
