"""The package of examples/plugin, installed: its rule, its importer and its exporter."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stepscope.testing import RunBuilder
from tests.support.command import run_process

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of the module path with the package."""
    target = tmp_path_factory.mktemp("plugin")
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--target",
        str(target),
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(PLUGIN)], check=True)
    return target


@pytest.fixture(scope="module")
def slowing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = RunBuilder(tmp_path_factory.mktemp("runs") / "slowing")
    builder.rank(0).draw("forward 20 | optimizer 5", 60).draw("forward 30 | optimizer 5", 60)
    builder.rank(1).draw("forward 20 | optimizer 5", 120)
    return builder.write()


def test_the_rule_fires_on_the_rank_that_slows_down(
    installed: Path, slowing: Path, tmp_path: Path
) -> None:
    arguments = ("rules", "check", str(slowing), "--rule", "StepsSlowDown", "--json")
    done = run_process(tmp_path, *arguments, PYTHONPATH=str(installed))
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["status"], finding["ranks"]) == ("IssuesFound", ["rank 0"]), done.stderr
    assert finding["sentences"] == ["rank 0: steps became 40% slower"]
    explained = run_process(
        tmp_path, "rules", "explain", "StepsSlowDown", PYTHONPATH=str(installed)
    )
    assert "StepsSlowDown.threshold" in explained.stdout or "threshold" in explained.stdout


def test_the_importer_reads_what_no_other_does(installed: Path, tmp_path: Path) -> None:
    lines = [{"time": 1_700_000_000.5 + n, "step": n, "loss": 1 / (n + 1)} for n in range(5)]
    text = "\n".join(map(json.dumps, lines)) + '\n{"time": 17000'
    (tmp_path / "m.jsonl").write_text(text)
    without = run_process(tmp_path, "import", "m.jsonl", "-o", "none")
    assert without.returncode == 2
    done = run_process(tmp_path, "import", "m.jsonl", "-o", "run", PYTHONPATH=str(installed))
    assert done.returncode == 0, done.stderr
    assert "1 file of metrics, 5 values in run" in done.stdout
    assert "1 damaged lines" in done.stderr


def test_the_exporter_writes_the_steps(installed: Path, slowing: Path, tmp_path: Path) -> None:
    arguments = ("export", str(slowing), "--to", "steps_csv", "-o", "s.csv", "--rank", "0")
    done = run_process(tmp_path, *arguments, PYTHONPATH=str(installed))
    assert "s.csv: " in done.stdout, done.stderr
    with (tmp_path / "s.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["rank"] for row in rows} == {"0"}
    times = np.array([int(row["wall_ns"]) for row in rows])
    assert done.stdout == f"s.csv: {len(rows)} steps\n"
    assert set(times[5:50].tolist()) == {25_000_000}


def test_its_importer_fulfils_the_contract(installed: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir",
               str(PLUGIN), "-c", "/dev/null", str(PLUGIN / "tests")]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
