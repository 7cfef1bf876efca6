"""Callbacks, early stopping, the classes for scikit-learn, and a running job of XGBoost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.analysis import Steps
from stepscope.run import Run, list_boosted_models, read_round_scalars
from stepscope.store import open_run
from stepscope.watch import measure_pace
from tests.support.job_control import STEPSCOPE
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, FinishedJob, run_under
from tests.support.waiting import wait_until

pytest.importorskip("xgboost")

pytestmark = pytest.mark.extended(
    "more ways into XGBoost; test_boosting.py has a job of the adapter"
)
TENSORS = ("--tensors", "feature_importance,trees,labels,predictions")


def run_both(directory: Path, script: str) -> tuple[FinishedJob, Any, Any]:
    """Run a script without and under stepscope; returns what it wrote each time."""
    path, bare, watched = E2E / "scripts" / script, directory / "bare", directory / "watched"
    command = [sys.executable, str(path), "--out"]
    subprocess.run([*command, str(bare)], check=True, capture_output=True, timeout=JOB_TIMEOUT_S)
    job = run_under(directory / "run", *command, str(watched), options=TENSORS)
    assert job.code == 0, job.stderr
    return job, json.loads(bare.read_bytes()), json.loads(watched.read_bytes())


def metric(run: Run, number: int, name: str) -> tuple[list[int], list[float]]:
    """Return rounds and values of a metric of a model."""
    model = next(model for model in list_boosted_models(run) if model.fact.number == number)
    (series,) = [one for one in read_round_scalars(run, model) if one.name == name]
    assert series.step is not None
    return series.step.tolist(), series.value.tolist()


@pytest.fixture(scope="module")
def callbacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[FinishedJob, Any, Any]:
    return run_both(tmp_path_factory.mktemp("callbacks"), "boosting_callbacks.py")


def steps_of(job: FinishedJob) -> Steps:
    (rank,) = Run(open_run(job.run)).ranks
    return rank.steps


def test_callbacks_and_early_stopping_do_what_they_do_alone(
    callbacks: tuple[FinishedJob, Any, Any],
) -> None:
    job, bare, watched = callbacks
    assert watched["results"] == bare["results"]
    assert bare["results"]["callbacks"]["calls"] == ["before training", "after training"]
    assert bare["results"]["callbacks"]["rounds"] == 7
    stopped = bare["results"]["stopped"]
    assert stopped["rounds"] == stopped["best"] + 1 < len(stopped["losses"]) < 40
    assert len(steps_of(job)) == 7 + len(stopped["losses"])


def test_metrics_have_the_rounds_of_their_model(callbacks: tuple[FinishedJob, Any, Any]) -> None:
    """A round counts from the start of its own model."""
    job, bare, _ = callbacks
    run = Run(open_run(job.run))
    for number, name in ((1, "callbacks"), (2, "stopped")):
        losses = bare["results"][name]["losses"]
        rounds, values = metric(run, number, "test-logloss")
        assert rounds == list(range(len(losses)))
        assert values == pytest.approx(losses, abs=1e-5)  # XGBoost's text has five decimals


def test_work_between_two_trainings_is_in_no_step(callbacks: tuple[FinishedJob, Any, Any]) -> None:
    job, _, watched = callbacks
    first_end, second_start = watched["marks"]
    steps = steps_of(job)
    last_of_first, first_of_second = steps.end[6], steps.start[7]
    tolerance_ns = 1_000_000  # of two clocks
    assert last_of_first <= first_end + tolerance_ns
    assert first_of_second >= second_start - tolerance_ns
    assert (steps.start[1:7] == steps.end[:6]).all()  # elsewhere one follows the other
    assert (np.sum(list(steps.phase_ns.values()), axis=0) == steps.wall_ns).all()


def test_classes_for_scikit_learn(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    job, bare, watched = run_both(tmp_path, "boosting_sklearn.py")
    assert watched == bare
    run = Run(open_run(job.run))
    names = {1: "validation_0-mlogloss", 2: "validation_0-rmse"}
    for (number, name), model in zip(names.items(), bare.values(), strict=True):
        rounds, values = metric(run, number, name)
        assert rounds == list(range(len(model["metrics"])))
        assert values == pytest.approx(model["metrics"], abs=1e-5)
    assert len(bare["classifier"]["metrics"]) < 40  # stopped early
    view = job.payload("show", "xgboost")
    (labels,) = [one for one in view["labels"] if one["data_set"] == "validation_0"]
    counts = np.bincount(bare["classifier"]["labels"]).tolist()
    assert [one["count"] for one in labels["bins"]] == counts


def test_progress_of_a_running_job(tmp_path: Path) -> None:
    """`watch` shows the steps of a job while it boosts."""
    run, script = tmp_path / "run", E2E / "scripts" / "boosting_faults.py"
    job = [sys.executable, str(script), "healthy", "1000000"]
    with subprocess.Popen(
        [*STEPSCOPE, "run", "--quiet", "--no-rules", "--out", str(run), "--", *job],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as launcher:
        try:

            def step_count() -> int:
                if not (run / "tables" / "spans").is_dir():
                    return 0
                pace = measure_pace(Run(open_run(run)))
                return pace.step_count if pace.steps_per_s else 0

            first = wait_until(step_count, timeout_s=JOB_TIMEOUT_S)
            wait_until(lambda: step_count() > first, timeout_s=JOB_TIMEOUT_S)
        finally:
            os.killpg(launcher.pid, signal.SIGTERM)
            launcher.wait(JOB_TIMEOUT_S)
