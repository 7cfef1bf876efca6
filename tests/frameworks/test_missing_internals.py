"""A framework that lacks one of the attributes in its table costs the part that needs it, no more.

For PyTorch: tests/unit/capture/test_internals.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.versions.cells import STEPS, Cell
from benchmarks.versions.frameworks import FRAMEWORKS
from stepscope.capture.frameworks import tables
from stepscope.capture.frameworks.internals import Internals
from tests.conftest import Recorded, Spool
from tests.support.framework_environments import find_python
from tests.support.missing_internals import hide

pytestmark = pytest.mark.extended("forty jobs; test_internals.py has those of PyTorch")

EPOCH = "annotation epoch"
FOLD_COUNT = 3


@dataclass(frozen=True)
class Job:
    """Job of a framework.

    Args:
        name: its name.
        script: a script that prints its result, exactly.
        cell: its arguments, and the records of a release that lacks nothing.
        internals: table of the attributes.
        environment: its environment; None for that of the tests.
        lost: counts of records that differ without an attribute.
    """

    name: str
    script: Path
    cell: Cell
    internals: Internals
    environment: str | None
    lost: dict[str, dict[str, int]]

    def run(self, spool: Spool, variables: dict[str, str]) -> str:
        """Run the job, and return its result."""
        python = sys.executable if self.environment is None else find_python(self.environment)
        done = subprocess.run(
            [python, str(self.script), *self.cell.way.split(" ")],
            env={**spool.environment(), **variables},
            cwd=spool.path.parent,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "sitecustomize" not in done.stderr, done.stderr  # Python goes on after its error
        lines = done.stdout.splitlines()
        return "\n".join(line for line in lines if "0x" in line or line.startswith("result "))


def released(
    framework: str, cell: str, internals: Internals, environment: str | None = None,
    **lost: dict[str, int],
) -> Job:  # fmt: skip
    """Return a job of `benchmarks/versions`."""
    jobs = FRAMEWORKS[framework]
    return Job(cell, jobs.script, jobs.cells[cell], internals, environment, lost)


LIGHTNING = released(
    "Lightning", "fit", tables.LIGHTNING,
    run={"annotation callback Observer.on_train_batch_end": 0},
    evaluation={"mode EVAL": 0},
    epoch={EPOCH: 0},
)  # fmt: skip
TRANSFORMERS = released(
    "Transformers", "train, then evaluate", tables.TRANSFORMERS,
    call_event={EPOCH: 0, "annotation callback Observer.on_step_end": 0},
)  # fmt: skip
XGBOOST = released(
    "XGBoost", "cross-validation", tables.XGBOOST, folds={"optimizer": FOLD_COUNT * STEPS}
)
JAX = released("JAX", "jitted steps", tables.JAX, "keras")
GRAIN_RECORDS = {"dispatch jit(train_step)": STEPS, "data_wait grain": STEPS + 1}
GRAIN = Job(
    "steps with Grain",
    Path(__file__).parent / "scripts" / "jax_training.py",
    Cell(f"grain --steps {STEPS}", GRAIN_RECORDS),
    tables.GRAIN,
    "keras",
    {"output": {"data_wait grain": 0}},
)
TENSORFLOW = released(
    "TensorFlow", "compiled steps", tables.TENSORFLOW, "keras",
    iterator={"data_wait": STEPS + 1},
    next={"data_wait": 1},
)  # fmt: skip
KERAS = released("Keras", "fit on TensorFlow, eagerly", tables.KERAS, "keras")
KERAS_ON_JAX = released("Keras", "fit on JAX", tables.KERAS_ON_JAX, "keras")
JOBS = (LIGHTNING, TRANSFORMERS, XGBOOST, JAX, GRAIN, TENSORFLOW, KERAS, KERAS_ON_JAX)
PRINTED: dict[str, str] = {}
"""What jobs print without stepscope, by name."""


def count(recorded: Recorded, record: str) -> int:
    kind, _, name = record.partition(" ")
    return len(recorded.of(kind, name=name or None))


@pytest.mark.slow("a job with a framework")
@pytest.mark.parametrize(
    ("job", "missing"),
    [
        pytest.param(job, name, id=f"{job.name}-{name}")
        for job in JOBS
        for name in job.internals.table
    ],
)
def test_without_an_attribute(job: Job, missing: str, spool: Spool, tmp_path: Path) -> None:
    if job.name not in PRINTED:
        PRINTED[job.name] = job.run(spool, {"PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    internal = job.internals.table[missing]
    variables = hide([internal], tmp_path, spool.environment()["PYTHONPATH"])
    assert job.run(spool, variables) == PRINTED[job.name]
    recorded = spool.drain()
    expected = {**job.cell.counts, **job.lost.get(missing, {})}
    assert {record: count(recorded, record) for record in expected} == expected
    assert recorded.notes or missing not in job.lost
    for note in recorded.notes:
        assert note.startswith(internal.loss)
        assert internal.paths[0] in note
