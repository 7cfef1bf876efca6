"""Adapter of Keras with versions that it cannot record. Keras itself: tests/frameworks."""

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


def test_keras_2_is_too_old(record: Any) -> None:
    assert record("2.15.0") == ["Keras 2.15.0 is not recorded: Keras 3 or later is required."]


def test_each_probe_that_misses_its_class_says_so(record: Any) -> None:
    notes = record("3.99.0")
    probes = [
        note.removeprefix("stopped recording ").partition(" after an error: KeyError")[0]
        for note in notes
    ]
    assert sorted(probes) == [
        "batches of a PyDataset",
        "epochs and callbacks of Keras",
        "modes and checkpoints of Keras",
        "optimizer steps of Keras",
        "waits for data of Keras",
        "waits of Keras for the device",
    ]
