"""`stepscope rules` from outside: what it prints, and its exit status."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from stepscope.rules.pages import HEADINGS
from stepscope.rules.registry import BUILT_IN_RULES as RULES
from stepscope.testing import RunBuilder
from tests.support.command import run_command

LOADING = "wait 600 | forward 120 | backward 200 | optimizer 80"
COMPUTING = "wait 50 | forward 300 | backward 450 | optimizer 200"


def rules(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command(Path.cwd(), "rules", *map(str, arguments))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Make a run that waits for data, and one that does not."""
    directory, run_paths = tmp_path_factory.mktemp("runs"), {}
    for name, step in (("loading", LOADING), ("computing", COMPUTING)):
        run = RunBuilder(directory / name, sampling_ms=1000)
        run.rank(0).draw(step, 60)
        run_paths[name] = run.write()
    return run_paths


def test_list_names_every_rule() -> None:
    listed = rules("list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [r.__name__ for r in RULES]
    payload = json.loads(rules("list", "--json").stdout)
    assert [rule["rule"] for rule in payload] == [rule.__name__ for rule in RULES]


def test_explain_shows_the_page() -> None:
    shown = rules("explain", "low_gpu_utilization")
    assert shown.returncode == 0
    assert shown.stdout.startswith("# LowGPUUtilization\n")
    assert all(f"## {heading}" in shown.stdout for heading in HEADINGS)
    assert json.loads(rules("explain", "CPUBottleneck", "--json").stdout)["rule"] == "CPUBottleneck"


@pytest.mark.seed("DIAG-06")
def test_check_exits_with_3_when_a_rule_fires(runs: dict[str, Path]) -> None:
    checked = rules("check", runs["loading"])
    assert checked.returncode == 3, checked.stderr
    assert "IssuesFound" in checked.stdout
    assert "waiting for batches takes 60.0% of step time" in checked.stdout
    assert "NotApplicable" in checked.stdout
    assert "no GPU samples" in checked.stdout


def test_check_exits_with_0_when_none_fires(runs: dict[str, Path]) -> None:
    checked = rules("check", runs["computing"])
    assert checked.returncode == 0, checked.stderr
    assert " IssuesFound" not in checked.stdout


def test_check_as_json_has_debuggers_names(runs: dict[str, Path]) -> None:
    checked = rules("check", runs["loading"], "--rule", "dataloader_bottleneck", "--json")
    assert checked.returncode == 3
    payload = json.loads(checked.stdout)
    (finding,) = payload["findings"]
    assert payload["fired"] == ["DataloaderBottleneck"]
    assert finding["status"] == "IssuesFound"
    assert finding["RuleTriggered"] >= 1
    assert finding["Violations"] == finding["Datapoints"] == 50  # past the first ten
    assert "threshold:20" in finding["RuleParameters"].splitlines()
    assert finding["Details"]["ranks"]["rank 0"]


def test_parameters_from_the_command_line_and_a_file(runs: dict[str, Path], tmp_path: Path) -> None:
    config = tmp_path / "rules.toml"
    config.write_text("[DataloaderBottleneck]\nthreshold = 70\n")
    only = ("--rule", "DataloaderBottleneck")
    assert rules("check", runs["loading"], *only, "--config", config).returncode == 0
    again = ("--config", config, "--set", "DataloaderBottleneck.threshold=30")
    assert rules("check", runs["loading"], *only, *again).returncode == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rule", "Nonsense"), "CPUBottleneck"),
        (("--set", "StepOutlier.deviation=3"), "stddev, mode, n_outliers"),
        (("--config", "absent.toml"), "absent.toml"),
    ],
)
def test_mistakes_are_one_sentence(
    runs: dict[str, Path], arguments: tuple[str, ...], words: str
) -> None:
    checked = rules("check", runs["computing"], *arguments)
    assert checked.returncode == 2
    assert words in checked.stderr
    assert "Traceback" not in checked.stderr
    assert not checked.stdout
