"""Training is the same to the last bit, whatever the job's objects or the probes do.

An object that hangs in code that stepscope calls in the thread of the job cannot be interrupted, so
stepscope calls no such code: the jobs count its calls.
"""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:  # importing it would take seconds
    pytest.skip("needs PyTorch", allow_module_level=True)

SCRIPT = Path(__file__).parent / "jobs" / "hostile_training.py"
REQUESTED = ["repr"]
"""Calls that the script asks for: the labels of its annotations."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Lines of the training without recording."""
    directory = tmp_path_factory.mktemp("bare")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "none", str(directory)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[:-1]


@pytest.mark.parametrize("fault", ["objects raise", "objects give garbage"])
def test_no_code_of_the_objects_of_the_job_is_called(
    spool: Any, bare: list[str], tmp_path: Path, fault: str
) -> None:
    done = spool.run(SCRIPT.read_text(), fault, str(tmp_path), STEPSCOPE_STRICT="0")
    *lines, calls = done.stdout.splitlines()
    assert lines == bare
    assert ast.literal_eval(calls) == REQUESTED
    recorded = spool.drain()
    assert recorded.notes == []
    assert len(recorded.of("forward")) == len(recorded.of("optimizer")) == 24
    (sizes,) = {fact["batch_size"] for fact in recorded.facts("dataloader")}
    assert sizes is None  # computed by code of the job


@pytest.mark.parametrize("fault", ["probes raise", "probes give garbage"])
def test_every_failing_probe_is_disabled_and_noted_once(
    spool: Any, bare: list[str], tmp_path: Path, fault: str
) -> None:
    done = spool.run(SCRIPT.read_text(), fault, str(tmp_path), STEPSCOPE_STRICT="0")
    *lines, calls = done.stdout.splitlines()
    assert lines == bare
    failed = set(ast.literal_eval(calls))
    assert {
        "backward passes",
        "batch fetches",
        "checkpoint saves",
        "data loader descriptions",
        "forward passes",
        "model descriptions",
        "optimizer descriptions",
        "optimizer steps",
        "waits for data",
    } <= failed
    notes = spool.drain().notes
    for name in failed:
        assert sum(f"stopped recording {name} after an error: " in note for note in notes) == 1
