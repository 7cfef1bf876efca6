"""`stepscope recover URL` beside a job that records for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from stepscope.monitor.spool_lock import SpoolLock
from tests.support.buckets import TestBucket
from tests.support.command import run_command
from tests.support.staged_runs import INFO, Staged


def test_the_recording_of_a_job_that_is_starting_stays(tmp_path: Path, bucket: TestBucket) -> None:
    """Its monitor has the spool, and has written no status yet."""
    spool = tmp_path / "stepscope-spool"
    info = msgspec.structs.replace(INFO, options={"spool": str(spool)})
    staged = Staged(tmp_path / "staging", bucket.url("runs/a"), info)

    def recover() -> dict[str, Any]:
        done = run_command(tmp_path, "recover", str(staged.directory), "--json")
        recovery: dict[str, Any] = json.loads(done.stdout)
        assert recovery["upload"]["complete"], done.stderr
        return recovery

    lock = SpoolLock(spool)
    lock.create_directory()
    assert lock.take()
    recovery = recover()
    assert (recovery["state"], recovery["complete"]) == (None, False)
    assert "is storing the records; wait until it has ended" in recovery["reason"]
    assert staged.directory.exists()
    assert spool.exists()
    lock.release()
    assert recover()["complete"]
    assert not staged.directory.exists()
