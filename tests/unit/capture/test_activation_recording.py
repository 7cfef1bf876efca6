"""Activations, inputs, outputs and optimizer state of real trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.spool import TENSORS_VARIABLE, TensorPlan
from tests.conftest import Spool
from tests.unit.capture.test_tensor_recording import (
    PREFACE,
    check_against,
    check_same,
    read_rows,
    record,
)

COLLECTIONS = ("activations", "inputs", "outputs", "optimizer")
UNITS = ("dead_units", "saturated_units")
TRAINING = """
import io
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.fc(x)
        if isinstance(self.act, nn.ReLU):  # changes it in place
            keep("input/block.act", x)
        return self.act(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(6, 6)
        self.block = Block()
        self.unused = nn.Linear(2, 2)
        self.head = nn.Linear(6, 3)

    def forward(self, x, *, scale):
        x = self.twice(x)
        keep("activation/twice", x)
        x = self.twice(x)
        keep("input/block.fc", x)
        x = checkpoint(self.block, x, use_reentrant=False)
        keep("activation/block.act", x)
        logits = self.head(x * scale)
        keep("activation/head", logits)
        return {"logits": logits, "none": None}

def keep(name, tensor):
    if torch._C._current_graph_task_id() == -1:
        saved.setdefault(f"{step} {name}", tensor.detach().float().numpy().copy())

model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(4):
    if step == 2:
        model.block.act = nn.Tanh()
    x, scale = torch.randn(5, 6), torch.rand(6)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 2 == 1):
        keep("model_input/0", x)
        keep("model_input/scale", scale)
        logits = model(x, scale=scale)["logits"]
        keep("model_output/logits", logits)
        loss = logits.float().square().mean()
    torch.save(model, io.BytesIO())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            for key in ("exp_avg", "exp_avg_sq"):
                keep(f"optimizer/{key}/{name}", optimizer.state[parameter][key])
assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
weights = {name: p.detach().numpy() for name, p in model.named_parameters()}
np.savez(sys.argv[2], loss=loss.detach().numpy(), **weights)
finish()
"""
PATTERNS = ("input/block.fc",)


def test_rows_equal_what_the_script_had(spool: Spool, tmp_path: Path) -> None:
    """Of a module called twice the first call counts, of a checkpointed one the forward pass; the
    weights are the same bit for bit."""
    saved, observed, alone = (str(tmp_path / name) for name in ("s.npz", "o.npz", "a.npz"))
    rows = record(spool, TRAINING, saved, observed, collections=COLLECTIONS, patterns=PATTERNS)
    rows = [row for row in rows if row["tensor"] != "activation/block.fc"]  # changed in place
    check_against(Path(saved), [row for row in rows if row["collection"] not in UNITS])
    assert {row["collection"] for row in rows} == {*COLLECTIONS, *UNITS}
    outputs = dict(np.load(saved).items())
    for row in rows:
        if row["tensor"].startswith("dead_units/"):
            is_dead = ~(outputs[f"{row['step']} activation/block.act"] > 0).any(axis=0)
            assert (row["mean"], row["element_count"]) == (is_dead.mean(), len(is_dead))
    assert {row["mode"] for row in rows} == {"TRAIN"}
    spool.run_torch(PREFACE + TRAINING, saved, alone, **{TENSORS_VARIABLE: ""})
    check_same(Path(observed), Path(alone))


def test_calls_that_are_no_training(spool: Spool) -> None:
    """Evaluation has its own mode; compiled modules, transforms of functions and modules whose
    calls would be computed in another way have no hooks."""
    rows = record(
        spool,
        """
from torch.func import functional_call, vmap
class Critic(nn.Sequential):
    pass
model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
other = Critic(nn.Linear(3, 3), nn.ReLU())
compiled = torch.compile(nn.Sequential(nn.Linear(3, 2)), backend="eager", fullgraph=True)
encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
x = torch.ones(2, 3)
model(x).sum().backward()
other(x)
compiled(x)
vmap(model)(x)
vmap(lambda row: functional_call(model, {}, (row,)))(x)
with torch.no_grad():
    model.eval()(x)
    encoder(torch.ones(1, 2, 4))
with torch.inference_mode():
    model(x)
torch.jit.trace(model, x)
""",
        collections=("activations", "outputs"),
    )
    assert [(row["mode"], row["tensor"]) for row in rows] == [
        ("TRAIN", "activation/0"),
        ("TRAIN", "input/1"),
        ("TRAIN", "activation/1"),
        ("TRAIN", "dead_units/1"),
        ("TRAIN", "activation/2"),
        ("TRAIN", "model_output/0"),
        ("TRAIN", "activation/Critic.0"),
        ("TRAIN", "input/Critic.1"),
        ("TRAIN", "activation/Critic.1"),
        ("TRAIN", "dead_units/Critic.1"),
        ("TRAIN", "model_output/Critic.0"),
        ("TRAIN", "model_output/OptimizedModule.0"),
        ("EVAL", "activation/0"),
        ("EVAL", "input/1"),
        ("EVAL", "activation/1"),
        ("EVAL", "dead_units/1"),
        ("EVAL", "activation/2"),
        ("EVAL", "model_output/0"),
        ("EVAL", "model_output/TransformerEncoderLayer.0"),
    ]


@pytest.mark.seed("DBT-03")
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # After the steps 10, 20, … 60 there are 8 batches each, which the model sees as its calls
        # 0 to 47: call 20 is after step 30, call 40 after step 60.
        ({"interval": 20}, [10, 30, 60]),
        ({"interval": 1000, "evaluation_interval": 16}, [10, 30, 50]),
        ({"interval": 7, "evaluation_interval": 1}, [10, 20, 30, 40, 50, 60]),
        ({"interval": 1, "steps": [40], "end_step": 0}, [40]),
    ],
)
def test_evaluation_is_recorded_at_its_own_interval(
    spool: Spool, fields: dict[str, Any], expected: list[int]
) -> None:
    rows = record(
        spool,
        """
model = nn.Sequential(nn.Linear(3, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1, 61):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
    if step % 10 == 0:
        with torch.no_grad():
            for batch in range(8):
                model.eval()(torch.full((2, 3), float(batch)))
        model.train()
""",
        collections=("activations", "inputs"),
        **fields,
    )
    evaluated = sorted((r for r in rows if r["mode"] == "EVAL"), key=lambda row: row["t_ns"])
    # A call after the optimizer's step is in the next step of the process.
    assert [row["step"] for row in evaluated if row["tensor"] == "activation/0"] == expected
    assert [row["step"] for row in evaluated if row["tensor"] == "model_input/0"] == expected
    if fields == {"interval": 20}:
        # Call 20 is the fifth batch of its pass, call 40 the first.
        values = [row["mean"] for row in evaluated if row["tensor"] == "model_input/0"]
        assert values == [0, 4, 0]


def test_a_hook_that_fails_is_switched_off(spool: Spool) -> None:
    plan = TensorPlan(collections=("activations", "weights"), interval=1)
    spool.run_torch(
        PREFACE
        + """
from stepscope.capture.frameworks.pytorch.tensors import calls
def fail(*_):
    raise RuntimeError("no memory")
calls._add = fail
model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
assert not any(m._forward_hooks for m in model.modules())
""",
        STEPSCOPE_STRICT="0",
        **{TENSORS_VARIABLE: plan.encode()},
    )
    (process,) = spool.drain().processes.values()
    (note,) = process.notes
    assert note.startswith(
        "stopped recording activations, inputs and outputs of modules after an error: "
        "RuntimeError('no memory')"
    )
    assert {row["step"] for row in read_rows(spool, "tensor_statistics")} == {0, 1, 2}


def test_dead_and_saturated_layers_are_told_from_healthy_ones(spool: Spool) -> None:
    """Above half of the units the rules DeadRelu and SaturatedActivation fire."""
    rows = record(
        spool,
        """
class Faulty(nn.Sequential):
    pass
def layers():
    return nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)
healthy, faulty = nn.Sequential(*layers()), Faulty(*layers())
with torch.no_grad():
    faulty[0].bias.fill_(-100)
    faulty[2].bias.fill_(30)
parameters = [*healthy.parameters(), *faulty.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.01)
for _ in range(5):
    x = torch.randn(32, 4)
    optimizer.zero_grad()
    target = x.sum(1, keepdim=True)
    sum((model(x) - target).square().mean() for model in (healthy, faulty)).backward()
    optimizer.step()
""",
        collections=("activations",),
    )
    shares = [(row["tensor"], row["mean"] > 0.5) for row in rows if row["collection"] in UNITS]
    assert set(shares) == {
        ("dead_units/1", False),
        ("saturated_units/3", False),
        ("dead_units/Faulty.1", True),
        ("saturated_units/Faulty.3", True),
    }
    assert len(shares) == 4 * 5


@pytest.mark.parametrize(
    ("shape", "axis"), [((400, 3), 1), ((4, 100, 3), 2), ((10, 3, 5, 8), 1)], ids=str
)
def test_units_that_have_stopped(shape: tuple[int, ...], axis: int) -> None:
    """A unit may be active in less than 1% of its elements: 3 of 400 are too few, 4 are enough."""
    import torch

    from stepscope.capture.frameworks.pytorch.tensors.calls import find_stopped_units

    values = torch.full((3, 400), -20.0)
    for unit, active_count in enumerate((0, 3, 4)):
        values[unit, :active_count] = 2.0
    sizes = [3, *(size for i, size in enumerate(shape) if i != axis)]
    values = values.reshape(sizes).movedim(0, axis)
    for module, expected in (
        (torch.nn.ReLU(), ("dead_units/", [1, 1, 0])),
        (torch.nn.Tanh(), ("saturated_units/", [1, 1, 0])),
        (torch.nn.Sigmoid(), ("saturated_units/", [0, 0, 0])),  # down to -23
    ):
        units = find_stopped_units(module, (values,), module(values))
        assert units is not None
        assert (units[0], units[1].tolist()) == expected
    assert find_stopped_units(torch.nn.GELU(), (values,), values) is None
