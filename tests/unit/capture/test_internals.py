"""A release that lacks one of the attributes in the table costs the part that needs it, no more."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest

from stepscope.capture.frameworks.internals import PYTORCH, read
from stepscope.capture.frameworks.pytorch.window import release_of
from stepscope.spool import (
    FROM_START,
    MEMORY_HISTORY_VARIABLE,
    NAN_SEARCH_VARIABLE,
    TENSORS_VARIABLE,
    TensorPlan,
)
from tests.conftest import Spool
from tests.support.missing_internals import hide

if importlib.util.find_spec("torch") is None:  # importing it would take seconds
    pytest.skip("needs PyTorch", allow_module_level=True)

STEPS = 3
SCRIPT = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn({4 * STEPS}, 3), torch.randn({4 * STEPS}, 1))
model, loss = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), nn.MSELoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for inputs, targets in DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    value = loss(model(inputs), targets)
    value.backward()
    optimizer.step()
    print(value.item().hex())
print([parameter.detach().sum().item().hex() for parameter in model.parameters()])
"""
RECORDED = {"backward": STEPS, "data_wait": STEPS + 1, "forward": STEPS, "optimizer": STEPS}
LOST = {
    "loader_next": {"data_wait": 0},
    "loss": {"forward": 2 * STEPS},
    "run_backward engine": {"backward": 0},
}
"""Counts of records that differ without an attribute."""


@pytest.fixture(scope="module")
def printed(module_spool: Spool) -> str:
    """Output of the script without stepscope."""
    return module_spool.run_torch(SCRIPT, STEPSCOPE_PACKAGE="").stdout


@pytest.mark.slow("thirty jobs")
@pytest.mark.parametrize(
    "missing", [*PYTORCH.table, "run_backward engine", "step_pre_hook step_post_hook"]
)
def test_without_an_attribute(spool: Spool, tmp_path: Path, printed: str, missing: str) -> None:
    internals = [PYTORCH.table[name] for name in missing.split()]
    plan = TensorPlan(collections=("weights", "gradients", "activations", "losses"), interval=1)
    variables = {TENSORS_VARIABLE: plan.encode(), NAN_SEARCH_VARIABLE: FROM_START}
    variables |= {MEMORY_HISTORY_VARIABLE: "100"}
    variables |= hide(internals, tmp_path, spool.environment()["PYTHONPATH"])
    done = spool.run_torch(SCRIPT, **variables)
    assert done.stdout == printed
    recorded = spool.drain()
    counts = {kind: len(recorded.of(kind)) for kind in RECORDED}
    assert counts == {**RECORDED, **LOST.get(missing, {})}
    losses = {note.partition(": PyTorch ")[0] for note in recorded.notes}
    # Of the engine nothing is lost while there is another way.
    assert losses >= {i.loss for i in internals if i.loss} or missing == "engine"
    for note in recorded.notes:
        assert any(internal.paths[0] in note for internal in internals)


@pytest.mark.extended("compiles for seconds")
def test_backward_passes_that_the_compiler_traces_are_not_recorded(
    spool: Spool, tmp_path: Path
) -> None:
    """On older releases `is_compiling` is not true for all of a compilation."""
    older = "torch.compiler._compile_session_context = contextlib.nullcontext"
    compiled = SCRIPT.replace("model(inputs)", 'torch.compile(model, backend="aot_eager")(inputs)')
    variables = hide(
        [PYTORCH.table["compile_session"]], tmp_path, spool.environment()["PYTHONPATH"]
    )
    spool.run_torch(f"import contextlib, torch\n{older}\n{compiled}", **variables)
    recorded = spool.drain()
    assert recorded.of("compile")
    assert len(recorded.of("backward")) == STEPS


@pytest.mark.parametrize(
    "environment", ["sys.modules['numpy'] = None", "sys.path = tuple(sys.path)"]
)
def test_in_an_environment_without(spool: Spool, printed: str, environment: str) -> None:
    """Without NumPy; with a path of modules that cannot be changed."""
    assert spool.run_torch(f"import sys\n{environment}\n{SCRIPT}").stdout == printed
    recorded = spool.drain()
    assert {kind: len(recorded.of(kind)) for kind in RECORDED} == RECORDED


@pytest.mark.extended("imports torch.distributed.checkpoint")
def test_saves_of_distributed_checkpoints_under_their_older_name(
    spool: Spool, tmp_path: Path
) -> None:
    newest = PYTORCH.table["save_distributed"]
    variables = hide(
        [newest._replace(paths=newest.paths[:1])], tmp_path, spool.environment()["PYTHONPATH"]
    )
    spool.run_torch(
        f"""
import torch
from torch.distributed import checkpoint
writer = checkpoint.FileSystemWriter({str(tmp_path / "parts")!r})
checkpoint.save_state_dict({{"weight": torch.ones(3)}}, writer, no_dist=True)
""",
        **variables,
    )
    (save,) = spool.drain().of("checkpoint")
    assert save.name == "save_state_dict"


def test_every_attribute_is_in_the_release_of_the_tests() -> None:
    importlib.import_module("torch.distributed.checkpoint")  # which torch does not import itself
    absent = {
        name for name, internal in PYTORCH.table.items() if not any(map(read, internal.paths))
    }
    assert not absent


def test_releases() -> None:
    assert release_of("2.13.0+cpu") == (2, 13)
    assert release_of("1.13.1") == (1, 13)
    assert release_of("2.10.0a0+gitabc") == (2, 10)
    assert release_of("main") == release_of("2") == release_of("2.x.1") == (0, 0)


def test_libkineto_does_not_start_in_a_job_that_profiles(spool: Spool, tmp_path: Path) -> None:
    """It would free what the job's profiler uses, and crash the job."""
    script = SCRIPT.replace(
        "for inputs", "profiler = torch.profiler.profile()\nprofiler.start()\nfor inputs"
    )
    variables = {"STEPSCOPE_WINDOW": "on", "STEPSCOPE_KINETO": str(tmp_path)}
    spool.run_torch(f"{script}\nprofiler.stop()", **variables)
    assert not spool.drain().notes
