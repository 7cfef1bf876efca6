"""`stepscope compare --fail-if`: exit statuses, what is said, and what is written for CI."""

from __future__ import annotations

import json
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from stepscope.testing import RunBuilder
from tests.support.command import run_command


def job(
    path: Path,
    *,
    wait: float,
    seed: int,
    cores: float = 8,
    count: int = 90,
    torch: str = "2.9",
    late_ms: float = 0,
) -> Path:
    run = RunBuilder(path, cores=cores)
    rank = run.rank(workers=1, versions={"torch": torch})
    rank.pause(late_ms)
    rank.draw(
        f"wait=0 {wait} | forward 12 | backward 20 | optimizer 8", count, jitter=0.1, seed=seed
    )
    run.metric("memory_used_bytes", 1 << 30)
    return run.write()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("compared")
    job(directory / "base", wait=10, seed=1)
    job(directory / "again", wait=10.1, seed=2)
    job(directory / "slow", wait=20, seed=3)
    job(directory / "small", wait=10, seed=4, cores=4)
    job(directory / "short", wait=20, seed=5, count=4)
    RunBuilder(directory / "empty").write()
    return directory


def compare(runs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command(runs, "compare", *arguments)


def test_statuses(runs: Path) -> None:
    passed = compare(runs, "base", "again", "--fail-if", "step_time>+5%")
    assert (passed.returncode, passed.stderr) == (0, "")
    assert "1 of 1 conditions passed" in passed.stdout
    failed = compare(runs, "base", "slow", "--fail-if", "step_time>+5%")
    assert (failed.returncode, failed.stderr) == (3, "")
    assert "failed: step_time>+5%" in failed.stdout
    assert "beyond noise; interval" in " ".join(failed.stdout.split())
    without = compare(runs, "base", "slow")
    assert without.returncode == 0


@pytest.mark.parametrize(
    ("run_name", "failed", "passed", "unknown"),
    [
        (
            "slow",
            "data_wait>+3ms step_time_p50>+5% step_time>55ms throughput<-5%",
            "forward>+5% step_time_p95>1s step_time<55ms memory>+1% communication>+1ms "
            "communication>1ms",
            "",
        ),
        ("again", "", "step_time>+0.01%", ""),
        ("slow", "", "", "gpu_busy<-5pp kernel>+5%"),
        ("short", "", "", "step_time>+5%"),
    ],
)
def test_conditions(runs: Path, run_name: str, failed: str, passed: str, unknown: str) -> None:
    outcomes = {"failed": failed.split(), "passed": passed.split(), "unknown": unknown.split()}
    arguments = [
        word for items in outcomes.values() for item in items for word in ("--fail-if", item)
    ]
    done = compare(runs, "base", run_name, *arguments, "--json")
    conditions = json.loads(done.stdout)["gate"]["conditions"]
    assert [(item["outcome"], item["condition"]) for item in conditions] == [
        (outcome, item) for outcome, items in outcomes.items() for item in items
    ]
    assert done.returncode == (3 if failed else 4 if unknown else 0)


def test_within_noise_counts_only_when_it_is_asked_for(runs: Path) -> None:
    arguments = ("base", "again", "--fail-if", "step_time>+0.01%")
    lenient, strict = compare(runs, *arguments), compare(runs, *arguments, "--strict")
    assert (lenient.returncode, strict.returncode) == (0, 3)
    assert ", within noise;" in lenient.stdout
    assert "within noise, which counts with --strict" in " ".join(strict.stdout.split())
    # Noise that hides what is asked for is said.
    absolute = ("base", "again", "--fail-if", "step_time>+0.001ms", "--fail-if", "step_time>+90%")
    for done in (lenient, compare(runs, *absolute)):
        assert done.returncode == 0
        assert " ".join(done.stdout.split()).count("above the threshold of the condition") == 1


def test_other_work_is_not_compared(runs: Path) -> None:
    arguments = ("base", "small", "--fail-if", "step_time>+5%")
    refused = compare(runs, *arguments)
    assert refused.returncode == 4
    text = " ".join(refused.stdout.split())
    assert "hardware differ; if that is intended, add --allow-different hardware" in text
    assert "cores available" in text
    for allowed in ("model,hardware", "all"):
        assert compare(runs, *arguments, "--allow-different", allowed).returncode == 0
    assert compare(runs, *arguments, "--allow-different", "software").returncode == 4
    assert compare(runs, "base", "small").returncode == 0


def test_runs_without_steps(runs: Path) -> None:
    done = compare(runs, "base", "empty", "--fail-if", "step_time>+5%", "--json")
    assert done.returncode == 4
    (condition,) = json.loads(done.stdout)["gate"]["conditions"]
    assert condition["said"] == "the steps of the two runs cannot be compared"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--fail-if", "speed>+5%"],
            "Unknown metric 'speed' in 'speed>+5%'; available metrics: step_time",
        ),
        (["--fail-if", "step_time>+5 parsec"], "Invalid unit 'parsec' in"),
        (["--strict"], "--strict requires a condition; add one with --fail-if."),
        (["--allow-different", "model"], "--allow-different requires a condition"),
        (
            ["--fail-if", "step_time>+5%", "--allow-different", "weather"],
            "Unknown group 'weather'; available groups: model, batch, precision",
        ),
        (["--json", "--markdown", "-"], "Only one of --json, --markdown and --junit"),
        (["--junit", "-", "--markdown", "-"], "Only one of --json, --markdown and --junit"),
        (["--junit", "nowhere/x.xml"], "nowhere is not a directory; create it first."),
    ],
)
def test_one_sentence(runs: Path, arguments: list[str], says: str) -> None:
    done = compare(runs, "base", "slow", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_junit(runs: Path) -> None:
    arguments = ["step_time>+5%", "forward>+5%", "gpu_busy<-5pp"]
    options = [word for item in arguments for word in ("--fail-if", item)]
    done = compare(runs, "base", "slow", *options, "--junit", "result.xml")
    assert done.returncode == 3
    assert "data wait" in done.stdout, "the text is printed all the same"
    suites = ET.parse(runs / "result.xml").getroot()  # noqa: S314 - our own
    (suite,) = suites
    assert (suites.tag, suite.tag) == ("testsuites", "testsuite")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == ["the runs did the same work", *arguments]
    outcomes = [[child.tag for child in case if child.tag != "system-out"] for case in cases]
    assert outcomes == [[], ["failure"], [], ["error"]]
    for element in (suites, suite):
        counts = [element.get(name) for name in ("tests", "failures", "errors")]
        assert counts == ["4", "1", "1"]
    failure = cases[1].find("failure")
    assert "beyond noise" in str(failure.get("message"))
    assert all(case.get("classname") and case.get("time") for case in cases)


def test_junit_of_other_work(runs: Path) -> None:
    done = compare(runs, "base", "small", "--fail-if", "step_time>+5%", "--junit", "-")
    assert done.returncode == 4
    contract = ET.fromstring(done.stdout).find("*/testcase/failure")  # noqa: S314
    assert contract.get("message") == "they differ in hardware"
    assert "hardware: cores available: 8 -> 4" in str(contract.text)


def test_markdown(runs: Path) -> None:
    done = compare(runs, "base", "slow", "--fail-if", "step_time>+5%", "--markdown", "-")
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    assert lines[0].startswith("### Steps are 1.2")
    assert any(line.startswith("| `step_time>+5%` | ❌ | failed |") for line in lines)
    assert any(line.startswith("| data wait |") and line.endswith("| **yes** |") for line in lines)
    heads = [
        directory for directory, line in enumerate(lines) if set(line) <= {"|", " ", "-"} and line
    ]
    for directory in heads:
        assert (
            lines[directory - 1].count("|")
            == lines[directory].count("|")
            == lines[directory + 1].count("|")
        )
    same = compare(runs, "base", "again", "--markdown", "pull.md")
    assert same.returncode == 0
    assert (runs / "pull.md").read_text().startswith("### No change of the step beyond noise")


def test_a_price_for_runs_without_one(runs: Path) -> None:
    """At a dollar a second, to the cent, in all that is said of cost."""
    priced = ("--usd-per-hour", "3600")
    done = compare(runs, "base", "slow", *priced, "--fail-if", "cost>1", "--json")
    result = json.loads(done.stdout)
    figures = {item["name"]: item for item in result["figures"]}
    wall, cost = figures["wall time"], figures["cost"]
    assert [cost[run] for run in ("base", "other")] == [
        round(wall[run] / 1e9, 2) for run in ("base", "other")
    ]
    worth = {item["name"]: item for item in result["before_after"]["rows"]}["cost"]
    assert (worth["before"], worth["after"]) == (cost["base"], cost["other"])
    assert result["before_after"]["before_price"]["said"] == "set on the command line"
    assert (done.returncode, result["gate"]["outcome"]) == (3, "failed")
    assert "$" not in compare(runs, "base", "slow").stdout
    wrong = compare(runs, "base", "slow", "--instance-type", "q9.nano")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "no price found for q9.nano" in wrong.stderr


def test_directories_of_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # long paths would break headings
    for number in range(3):
        job(tmp_path / "old" / str(number), wait=10, seed=number)
        job(tmp_path / "new" / str(number), wait=20, seed=10 + number)
    done = compare(tmp_path, "old", "new", "--fail-if", "step_time>+5%")
    assert done.returncode == 3, done.stderr
    text = " ".join(done.stdout.split())
    assert text.count("(represents 3 runs)") == 2
    assert "change all runs 90% interval" in text
    assert "beyond noise" in text
    single = compare(tmp_path, "old/0", "new", "--json")
    payload = json.loads(single.stdout)
    assert (payload["base"]["of_runs"], payload["other"]["of_runs"]) == (1, 3)
    assert (payload["steps"]["interval_percent"], payload["steps"]["noise_of"]) == (95, "steps")
    assert "all runs" not in compare(tmp_path, "old/0", "new", "--fail-if", "step_time>+5%").stdout
    assert (
        json.loads(compare(tmp_path, "old", "new", "--json").stdout)["steps"]["noise_of"] == "runs"
    )
    empty = compare(tmp_path, "old", str(tmp_path))
    assert (empty.returncode, empty.stderr.count("\n")) == (2, 1)
    assert "is not a run" in empty.stderr


def test_runs_recorded_in_turn_are_compared_in_pairs(tmp_path: Path) -> None:
    """On a machine that becomes slower and slower, twice as slow in the end."""
    for number in range(6):
        for directory, wait in (("old", 20), ("new", 24)):
            slower = 1 + number / 5
            job(
                tmp_path / directory / str(number),
                wait=wait * slower,
                seed=number,
                late_ms=1000 * number + 500 * (directory == "new"),
            )
    arguments = ("old", "new", "--fail-if", "data_wait>+5%")
    assert " over all runs, beyond noise;" in " ".join(compare(tmp_path, *arguments).stdout.split())
    done = compare(tmp_path, *arguments, "--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["steps"]["noise_of"]) == (3, "pairs")
    assert "pair" in result["steps"]["noise"]
    (waiting,) = [part for part in result["steps"]["parts"] if part["name"] == "data_wait"]
    assert waiting["low_ns"] > 0
    assert waiting["estimate_ns"] == pytest.approx(4e6 * 1.5, rel=0.1)
