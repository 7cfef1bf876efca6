"""The Python API on real jobs: a growing run, and the phases of a job that wrote them down."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.errors import JobEndedError, WaitTimeoutError
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, run_under, training

pytestmark = pytest.mark.extended("a long job; its interface is in tests/unit/access")

EPOCHS, STEPS = 3, 20
"""Those of the script."""
CLOCKS_NS = 10**6
"""Limit of the difference between the clock of the script, which is adjusted all the time, and that
of the run, which counts from its start on."""


@pytest.mark.seed("DBU-01")
def test_waiting_for_a_growing_run(tmp_path: Path) -> None:
    with training(tmp_path / "run", tmp_path) as launcher:
        run = stepscope.open(tmp_path / "run", timeout_s=JOB_TIMEOUT_S)
        run.wait_for_system_metrics("cpu_busy_ratio", timeout_s=JOB_TIMEOUT_S)
        assert len(run.system(metric="cpu_busy_ratio"))
        run.wait_for_spans(["forward", "backward"], timeout_s=JOB_TIMEOUT_S)
        run.wait_for_steps(10, timeout_s=JOB_TIMEOUT_S)
        step_count = len(run.step_timeline().ranks[0].step)
        assert step_count >= 10
        assert run.state == "InProgress"
        assert len(run.framework(kind="backward")) >= 10
        with pytest.raises(WaitTimeoutError, match="no span of checkpoint after 0 s"):
            run.wait_for_spans("checkpoint", timeout_s=0)
        run.wait_for_steps(step_count + 5, timeout_s=JOB_TIMEOUT_S)
        assert len(run.step_timeline().ranks[0].step) >= step_count + 5
        (tmp_path / "until").touch()
        run.wait_for_end(timeout_s=JOB_TIMEOUT_S)
        assert launcher.wait(JOB_TIMEOUT_S) == 0
    assert run.state == "Completed"
    with pytest.raises(JobEndedError, match=r"has ended \(Completed\) and has no span of checkp"):
        run.wait_for_spans("checkpoint")


@pytest.fixture(scope="module")
def phased(tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenRun, list[Any]]:
    """A finished job, and the times that its script wrote."""
    directory = tmp_path_factory.mktemp("phased")
    script = [sys.executable, str(E2E / "access" / "phased.py"), str(directory / "periods.json")]
    job = run_under(directory / "run", *script)
    assert job.code == 0, job.stderr
    return stepscope.open(job.run), json.loads((directory / "periods.json").read_text())


def times_of(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["start_ns"], row["end_ns"]) for row in rows]


@pytest.mark.seed("DBU-10")
def test_phases_are_those_of_the_script(phased: tuple[OpenRun, list[Any]]) -> None:
    run, periods = phased
    evaluations = [(start, end) for name, start, end in periods if name == "eval"]
    trainings = [(start, end) for name, start, end in periods if name == "train"]
    measured = times_of(run.phase_intervals("eval").rows())
    assert len(measured) == EPOCHS
    for (start, end), (first, last) in zip(measured, evaluations, strict=True):
        assert first - CLOCKS_NS <= start < end <= last + CLOCKS_NS
        assert end - start > 0.8 * (last - first)
    forward = times_of(run.phase_intervals("forward").rows())
    backward = times_of(run.phase_intervals("backward").rows())
    assert len(backward) == EPOCHS * STEPS
    for start, end in forward + backward:
        assert any(
            first - CLOCKS_NS <= start and end <= last + CLOCKS_NS for first, last in trainings
        )
    job = run.job_statistics()
    prepared = next(end - start for name, start, end in periods if name == "before")
    finished = next(end - start for name, start, end in periods if name == "after")
    assert job.initialization_ns is not None
    assert job.initialization_ns > prepared
    assert job.finalization_ns is not None
    assert job.finalization_ns > finished
    shares = (job.initialization_ratio, job.training_ratio, job.finalization_ratio)
    assert sum(share for share in shares if share is not None) == pytest.approx(1)
    modes = {row["mode"] for row in run.framework(kind="forward").rows()}
    assert modes == {"train", "eval"}
    evaluated = [row for row in run.framework(kind="forward").rows() if row["mode"] == "eval"]
    assert len(evaluated) == EPOCHS * STEPS


@pytest.mark.seed("DBU-10")
def test_utilization_is_that_of_the_samples(phased: tuple[OpenRun, list[Any]]) -> None:
    run, _ = phased
    phases = ["initialization", "training", "finalization", "train", "eval", "forward"]
    samples = run.system(metric="cpu_busy_ratio").rows()
    rows = run.utilization("cpu_busy_ratio", phase=phases).rows()
    assert [row["phase"] for row in rows] == phases
    for row in rows:
        intervals = times_of(run.phase_intervals(row["phase"]).rows())
        values = [
            sample["value"]
            for sample in samples
            if any(start <= sample["t_ns"] < end for start, end in intervals)
        ]
        assert row["count"] == len(values)
        if values:
            figures = (row["mean"], row["p50"], row["p95"], row["max"])
            expected = (np.mean(values), *np.percentile(values, [50, 95]), max(values))
            assert figures == pytest.approx(expected)
        else:
            assert row["mean"] is None
    assert sum(row["count"] for row in rows[:3]) > 0


@pytest.mark.seed("DBU-03")
def test_search_is_filtering(phased: tuple[OpenRun, list[Any]]) -> None:
    run, periods = phased
    _, start, end = next(period for period in periods if period[0] == "eval")
    rows = [row for row in run.framework().rows() if row["end_ns"] is not None]
    for inside, condition in {
        "any": lambda r: r["start_ns"] < end and (r["end_ns"] > start or r["start_ns"] >= start),
        "start": lambda r: start <= r["start_ns"] < end,
        "end": lambda r: start <= r["end_ns"] < end,
    }.items():
        selected = run.framework(start=start, end=end, inside=inside).rows()  # type: ignore[arg-type]
        finished = [row for row in selected if row["end_ns"] is not None]
        assert finished == [row for row in rows if condition(row)]
        assert finished
    pattern = re.compile("Seq.*")
    matching = run.framework(name=pattern).rows()
    assert matching == [r for r in run.framework().rows() if pattern.fullmatch(r["name"] or "")]
    assert matching


@pytest.mark.seed("DBU-13")
def test_python_profile_by_mode(phased: tuple[OpenRun, list[Any]], tmp_path: Path) -> None:
    run, _ = phased
    script_functions = {"compute_loss", "evaluate", "write_results"}

    def functions(**selection: Any) -> set[str]:
        rows = run.python_profile(**selection).rows()
        assert {(row["calls"], row["profiler"]) for row in rows} <= {(None, "stepscope")}
        return script_functions & {row["function"] for row in rows if row["own_count"]}

    assert functions() == script_functions
    assert functions(period="initialization") == set()  # the sampler starts with the training
    assert functions(period="finalization") == {"write_results"}
    assert functions(modes="train") == {"compute_loss"}
    assert functions(modes="eval") == {"evaluate"}
    path = run.python_profile(modes="train").write_html(tmp_path / "profile.html")
    assert "compute_loss" in path.read_text()


@pytest.mark.seed("DBU-12")
def test_timeline_of_some_steps(phased: tuple[OpenRun, list[Any]], tmp_path: Path) -> None:
    run, _ = phased
    exported = {}
    for source in ("framework", "system"):
        path = tmp_path / f"{source}.json"
        run.export_timeline(path, steps=(2, 5), sources=source)
        exported[source] = json.loads(path.read_text())["traceEvents"]
    passes = [e for e in exported["framework"] if e["ph"] == "X" and e["name"] == "backward"]
    assert len(passes) == 3
    assert not [event for event in exported["framework"] if event["ph"] == "C"]
    assert not [event for event in exported["system"] if event["ph"] == "X"]
