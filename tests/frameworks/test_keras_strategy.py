"""Replicas of TensorFlow: steps, waits for batches, and what is not known of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import stepscope
from tests.support.framework_environments import find_python
from tests.support.under_stepscope import FinishedJob, label, run_under

pytestmark = pytest.mark.extended("three jobs; test_keras_contracts.py has one")

SCRIPT = Path(__file__).parent / "scripts" / "keras_strategy.py"
UNKNOWN_WAITS = (
    "waits for batches in functions that are compiled in the scope of a strategy of tf.distribute "
    "are not known: they count as time of the functions"
)
UNKNOWN_COMMUNICATION = (
    "the time of communication is not known: the replicas of tf.distribute exchange data inside "
    "compiled functions"
)


@pytest.fixture(scope="module", params=["fit", "outside", "inside"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FinishedJob:
    options = ("--quiet", "--no-rules", "--window", "off")
    command = [find_python("keras"), str(SCRIPT), request.param]
    run = tmp_path_factory.mktemp(request.param) / "run"
    done = run_under(run, *command, options=options, KERAS_BACKEND="tensorflow")
    assert done.code == 0, done.stderr
    assert done.steps()["step_count"] == int(label(SCRIPT, "EXPECTED_STEPS"))
    return done


def test_waits_for_batches_are_recorded_or_not_known(job: FinishedJob) -> None:
    verdict = job.verdict
    if job.run.parent.name.startswith("inside"):
        assert any(note.endswith(UNKNOWN_WAITS) for note in verdict["notes"])
        return
    assert not any("tf.distribute" in note for note in verdict["notes"])
    assert verdict["suspect"] == "data_pipeline", verdict["headline"]


def test_waits_are_those_of_a_clock_in_the_script(job: FinishedJob) -> None:
    if not job.run.parent.name.startswith("outside"):
        pytest.skip("the script cannot measure waits in compiled functions")
    waited_s = float(job.stdout.split("waited ")[1].split()[0])
    rows = stepscope.open(job.run).framework(kind="data_wait").rows()
    waits = sorted((row["start_ns"], row["end_ns"]) for row in rows)
    waits = waits[: int(label(SCRIPT, "EXPECTED_STEPS"))]  # without the end of the iterators
    assert sum(end - start for start, end in waits) / 1e9 == pytest.approx(waited_s, rel=0.05)


def test_communication_of_replicas_is_not_known(job: FinishedJob) -> None:
    reasons = {entry["suspect"]: entry["why"] for entry in job.verdict["ruled_out"]}
    assert reasons["communication"] == f"{UNKNOWN_COMMUNICATION}."
    assert UNKNOWN_COMMUNICATION in str(job.payload("show", "distributed"))
