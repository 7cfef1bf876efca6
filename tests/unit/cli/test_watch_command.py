"""`stepscope watch` on a finished run: the picture, once, and as JSON."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from stepscope.testing import RunBuilder
from tests.support.command import run_command

LOADING = "wait 600 | forward 120 | backward 200 | optimizer 80"


def watch(run: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run_command(run.parent, "watch", str(run), *options)


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = RunBuilder(tmp_path_factory.mktemp("runs") / "loading", sampling_ms=1000)
    run.rank(0).draw(LOADING, 60)
    run.metric("gpu_busy_ratio", 0.25, device="0")
    return run.write()


def test_a_finished_run_is_shown_once(loading: Path) -> None:
    shown = watch(loading)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("drawn  Completed") == 1
    assert "step 60 · 1 steps/s · data wait 60% of step time · GPU 25%" in shown.stdout
    assert "Bottleneck: data pipeline, 60% of step time." in shown.stdout
    assert "DataloaderBottleneck  rank 0: waiting for batches takes 60.0% of" in shown.stdout
    assert "stepscope diagnose RUN" in shown.stdout  # what to do


def test_as_json_it_is_one_line_per_scan(loading: Path) -> None:
    shown = watch(loading, "--json")
    assert shown.returncode == 0, shown.stderr
    (line,) = shown.stdout.splitlines()
    result = json.loads(line)
    assert result["state"] == "Completed"
    assert result["progress"] == "ended"
    assert result["suspect"] == "data_pipeline"
    assert result["pace"]["data_wait_ratio"] == pytest.approx(0.6)
    assert result["rule_statuses"]["IssuesFound"] == len(result["findings"])
    assert sum(result["rule_statuses"].values()) >= 20


def test_looking_changes_nothing(loading: Path) -> None:
    before = sorted(loading.rglob("*"))
    watch(loading)
    assert sorted(loading.rglob("*")) == before


def test_no_run(tmp_path: Path) -> None:
    shown = watch(tmp_path / "absent")
    assert shown.returncode == 2
    assert "does not exist" in shown.stderr
