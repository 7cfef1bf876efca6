"""Comparison of real jobs: the gate passes the same work and fails slower work."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.support.under_stepscope import JOB_TIMEOUT_S, STEPSCOPE, run_under

pytestmark = [
    pytest.mark.quiet,
    pytest.mark.extended("a minute of jobs; the gate is in tests/unit/comparison"),
]

JOB = Path(__file__).parents[2] / "benchmarks" / "workloads" / "gated.py"
JOBS = {
    "base": ("--steps", "900"),
    "again": ("--steps", "100"),
    "slower": ("--steps", "450", "--repeat", "36"),  # more blocks, with the same parameters
    "larger": ("--steps", "40", "--batch", "128"),
}
WINDOWS = {"base": 800, "slower": 400}
"""First step of a window, some seconds after the start: windows are polled once a second."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("gated")
    for name, options in JOBS.items():
        first = WINDOWS.get(name)
        window = ("--start-step", str(first), "--num-steps", "4") if first else ("--window", "off")
        arguments = ("--no-rules", *window)
        done = run_under(directory / name, sys.executable, str(JOB), *options, options=arguments)
        assert done.code == 0, done.stderr
    return directory


def compare(runs: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [*STEPSCOPE, "compare", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=JOB_TIMEOUT_S,
        cwd=runs,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def test_the_same_work_again_passes(runs: Path) -> None:
    """The threshold of +100% is above the noise of a shared machine."""
    code, comparison = compare(runs, "base", "again", "--fail-if", "step_time>+100%")
    assert code == 0, comparison["gate"]
    assert {group["group"]: group["standing"] for group in comparison["contract"]} == dict.fromkeys(
        ("model", "batch", "precision", "hardware", "software"), "same"
    )
    assert all(group["base_digest"] == group["other_digest"] for group in comparison["contract"])


@pytest.mark.seed("PTP-11")
def test_more_work_fails_and_is_attributed(runs: Path) -> None:
    code, comparison = compare(runs, "base", "slower", "--fail-if", "step_time>+20%")
    assert code == 3, comparison["gate"]
    assert {group["standing"] for group in comparison["contract"]} == {"same"}
    contributions = comparison["contributions"]
    assert sum(part["change_ns"] for part in contributions["parts"]) == contributions["change_ns"]
    parts = {part["part"]: part for part in contributions["parts"]}
    for part in parts.values():
        assert sum(row["change_ns"] for row in part["rows"]) + part["rest_ns"] == part["change_ns"]
    forward = parts["forward"]
    assert forward["split_by"] == "calls"
    rows = [row for row in forward["rows"] if row["kind"] == "host call"]
    largest = max(rows, key=lambda row: row["change_ns"])
    assert (largest["name"], largest["path"], largest["status"]) == ("aten::linear", [], "added")
    assert (largest["base_calls"], largest["other_calls"]) == (0, 36)


def test_different_work_is_refused_unless_allowed(runs: Path) -> None:
    arguments = ("base", "larger", "--fail-if", "step_time>+1000%")
    code, comparison = compare(runs, *arguments)
    assert code == 4
    (batch,) = [group for group in comparison["contract"] if group["standing"] == "different"]
    assert batch["group"] == "batch"
    differences = {
        difference["name"]: (difference["base"], difference["other"])
        for difference in batch["differences"]
    }
    assert differences == {
        "DataLoader batch size": ("64", "128"),
        "input 0": ("64 x 256", "128 x 256"),
    }
    assert compare(runs, *arguments, "--allow-different", "batch")[0] == 0


def test_files_for_a_pull_request(runs: Path) -> None:
    files = ("--markdown", "comment.md", "--junit", "result.xml")
    code, _ = compare(runs, "base", "slower", "--fail-if", "step_time>+20%", *files)
    assert code == 3
    suite = ET.parse(runs / "result.xml").getroot().find("testsuite")  # noqa: S314 - written by stepscope
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    comment = (runs / "comment.md").read_text()
    assert "❌ **failed**: failed: step_time>+20%" in comment
    assert "**Contributions**" in comment
