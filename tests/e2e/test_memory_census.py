"""Census of a running job: what holds its memory, in the process that trains and in a worker."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.store import open_run
from tests.support import waiting
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, STEPSCOPE

SCRIPT = str(E2E / "windows" / "leaking.py")
wait_until = functools.partial(waiting.wait_until, timeout_s=90.0)


@pytest.mark.extended("a job; tests/unit/capture/test_census.py takes censuses in its process")
@pytest.mark.slow("a job of seconds, recorded and not")
def test_holders_are_named_and_training_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    run, stop = tmp_path / "run", tmp_path / "stop"
    with subprocess.Popen(
        [*STEPSCOPE, "run", "--quiet", "--out", str(run), "--", sys.executable, SCRIPT, str(stop)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as job:
        try:
            wait_until(lambda: (run / "nodes").exists() and open_run(run).has("spans"))
            done = subprocess.run(
                [*STEPSCOPE, "capture", str(run), "--memory", "--json"],
                capture_output=True,
                text=True,
                timeout=JOB_TIMEOUT_S,
                check=True,
            )
        finally:
            stop.touch()
        recorded, _ = job.communicate(timeout=JOB_TIMEOUT_S)
    censuses = {census["unit"]: census for census in json.loads(done.stdout)["censuses"]}
    losses = censuses["step"]["holders"][0]
    assert (losses["name"], losses["line"], losses["has_graph"]) == ("losses", 40, True)
    assert losses["items_per_step"] == 1
    cache = censuses["batch"]["holders"][0]
    assert (cache["name"], cache["line"], cache["items_per_step"]) == ("Images.cache", 26, 4)
    assert cache["bytes_per_step"] == pytest.approx(4 * 3 * 32 * 32 * 4, rel=0.1)
    bare = subprocess.run(
        [sys.executable, SCRIPT, str(stop)], capture_output=True, text=True, check=True
    )
    assert recorded == bare.stdout
