"""Plan of the runs of the benchmark."""

from __future__ import annotations

from benchmarks.diagnosis import __main__ as benchmark
from benchmarks.diagnosis.catalogue import HERE, find_scenarios


def plan(*arguments: str) -> list[tuple[str, float]]:
    options = benchmark._parser().parse_args(arguments)
    options.seeds = options.seeds or 1
    scenarios, _ = benchmark.select_scenarios(options)
    return [(job.scenario, job.severity) for job in benchmark.plan_jobs(scenarios, options)]


def test_drawn_traces_have_a_run_per_severity_whatever_the_seeds() -> None:
    drawn = [one for one in find_scenarios([HERE]) if one.label.drawn == "traces"]
    expected = sorted((one.name, severity) for one in drawn for severity in one.label.severities)
    for seeds in ("1", "5"):
        assert sorted(plan("--traces", "--drawn", "--seeds", seeds)) == expected
    assert all(len(one.label.severities) == 3 for one in drawn)


def test_recorded_traces_have_a_run_per_seed() -> None:
    name = "steady_cnn"
    assert len(plan("--traces", "--only", name, "--seeds", "2")) == 2
