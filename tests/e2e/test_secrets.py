"""Secrets of a job stay out of its run, and the run stays with its owner."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiers import extend_all_but
from tests.support.under_stepscope import JOB_TIMEOUT_S, STEPSCOPE

SECRET = "squirrel" + "7nuts"
ARGUMENTS = [
    "--db-pass",
    SECRET,
    "-p",
    SECRET,
    f"+secrets.db={SECRET}",
    f'{{"password": "{SECRET}"}}',
    f"postgresql://ml:{SECRET}@db/ml",
    f"https://files.example.com/x?sig={SECRET}",
    f"https://{SECRET}@files.example.com/x",
    "--pad-token",
    "harmless-word",
]


@pytest.mark.parametrize(
    "options",
    extend_all_but([[]], [[], ["--share"]], "another job with the same secrets"),
    ids=["private", "shared"],
)
def test_secrets_and_owner_of_a_run(tmp_path: Path, options: list[str]) -> None:
    run = tmp_path / "runs" / "job"
    job = [sys.executable, "-c", "import sys", *ARGUMENTS]
    ended = subprocess.run(
        [*STEPSCOPE, "run", "--no-rules", *options, "--out", str(run), "--", *job],
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        umask=0o022,
    )
    assert ended.returncode == 0
    assert stat.S_IMODE(run.stat().st_mode) == (0o755 if options else 0o700)
    files = [path for path in run.rglob("*") if path.is_file()]
    assert list(run.glob("processes/*.json"))
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert "harmless-word" in (run / "run.json").read_text()
    assert SECRET not in ended.stdout + ended.stderr
