"""A framework that lacks one of the attributes in its table costs the part that needs it, no more.

For PyTorch: tests/unit/capture/test_internals.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks.versions.cells import STEPS
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
    """Job of `benchmarks/versions`.

    Args:
        framework: name of the framework there.
        cell: name of the job.
        internals: table of the attributes.
        environment: its environment; None for that of the tests.
        lost: counts of records that differ without an attribute.
    """

    framework: str
    cell: str
    internals: Internals
    environment: str | None = None
    lost: dict[str, dict[str, int]] = field(default_factory=dict)

    def run(self, spool: Spool, variables: dict[str, str]) -> str:
        """Run the job, and return what it prints."""
        framework = FRAMEWORKS[self.framework]
        python = sys.executable if self.environment is None else find_python(self.environment)
        arguments = framework.cells[self.cell].way.split(" ")
        done = subprocess.run(
            [python, str(framework.script), *arguments],
            env={**spool.environment(), **variables},
            cwd=spool.path.parent,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return "\n".join(line for line in done.stdout.splitlines() if "0x" in line)


LIGHTNING = Job(
    "Lightning", "fit", tables.LIGHTNING, None,
    {
        "run": {"annotation callback Observer.on_train_batch_end": 0},
        "evaluation": {"mode EVAL": 0},
        "epoch": {EPOCH: 0},
    },
)  # fmt: skip
TRANSFORMERS = Job(
    "Transformers", "train, then evaluate", tables.TRANSFORMERS, None,
    {"call_event": {EPOCH: 0, "annotation callback Observer.on_step_end": 0}},
)  # fmt: skip
XGBOOST = Job(
    "XGBoost", "cross-validation", tables.XGBOOST, None,
    {"folds": {"optimizer": FOLD_COUNT * STEPS}},
)  # fmt: skip
JAX = Job("JAX", "jitted steps", tables.JAX, "keras")
TENSORFLOW = Job(
    "TensorFlow", "compiled steps", tables.TENSORFLOW, "keras",
    {"next": {"data_wait": 1}},
)  # fmt: skip
KERAS = Job("Keras", "fit on TensorFlow, eagerly", tables.KERAS, "keras")
KERAS_ON_JAX = Job("Keras", "fit on JAX", tables.KERAS_ON_JAX, "keras")
JOBS = (LIGHTNING, TRANSFORMERS, XGBOOST, JAX, TENSORFLOW, KERAS, KERAS_ON_JAX)
PRINTED: dict[str, str] = {}
"""What jobs print without stepscope, by name."""


def count(recorded: Recorded, record: str) -> int:
    kind, _, name = record.partition(" ")
    return len(recorded.of(kind, name=name or None))


@pytest.mark.slow("a job with a framework")
@pytest.mark.parametrize(
    ("job", "missing"),
    [
        pytest.param(job, name, id=f"{job.cell}-{name}")
        for job in JOBS
        for name in job.internals.table
    ],
)
def test_without_an_attribute(job: Job, missing: str, spool: Spool, tmp_path: Path) -> None:
    if job.cell not in PRINTED:
        PRINTED[job.cell] = job.run(spool, {"PYTHONPATH": os.environ.get("PYTHONPATH", "")})
    internal = job.internals.table[missing]
    variables = hide([internal], tmp_path, spool.environment()["PYTHONPATH"])
    assert job.run(spool, variables) == PRINTED[job.cell]
    recorded = spool.drain()
    expected = {**FRAMEWORKS[job.framework].cells[job.cell].counts, **job.lost.get(missing, {})}
    assert {record: count(recorded, record) for record in expected} == expected
    for note in recorded.notes:
        assert note.startswith(internal.loss)
        assert internal.paths[0] in note
