"""Output without a reader: `stepscope run … | head -1` leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from stepscope.schema import JobState
from stepscope.store import open_run
from tests.support.job_control import STEPSCOPE


def run_into_closed_pipe(
    arguments: list[str], **environment: str
) -> subprocess.CompletedProcess[bytes]:
    """Run stepscope with stdout and stderr in a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [*STEPSCOPE, *arguments],
            stdout=writer,
            stderr=writer,
            env={**os.environ, **environment},
            timeout=60,
        )
    finally:
        os.close(writer)


def test_a_closed_pipe_leaves_no_spool_and_keeps_the_exit_status(tmp_path: Path) -> None:
    run, spools, temporary = tmp_path / "run", tmp_path / "spools", tmp_path / "temporary"
    temporary.mkdir()
    options = ["--out", str(run), "--spool", str(spools)]
    done = run_into_closed_pipe(
        ["run", *options, "--", "sh", "-c", "exit 7"], TMPDIR=str(temporary)
    )
    assert done.returncode == 7
    (status,) = open_run(run).statuses().values()
    assert (status.state, status.exit_code) == (JobState.FAILED, 7)
    assert list(spools.iterdir()) == []
    assert list(temporary.iterdir()) == []
