"""Tensors of real trainings: what is recorded is what the script had, and it is not changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepscope.monitor.drain import SpoolDrain
from stepscope.spool import TENSORS_VARIABLE, SpoolTree, TensorPlan
from stepscope.store import DictColumn
from tests.conftest import Spool, _nothing_stored

ALL = ("weights", "biases", "gradients", "losses")
PREFACE = """
import json, os, sys, numpy as np, torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
saved = {}

def save(step, model):
    for name, parameter in model.named_parameters():
        saved[f"{step} {name}"] = parameter.detach().numpy().copy()
        if parameter.grad is not None:
            saved[f"{step} gradient/{name}"] = parameter.grad.to_dense().numpy().copy()

def finish():
    np.savez(sys.argv[1], **saved)
"""


def record(spool: Spool, code: str, *arguments: str, **fields: Any) -> list[dict[str, Any]]:
    """Run a script, and return its rows of statistics."""
    plan = TensorPlan(**{"collections": ALL, "interval": 1, **fields})
    spool.run_torch(PREFACE + code, *arguments, **{TENSORS_VARIABLE: plan.encode()})
    return read_rows(spool, "tensor_statistics")


def read_rows(spool: Spool, table: str) -> list[dict[str, Any]]:
    drain = SpoolDrain(
        SpoolTree(str(spool.path), spool.limit_bytes),
        node="node",
        epoch_offset_ns=0,
        stored=_nothing_stored,
    )
    chunks = drain.collect(final=True)[table]
    if not chunks:
        return []
    columns = {
        name: (column.decode() if isinstance(column, DictColumn) else column).tolist()
        for name, column in drain.columns(table, chunks).items()
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def check_against(saved: Path, rows: list[dict[str, Any]]) -> None:
    """Compare rows with the saved arrays, which must all be recorded."""
    arrays = dict(np.load(saved).items())
    assert {f"{row['step']} {row['tensor']}" for row in rows} == set(arrays)
    for row in rows:
        values = arrays[f"{row['step']} {row['tensor']}"].astype(np.float64)
        assert row["shape"] == "x".join(map(str, values.shape))
        assert (row["min"], row["max"]) == (values.min(), values.max())
        assert row["zero_count"] == (values == 0).sum()
        assert row["mean"] == pytest.approx(values.mean(), rel=1e-6, abs=1e-12)
        assert row["std"] == pytest.approx(values.std(), rel=1e-6, abs=1e-12)
        assert row["l1"] == pytest.approx(np.abs(values).sum(), rel=1e-6)
        assert row["l2"] == pytest.approx(np.sqrt((values**2).sum()), rel=1e-6)


def check_same(observed: Path, alone: Path) -> None:
    """Compare what two trainings have saved bit by bit."""
    arrays, expected = (dict(np.load(path).items()) for path in (observed, alone))
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert arrays[name].tobytes() == array.tobytes(), name


TRAINING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8, sparse=SPARSE)
        self.shared = nn.Linear(8, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 50, bias=False)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, tokens):
        hidden = self.shared(self.shared(self.table(tokens))).tanh()
        return self.head(self.frozen(hidden))

model = Net()
if not SPARSE:
    model.head.weight = model.table.weight
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
for step in range(4):
    tokens = torch.randint(0, 50, (16,))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(tokens), tokens).backward()
    nn.utils.clip_grad_norm_([p for p in model.parameters() if not SPARSE], 0.1)
    optimizer.step()
    save(step, model)
finish()
"""


@pytest.mark.seed("DBT-01")
@pytest.mark.parametrize("sparse", [False, True], ids=["shared parameters", "sparse gradients"])
def test_rows_equal_what_the_script_had(spool: Spool, tmp_path: Path, sparse: bool) -> None:
    """Weights are those after the step, gradients those that the optimizer used."""
    saved = tmp_path / "saved.npz"
    rows = record(spool, f"SPARSE = {sparse}\n{TRAINING}", str(saved))
    check_against(saved, rows)
    collections = {row["tensor"]: row["collection"] for row in rows}
    assert collections["shared.weight"] == "weights"
    assert collections["shared.bias"] == "biases"
    assert collections["gradient/shared.bias"] == "gradients"
    assert "gradient/unused" not in collections  # it has no gradient, which is not a gradient of 0
    arrays = dict(np.load(saved).items())
    for row in rows:
        before = arrays.get(f"{row['step'] - 1} {row['tensor']}")
        if row["collection"] == "gradients":
            assert row["update_l2"] is None
        elif before is not None:
            change = arrays[f"{row['step']} {row['tensor']}"].astype(np.float64) - before
            assert row["update_l2"] == pytest.approx(np.sqrt((change**2).sum()), rel=1e-6)


def test_the_training_is_the_same_bit_for_bit(spool: Spool, tmp_path: Path) -> None:
    code = f"{PREFACE}SPARSE = False\n{TRAINING}"
    plan = TensorPlan(collections=ALL, interval=1, histograms=True, raw_patterns=[".*"])
    for name, text in (("without", ""), ("with", plan.encode())):
        assert not read_rows(spool, "tensor_statistics")  # nothing without a plan
        spool.run_torch(code, str(tmp_path / f"{name}.npz"), **{TENSORS_VARIABLE: text})
    check_same(tmp_path / "with.npz", tmp_path / "without.npz")


@pytest.mark.seed("DBT-02")
def test_tensors_are_selected_by_name(spool: Spool, tmp_path: Path) -> None:
    patterns = (r"shared\..*", r"gradient/head.*")
    rows = record(
        spool, f"SPARSE = True\n{TRAINING}", str(tmp_path / "s"), collections=(), patterns=patterns
    )
    assert {row["tensor"] for row in rows} == {
        *("shared.weight", "shared.bias"),
        "gradient/head.weight",
    }


def test_names_of_several_models(spool: Spool) -> None:
    """Two models have parameters of one name; one is replaced, and one gets another parameter."""
    rows = record(
        spool,
        """
        class Generator(nn.Sequential):
            pass

        class Critic(nn.Sequential):
            pass

        def train(models, lr=0.1):
            parameters = [p for model in models for p in model.parameters()]
            optimizer = torch.optim.SGD(parameters, lr=lr)
            for model in models:
                model(torch.ones(1, 2)).sum().backward()
            optimizer.step()

        generator, critic = Generator(nn.Linear(2, 2)), Critic(nn.Linear(2, 2))
        train([generator, critic])
        del critic
        critic = Critic(nn.Linear(2, 2))
        train([generator, critic])
        generator.scale = nn.Parameter(torch.ones(2))
        optimizer = torch.optim.SGD(generator.parameters(), lr=1)
        (generator(torch.ones(1, 2)) * generator.scale).sum().backward()
        optimizer.step()
        loose = torch.ones(3, 2, requires_grad=True)
        loose.sum().backward()
        torch.optim.SGD([loose], lr=1).step()
        """.replace("\n        ", "\n"),
        collections=("weights",),
    )
    names = [row["tensor"] for row in rows]
    assert names[:4] == ["0.weight", "Critic.0.weight"] * 2
    assert sorted(names[4:6]) == ["0.weight", "scale"]
    assert names[6:] == ["parameter_3x2"]


@pytest.mark.parametrize("wrapper", ["torch.compile", "nn.DataParallel", "checkpoint"])
def test_wrappers_are_left_out_of_names(spool: Spool, wrapper: str) -> None:
    rows = record(
        spool,
        f"""
from torch.distributed.algorithms._checkpoint import checkpoint_wrapper
checkpoint = checkpoint_wrapper.checkpoint_wrapper
def wrap(model):
    if "{wrapper}" == "torch.compile":
        return torch.compile(model, backend="eager")
    return {wrapper}(model)
model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
wrapped = wrap(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1)
for _ in range(2):
    wrapped(torch.ones(1, 2)).sum().backward()
    optimizer.step()
""",
        collections=("weights",),
    )
    assert {row["tensor"] for row in rows} == {"0.weight", "1.weight"}


def test_losses(spool: Spool) -> None:
    """The value on which `backward` is called, before a GradScaler multiplies it; in validation
    what a loss module returns, under the name of its training loss."""
    plan = TensorPlan(collections=("losses",))
    done = spool.run_torch(
        PREFACE
        + """
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
losses = []
for step in range(6):
    optimizer.zero_grad()
    output = model(torch.full((2, 3), float(step)))
    loss = nn.functional.mse_loss(output, torch.ones(2, 1)) if step % 2 else output.abs().mean()
    losses.append(loss.item())
    if step < 3:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
torch.ones(3, requires_grad=True).backward(torch.ones(3))  # not a loss
criterion, target = nn.MSELoss(), torch.ones(2, 1)
criterion(output, target)  # in training: recorded if the script calls backward()
with torch.no_grad():
    nn.L1Loss()(output, target)  # a figure of a training step
    output = model(torch.ones(2, 3))
    losses += [criterion(output, target).item(), nn.L1Loss()(output, target).item()]
    nn.MSELoss(reduction="none")(output, target)  # not a loss
print(json.dumps(losses))
""",
        **{TENSORS_VARIABLE: plan.encode()},
    )
    records = [record for record in spool.drain().records if "loss/" in record.name]
    assert [record.value for record in records] == json.loads(done.stdout)
    validation = ["validation_loss/MseLoss", "validation_loss/L1Loss"]
    assert [record.name for record in records] == ["loss/Mean", "loss/MseLoss"] * 3 + validation


@pytest.mark.parametrize("optimizer", ["SGD", "LBFGS"])
def test_gradients_of_a_closure(spool: Spool, optimizer: str) -> None:
    """They are made inside the step: those of this one are recorded, and none of the one before."""
    plan = TensorPlan(collections=("weights", "gradients"), interval=1)
    done = spool.run_torch(
        PREFACE
        + f"""
model = nn.Linear(3, 1)
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.1)
norms = []
for step in range(3):
    def closure():
        optimizer.zero_grad()
        loss = (model(torch.full((2, 3), step + 1.0)) - 7).square().mean()
        loss.backward()
        return loss
    optimizer.step(closure)
    norms.append(model.weight.grad.norm().item())
print(json.dumps(norms))
""",
        **{TENSORS_VARIABLE: plan.encode()},
    )
    rows = read_rows(spool, "tensor_statistics")
    gradients = [row for row in rows if row["tensor"] == "gradient/weight"]
    assert [row["l2"] for row in gradients] == pytest.approx(json.loads(done.stdout))
    assert [row["step"] for row in gradients] == [0, 1, 2]
    assert {row["tensor"] for row in rows} == {"weight", "gradient/weight", "gradient/bias"}
    assert all(row["update_l2"] > 0 for row in rows if row["tensor"] == "weight")


def test_two_optimizers_take_turns(spool: Spool) -> None:
    """Each optimizer has every second step of the process, and its own steps are counted; one
    contains another."""
    rows = record(
        spool,
        """
class Both(torch.optim.Optimizer):
    def __init__(self, inner, parameters):
        self.inner = inner
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        self.inner.step()
        for parameter in self.param_groups[0]["params"]:
            parameter -= 0.5 * parameter.grad

critic, generator, shift = nn.Linear(2, 2), nn.Linear(2, 2), nn.Parameter(torch.zeros(2))
first = torch.optim.SGD(critic.parameters(), lr=0.1)
second = Both(torch.optim.SGD(generator.parameters(), lr=0.1), [shift])
for _ in range(4):
    critic(torch.ones(1, 2)).sum().backward()
    first.step()
    (generator(torch.ones(1, 2)) + shift).sum().backward()
    second.step()
""",
        collections=("weights",),
        interval=2,
    )
    steps: dict[str, list[int]] = {}
    for row in rows:
        assert row["update_l2"] > 0
        steps.setdefault(row["tensor"], []).append(row["step"])
    assert steps == {"weight": [0, 4], "Linear.weight": [1, 5], "parameter_2": [1, 5]}


def test_one_odd_backward_pass_costs_only_its_loss(spool: Spool) -> None:
    plan = TensorPlan(collections=("losses",))
    spool.run_torch(
        PREFACE
        + """
from torch.func import grad, vmap
weight = torch.ones(3, requires_grad=True)
for step in range(3):
    vmap(grad(lambda x: (x * 2).sum()))(torch.ones(4, 3))
    torch.autograd.grad(weight.sum(), weight)  # a penalty, not a loss
    weight.square().mean().backward()
""",
        **{TENSORS_VARIABLE: plan.encode()},
    )
    records = [record for record in spool.drain().records if record.table == "scalars"]
    assert [(record.name, record.value) for record in records] == [("loss/Mean", 1.0)] * 3
