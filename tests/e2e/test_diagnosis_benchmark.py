"""The quick scenarios of the verdict benchmark, to detect regressions of its scores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.diagnosis import catalogue
from benchmarks.diagnosis.profiled_script import RECORDED_STEPS
from benchmarks.diagnosis.results import DISTURBED_CORES
from stepscope.run import Run, divide_traces
from stepscope.store import open_run
from tests.support.under_stepscope import E2E, label

pytestmark = [
    pytest.mark.quiet,
    pytest.mark.extended("minutes of jobs; test_verdicts.py has two of their causes"),
]

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1800


def run_benchmark(directory: Path, *options: str) -> dict[str, Any]:
    """Run scenarios and return the results document."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks.diagnosis", *options),
            *("--kept", str(directory / "kept.jsonl"), "--out", str(directory)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    (document,) = directory.glob("diagnosis*.json")
    results: dict[str, Any] = json.loads(document.read_text())
    assert not results["not_scored"], results["not_scored"]
    return results


def select_quick_scenarios() -> list[str]:
    """Select the quick scenarios without those whose only cause `test_verdicts.py` plants."""
    tested = [[label(script, "CAUSE")] for script in (E2E / "faults").glob("*.py")]
    return [
        scenario.name
        for scenario in catalogue.find_scenarios([catalogue.HERE])
        if scenario.label.quick and (scenario.label.healthy or scenario.label.causes not in tested)
    ]


def test_the_quick_scenarios(tmp_path: Path) -> None:
    """90% of suspects and 80% of causes are right, in runs without CPU contention.

    This is less than the targets of the benchmark, because one run per scenario is a small sample.
    """
    names = select_quick_scenarios()
    assert len(names) >= 15
    results = run_benchmark(tmp_path, "--subset", "--no-twins", "--only", *names)
    assert len(results["runs"]) == len(names)
    undisturbed = [
        run for run in results["runs"] if run["outcome"]["outside_cores"] <= DISTURBED_CORES
    ]
    planted = [run for run in undisturbed if run["grade"]["planted"]]
    grades = [run["grade"] for run in planted]
    false_alarms = [
        run["grade"]["false_alarm"] for run in undisturbed if not run["grade"]["planted"]
    ]
    assert sum(grade["suspect_right"] for grade in grades) >= 0.9 * len(grades), grades
    assert sum(grade["cause_right"] for grade in grades) >= 0.8 * len(grades), grades
    assert sum(false_alarms) <= 0.25 * len(false_alarms)
    fixes = [run["outcome"]["answer"]["fixes"] for run in planted]
    predicted = [suggested for suggested in fixes if suggested and suggested[0]["step_ms"]]
    assert len(predicted) >= 0.8 * len(planted) > 5


def test_traces_of_a_scenario_and_of_a_drawn_one(tmp_path: Path) -> None:
    """The harness records a script without stepscope, and the job ends with its trace."""
    results = run_benchmark(
        tmp_path, "--traces", "--only", "gradient_watch", "trace_lone_loader", "cautious_saves",
        *("--seeds", "1", "--keep-runs", str(tmp_path / "runs")),
    )  # fmt: skip
    recorded, *drawn = results["runs"]
    assert recorded["outcome"]["answer"]["suspect"] == "framework_overhead"
    assert recorded["outcome"]["answer"]["cause"] == "host_sync"
    assert recorded["outcome"]["metered"] is None  # the script did not reach its end
    severities = drawn[0]["label"]["severities"]
    assert [run["outcome"]["job"]["severity"] for run in drawn] == severities
    assert all(run["grade"]["cause_right"] for run in drawn)
    assert results["groups"]["all"]["runs"] == 1 + len(severities)
    assert set(results["not_in_traces"]) == {"cautious_saves"}
    (run,) = (tmp_path / "runs").glob("gradient_watch*")
    (divided,) = divide_traces(Run(open_run(run)))
    assert (divided.source, len(divided.steps.names)) == ("named", RECORDED_STEPS)


def test_a_predicted_saving_is_checked_with_the_fixed_twin(tmp_path: Path) -> None:
    results = run_benchmark(tmp_path, "--only", "colour_images", "--seeds", "1")
    (run,) = results["runs"]
    assert run["saving_ratio"] > 0
    check = run["first"]
    assert check["predicted_ms"] < check["measured_ms"]
    assert 0 < check["achieved_ms"] < check["measured_ms"]
