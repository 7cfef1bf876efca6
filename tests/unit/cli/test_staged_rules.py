"""Rules of a run that is recorded for an object store, whose user knows its URL only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from stepscope.budget import Budget
from stepscope.cli import watching
from stepscope.cli.job_run import JobRun
from stepscope.cli.rule_options import RulePlan
from stepscope.cli.staging import Staging
from stepscope.cli.suggestion import suggest
from stepscope.cli.watching import Watching
from stepscope.monitor import JobExit, UploadEnd
from stepscope.testing import RunBuilder
from stepscope.watch import WatchConfig

URL = "s3://bucket/a"


@pytest.fixture
def run(tmp_path: Path) -> JobRun:
    directory = RunBuilder(tmp_path / "staging").write()
    return JobRun(directory, Staging(URL, directory, None))


def test_rules_that_outlast_the_job(
    run: JobRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    messages: list[WatchConfig] = []

    def start_slow(module: str, *, log: int, message: bytes) -> subprocess.Popen[bytes]:
        messages.append(msgspec.json.decode(message, type=WatchConfig))
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        return subprocess.Popen(command, stdin=subprocess.PIPE)

    monkeypatch.setattr(watching, "start_beside", start_slow)
    monkeypatch.setattr(watching, "RULES_TIMEOUT_S", 0.0)
    rules = Watching(run, RulePlan(), tmp_path / "stop", Budget())
    rules.companion.keep(1)
    process = rules.companion.process
    assert process is not None
    try:
        rules.conclude(JobExit(exit_code=0, signal=None), complete=True)
        assert [(config.run, config.shown) for config in messages] == [(str(run.location), URL)]
        check = suggest("rules", "check", URL)
        assert f"Rules are still being evaluated. Later: {check}" in capsys.readouterr().err
        assert rules.is_left_running
        end = UploadEnd(url=URL, complete=True, remaining_count=0, remaining_bytes=0)
        run.conclude(True, end, is_read=True)
        stays = f"The recording stays in {run.location} while rules are evaluated."
        assert stays in capsys.readouterr().err
        assert suggest("recover", URL) in Staging(URL, run.location, None).recovery
        assert run.location.exists()
        run.conclude(True, end)
        assert not run.location.exists()
    finally:
        process.communicate(b"")
