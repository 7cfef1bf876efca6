"""Detailed windows of TensorFlow jobs, at exactly their steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.schema import WindowFact, WindowMissedFact
from stepscope.store import open_run
from tests.support.framework_environments import find_python
from tests.support.under_stepscope import FinishedJob, run_under

pytestmark = pytest.mark.extended("five jobs; test_tensorflow_contracts.py has one")

SCRIPT = Path(__file__).parent / "scripts" / "tensorflow_windows.py"
INFERENCE = """
import keras
import tensorflow as tf
from stepscope.capture.frameworks.tensorflow import functions

data = tf.ones((4, 8))
tf.function(lambda data: 2 * data)(data)
print(functions.has_worked())
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
tf.function(lambda data: model(data))(data)
print(functions.has_worked(), functions.has_trained())
"""


def run(kind: str, directory: Path, start: int, count: int, *, strict: bool = True) -> FinishedJob:
    job = run_under(
        directory / "run",
        *(find_python("keras"), str(SCRIPT), kind),
        options=("--no-rules", "--start-step", str(start), "--num-steps", str(count)),
        KERAS_BACKEND="tensorflow",
        strict=strict,
    )
    assert job.code == 0, job.stderr
    return job


@pytest.mark.parametrize("kind", ["fit", "loop"])
def test_a_scheduled_window(kind: str, tmp_path: Path) -> None:
    job = run(kind, tmp_path, 20, 3)
    assert job.steps()["step_count"] == 60
    windows = job.payload("show", "steps")["traces"]
    assert ["20", "21", "22"] in [[step["step"] for step in trace["steps"]] for trace in windows]
    (operators,) = job.payload("show", "operators")["traces"]
    calls = {row["name"]: row["calls"] for row in operators["operators"]}
    # With oneDNN, which TensorFlow uses on some CPUs, their names are _MklMatMul and alike.
    assert sum(number for name, number in calls.items() if name.endswith("MatMul")) >= 3 * 2
    stages = job.payload("show", "input-pipeline")["tf_data"]
    assert any("Batch" in stage["name"] for stage in stages)


@pytest.mark.parametrize("kind", ["profiled", "v2"])
def test_a_window_ends_before_the_job_profiles(kind: str, tmp_path: Path) -> None:
    job = run(kind, tmp_path, 25, 20)
    processes = open_run(job.run).processes()
    (window,) = [fact for process in processes for fact in process.facts_of(WindowFact)]
    assert (window.first_step, window.step_count) == (25, 5)
    assert window.deviation == "the job started a profiler"


def test_a_window_that_tensorflow_refuses_leaves_the_profiler_to_the_job(tmp_path: Path) -> None:
    job = run("served", tmp_path, 20, 3, strict=False)
    assert job.steps()["step_count"] == 60
    (process,) = [process for process in open_run(job.run).processes() if process.versions]
    (missed,) = process.facts_of(WindowMissedFact)
    assert (missed.first_step, missed.why) == (20, "its recorder failed")
    (note,) = process.notes
    assert note.startswith("stopped recording detailed window 0 after an error: AlreadyExistsError")


def test_a_process_that_only_calls_models_works_with_tensorflow(spool: Any) -> None:
    done = spool.run(INFERENCE, python=find_python("keras"), KERAS_BACKEND="tensorflow")
    assert done.stdout.split() == ["False", "True", "False"]
