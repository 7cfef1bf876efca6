"""Training is the same to the last bit, whatever the job's objects or the probes do.

An object that hangs in code that stepscope calls in the thread of the job cannot be interrupted, so
stepscope calls no such code: the jobs count its calls.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Spool

SCRIPT = Path(__file__).parent / "jobs" / "hostile_training.py"
NOTE = re.compile("stopped recording (?P<probe>.+) after an error: ")
REQUESTED = ["repr"]
"""Calls that the script asks for: the labels of its annotations."""


@pytest.fixture(scope="module")
def bare(module_spool: Spool) -> list[str]:
    """Lines of the training without recording."""
    directory = str(module_spool.path.parent)
    done = module_spool.run_torch(SCRIPT, "none", directory, STEPSCOPE_SPOOL="")
    return done.stdout.splitlines()[:-1]


def test_no_code_of_the_objects_of_the_job_is_called(
    spool: Any, bare: list[str], tmp_path: Path
) -> None:
    done = spool.run_torch(SCRIPT, "objects raise", str(tmp_path), STEPSCOPE_STRICT="0")
    *lines, calls = done.stdout.splitlines()
    assert lines == bare
    assert ast.literal_eval(calls) == REQUESTED
    recorded = spool.drain()
    assert recorded.notes == []
    assert len(recorded.of("forward")) == len(recorded.of("optimizer")) == 24
    (sizes,) = {fact["batch_size"] for fact in recorded.facts("dataloader")}
    assert sizes is None  # computed by code of the job


@pytest.mark.parametrize(
    "fault", ["probes raise", "probes give garbage", "probes allocate and raise"]
)
def test_every_failing_probe_is_disabled_and_noted_once(
    spool: Any, bare: list[str], tmp_path: Path, fault: str
) -> None:
    done = spool.run_torch(SCRIPT, fault, str(tmp_path), STEPSCOPE_STRICT="0")
    *lines, calls = done.stdout.splitlines()
    assert lines == bare
    failed = set(ast.literal_eval(calls)).difference(REQUESTED)
    assert {
        "backward passes",
        "batch fetches",
        "checkpoint saves",
        "data loader descriptions",
        "forward passes",
        "optimizer descriptions",
        "optimizer steps",
        "waits for data",
    } <= failed
    noted = [NOTE.match(note) for note in spool.drain().notes]
    # Its thread may fail after the calls were printed.
    threads = {"stack samples of the start"}
    probes = [match["probe"] for match in noted if match]
    assert sorted({*probes} - threads) == sorted(failed - threads)
    assert len(set(probes)) == len(probes)
    block_count, kept_count = map(int, done.stderr.split()[-2:])
    assert kept_count == 0, "nothing keeps what a failed probe has allocated"
    assert block_count == (len(failed) if "allocate" in fault else 0)
