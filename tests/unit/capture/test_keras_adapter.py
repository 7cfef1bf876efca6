"""Adapter of Keras with a release that lacks what it patches. Keras itself: tests/frameworks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

BACKEND = """
class backend:
    @staticmethod
    def backend():
        return "jax"
"""


def write_keras(directory: Path, version: str) -> None:
    """Write a package `keras` without any class that the adapter patches."""
    (directory / "keras").mkdir()
    (directory / "keras" / "__init__.py").write_text(f"__version__ = '{version}'\n{BACKEND}")


@pytest.fixture
def record(spool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a version of Keras in a job, which must go on; returns the notes of the run."""

    def run(version: str) -> list[str]:
        write_keras(tmp_path, version)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        code = "import keras, stepscope; stepscope.step(); print('trained')"
        done = spool.run(code, STEPSCOPE_STRICT="")
        assert (done.stdout, done.stderr) == ("trained\n", "")
        return list(spool.drain().notes)

    return run


def test_each_part_that_misses_its_class_says_so(record: Any) -> None:
    notes = record("3.99.0")
    failures = [note.partition(" after an error: AttributeError") for note in notes]
    assert sorted(
        probe.removeprefix("stopped recording ") for probe, error, _ in failures if error
    ) == [
        "epochs and callbacks of Keras",
        "modes and checkpoints of Keras",
        "optimizer steps of Keras",
        "settings of Keras",
    ]
    losses = [note.partition(": Keras 3.99.0 has no ") for note in notes]
    assert sorted(loss for loss, reason, _ in losses if reason) == [
        "Batches of a PyDataset are not recorded",
        "Optimizer steps outside of fit are not recorded",
        "Waits for batches are not recorded",
        "Waits where Keras reads logs are not recorded",
    ]
