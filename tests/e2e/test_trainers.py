"""Trainers of Lightning and Transformers: callbacks, epochs, modes, checkpoints, logged numbers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

import stepscope
from stepscope.access import OpenRun
from stepscope.schema import PlannedStepsFact
from stepscope.store import open_run
from tests.support.under_stepscope import E2E, JOB_TIMEOUT_S, FinishedJob, label, run_under

pytestmark = pytest.mark.extended(
    "records of trainers in detail; test_framework_contracts.py has a job of each"
)


def find_planned_steps(job: FinishedJob) -> list[int]:
    """Find the plans that the trainers of a job have stated."""
    processes = open_run(job.run).processes()
    return [fact.count for one in processes for fact in one.facts_of(PlannedStepsFact)]


class Trainer:
    """Records of one trainer; subclasses have a script."""

    script: str
    callback: str
    """Callback of the script that takes most of its time."""
    modes: ClassVar[dict[str, int]]
    """Regions by mode."""
    numbers: ClassVar[dict[str, int]]
    """Logged numbers, with how often they are logged."""
    checkpoint: str
    last_checkpoint: str
    """Name of the file or directory before the last epoch that a resumed job trains."""

    @pytest.fixture(scope="class")
    @classmethod
    def job(cls, tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
        directory = tmp_path_factory.mktemp(cls.script)
        done = run_under(
            directory / "run",
            *(sys.executable, str(cls.path()), str(directory / "out")),
            options=("--window", "off", "--no-rules"),
        )
        assert done.code == 0, done.stderr
        return done

    @pytest.fixture
    def run(self, job: FinishedJob) -> OpenRun:
        return stepscope.open(job.run)

    @classmethod
    def path(cls) -> Path:
        return E2E / "scripts" / f"{cls.script}.py"

    def test_steps_and_epochs(self, job: FinishedJob, run: OpenRun) -> None:
        assert job.steps()["step_count"] == int(label(self.path(), "EXPECTED_STEPS"))
        names = Counter(row["name"] for row in run.framework(kind="annotation").rows())
        assert names["epoch"] == int(label(self.path(), "EPOCHS"))
        assert find_planned_steps(job) == [int(label(self.path(), "EXPECTED_STEPS"))]
        assert names[f"callback {self.callback}"] == int(label(self.path(), "EXPECTED_STEPS"))

    def test_a_resumed_training_plans_what_is_left(self, job: FinishedJob, tmp_path: Path) -> None:
        (checkpoint,) = (job.run.parent / "out").glob(self.last_checkpoint)
        done = run_under(
            tmp_path / "run",
            *(sys.executable, str(self.path()), str(tmp_path / "out")),
            *("--resume", str(checkpoint)),
            options=("--window", "off", "--no-rules"),
        )
        assert done.code == 0, done.stderr
        epochs = int(label(self.path(), "EPOCHS"))
        steps = int(label(self.path(), "EXPECTED_STEPS")) // epochs
        assert done.steps()["step_count"] == steps
        assert find_planned_steps(done) == [steps]

    def test_modes_and_checkpoints(self, run: OpenRun) -> None:
        modes = Counter(row["name"] for row in run.framework(kind="mode").rows())
        assert modes == self.modes
        saves = Counter(row["name"] for row in run.framework(kind="checkpoint").rows())
        assert saves[self.checkpoint] == int(label(self.path(), "EPOCHS"))

    def test_logged_numbers(self, run: OpenRun) -> None:
        rows = run.sql("SELECT name, count(*) AS n FROM scalars GROUP BY name").rows()
        counts = {row["name"]: row["n"] for row in rows}
        assert {name: counts.get(name) for name in self.numbers} == self.numbers

    def test_the_verdict_names_the_slow_callback(self, job: FinishedJob) -> None:
        verdict = job.verdict
        assert verdict["cause"] == "python_overhead"
        texts = [evidence["text"] for evidence in verdict["evidence"]]
        assert any(text.startswith(f"The callback {self.callback} takes") for text in texts), texts

    def test_the_result_is_the_same_without_stepscope(
        self, job: FinishedJob, tmp_path: Path
    ) -> None:
        done = subprocess.run(
            [sys.executable, str(self.path()), str(tmp_path / "out")],
            capture_output=True,
            text=True,
            timeout=JOB_TIMEOUT_S,
            env=os.environ,
        )
        assert done.stdout.splitlines()[-1] in job.stdout.splitlines()


class TestLightning(Trainer):
    script = "lightning_callbacks"
    callback = "SlowCallback.on_train_batch_end"
    modes: ClassVar = {"EVAL": 3}  # one is the check before the training
    numbers: ClassVar = {"train_loss": 4, "val_loss": 2}
    checkpoint = "Trainer.save_checkpoint"
    last_checkpoint = "*.ckpt"


class TestTransformers(Trainer):
    script = "transformers_callbacks"
    callback = "SlowCallback.on_step_end"
    modes: ClassVar = {"EVAL": 3, "PREDICT": 1}  # one evaluation is after the training
    numbers: ClassVar = {"loss": 4, "learning_rate": 4, "eval_loss": 3}
    checkpoint = "Trainer._save_checkpoint"
    last_checkpoint = "checkpoint-20"


def test_lightning_without_a_logger(tmp_path: Path) -> None:
    script = str(TestLightning.path())
    options = ("--window", "off", "--no-rules")
    done = run_under(
        tmp_path / "run",
        *(sys.executable, script, str(tmp_path / "out"), "--no-logger"),
        options=options,
    )
    assert done.code == 0, done.stderr
    query = "SELECT name, count(*) AS n FROM scalars GROUP BY name"
    counts = {row["name"]: row["n"] for row in stepscope.open(done.run).sql(query).rows()}
    assert counts == TestLightning.numbers


def test_a_trainer_that_replaces_a_loss_that_is_nan(tmp_path: Path) -> None:
    """The logged loss is finite; the verdict tells the real one."""
    script = str(TestTransformers.path())
    done = run_under(
        tmp_path / "run",
        *(sys.executable, script, str(tmp_path / "out"), "--learning-rate", "1e38"),
        options=("--window", "off"),
    )
    assert done.code == 0, done.stderr
    query = "SELECT value FROM scalars WHERE name = 'loss'"
    logged = [row["value"] for row in stepscope.open(done.run).sql(query).rows()]
    assert len(logged) == TestTransformers.numbers["loss"]
    assert all(math.isfinite(value) for value in logged)
    learning = done.verdict["learning"]
    assert learning["rule"] == "NonFiniteLoss"
    assert any("logs a finite one instead" in line for line in learning["evidence"])
