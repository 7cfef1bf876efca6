"""Tensors of all kinds in real trainings, scripts of other forms, and mistakes in what is asked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stepscope.monitor.node_writer import _make_process_info
from stepscope.spool import TENSORS_VARIABLE, TensorPlan
from tests.conftest import Spool
from tests.unit.capture.test_tensor_recording import (
    PREFACE,
    check_against,
    check_same,
    read_rows,
    record,
)

COLLECTIONS = ("weights", "biases", "gradients", "activations", "inputs", "outputs")
KINDS = """
class Scale(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(6, 6) / 3).to(dtype))

    def forward(self, x):
        return x.to(self.weight.dtype) @ self.weight

class Narrow(nn.Module):
    def forward(self, x):
        return (x * 20).to(torch.float8_e4m3fn)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.norm = nn.BatchNorm1d(6)  # with an integer buffer
        self.short = Scale(torch.float16)
        self.brain = Scale(torch.bfloat16)
        self.long_ = Scale(torch.float64)
        self.turn = Scale(torch.complex64)
        self.narrow = Narrow()
        self.small = nn.Parameter(torch.randn(4).to(torch.float8_e4m3fn), requires_grad=False)
        self.counts = nn.Parameter(torch.arange(-3, 3), requires_grad=False)
        self.is_used = nn.Parameter(torch.tensor([True, False]), requires_grad=False)
        self.empty = nn.Parameter(torch.zeros(0, 4))
        self.absent = nn.Parameter(torch.zeros(3, device="meta"), requires_grad=False)
        self.number = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("calls", torch.zeros(2, dtype=torch.int32))

    def forward(self, tokens, is_kept):
        self.calls += 1
        x = self.norm(self.table(tokens)) * is_kept[:, None]
        x = self.brain(self.short(x)).float()
        self.narrow(x)
        return self.turn(self.long_(x)).abs() * self.number

def plain(tensor):
    tensor = tensor.detach()
    return (tensor.abs() if tensor.is_complex() else tensor).to(
        torch.float64 if tensor.is_floating_point() or tensor.is_complex() else tensor.dtype
    ).numpy().copy()

def keep(name, tensor):
    saved[f"{step} {name}"] = plain(tensor)

model = Net()
for name, module in model.named_modules():
    if name and name != "calls":
        module.register_forward_hook(lambda m, a, r, name=name: keep(f"activation/{name}", r))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
losses = []
for step in range(3):
    tokens, is_kept = torch.randint(0, 9, (5,)), torch.rand(5) > 0.3
    keep("model_input/0", tokens)
    keep("model_input/1", is_kept)
    optimizer.zero_grad()
    result = model(tokens, is_kept)
    keep("model_output/0", result)
    loss = result.square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    for name, parameter in model.named_parameters():
        if name not in {"empty", "absent"}:
            keep(name, parameter)
            if parameter.grad is not None:
                keep(f"gradient/{name}", parameter.grad)
finish()
np.savez(sys.argv[2], losses=losses, calls=model.calls.numpy(),
         **{name: plain(p) for name, p in model.named_parameters() if name != "absent"})
"""


def test_elements_of_all_types(spool: Spool, tmp_path: Path) -> None:
    """Half, bfloat16, fp8, double, complex, integer and boolean tensors are recorded; tensors
    without elements, meta tensors and buffers are not; nothing changes."""
    saved, observed, alone = (str(tmp_path / name) for name in ("s.npz", "o.npz", "a.npz"))
    rows = record(spool, KINDS, saved, observed, collections=COLLECTIONS)
    arrays = dict(np.load(saved).items())
    values = [row for row in rows if row["dtype"] == "complex64"]
    assert {row["tensor"] for row in values} >= {"turn.weight", "gradient/turn.weight"}
    check_against(Path(saved), rows)
    names = {row["tensor"] for row in rows}
    assert names >= {"small", "counts", "is_used", "activation/narrow", "model_input/1"}
    assert not names & {"empty", "absent", "calls", "norm.num_batches_tracked", "gradient/small"}
    assert {row["dtype"] for row in rows} == {
        "float16", "bfloat16", "float8_e4m3fn", "float32", "float64", "complex64", "int64", "bool",
    }  # fmt: skip
    spool.run_torch(PREFACE + KINDS, saved, alone, **{TENSORS_VARIABLE: ""})
    check_same(Path(observed), Path(alone))
    assert arrays["0 small"].size == 4


WAYS = """
from torch.utils.checkpoint import checkpoint
way, out = sys.argv[1:]

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop, self.out = nn.Linear(8, 32), nn.Dropout(0.1), nn.Linear(32, 8)

    def forward(self, x):
        return x + self.out(self.drop(self.fc(x).relu()))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if way == "checkpoint" else block(x)
        return x

model = Net()
if way == "compile":
    model = torch.compile(model, backend="aot_eager")  # Inductor takes minutes
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
losses = []
for step in range(4):
    x = torch.randn(16, 8)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "autocast"):
        loss = (model(x) - x.roll(1, 1)).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
np.savez(out, losses=losses, noise=torch.rand(3).numpy(), **{
    name: parameter.detach().numpy() for name, parameter in model.named_parameters()
})
"""


@pytest.mark.parametrize(
    "way",
    [
        "autocast",
        pytest.param("compile", marks=pytest.mark.extended("compiles twice")),
        "checkpoint",
    ],
)
def test_the_training_is_the_same_bit_for_bit(spool: Spool, tmp_path: Path, way: str) -> None:
    """Losses, weights and the state of the random generator, with dropout."""
    collections = (*COLLECTIONS, "optimizer", "losses")
    plan = TensorPlan(collections=collections, interval=1, histograms=True)
    for name, text in (("alone", ""), ("observed", plan.encode())):
        out = str(tmp_path / f"{name}.npz")
        spool.run_torch(PREFACE + WAYS, way, out, **{TENSORS_VARIABLE: text})
    check_same(tmp_path / "observed.npz", tmp_path / "alone.npz")
    rows = read_rows(spool, "tensor_statistics")
    assert {row["step"] for row in rows} == {0, 1, 2, 3}
    assert {row["tensor"] for row in rows if row["collection"] == "weights"} == {
        f"blocks.{i}.{name}.weight" for i in range(2) for name in ("fc", "out")
    }
    if way == "checkpoint":  # a module is recorded in the forward pass only
        keys = [(row["step"], row["tensor"]) for row in rows]
        assert len(keys) == len(set(keys))
        assert (3, "activation/blocks.1.out") in keys


def test_modules_that_are_called_one_by_one(spool: Spool) -> None:
    """Each has its names, also of many, and also after one is freed and made again."""
    rows = record(
        spool,
        """
class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2) / 2)

    def forward(self, x):
        return x @ self.weight

stages = [Stage() for _ in range(40)]
for step in range(2):
    optimizer = torch.optim.SGD([p for stage in stages for p in stage.parameters()], lr=1e-3)
    x = torch.ones(1, 2)
    for stage in stages:
        x = stage(x)
    x.sum().backward()
    optimizer.step()
    del optimizer
    stages[7] = None  # freed before it is made again
    stages[7] = Stage()
""",
        collections=("weights",),
    )
    expected = {"weight", "Stage.weight", *(f"Stage.weight#{n}" for n in range(2, 40))}
    for step in range(2):
        assert {row["tensor"] for row in rows if row["step"] == step} == expected


LATE_RANKS = {
    "variable": 'os.environ["RANK"] = "1"; os.environ["WORLD_SIZE"] = "2"',
    "process group": """
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
""",
}
ONE_STEP = """
model = nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.seed("DBT-05")
@pytest.mark.parametrize("way", LATE_RANKS)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_set_after_the_import(spool: Spool, way: str, rank: int) -> None:
    """`--tensors-ranks` and the run know it."""
    collections = ("weights", "losses", "activations")
    code = LATE_RANKS[way] + ONE_STEP
    rows = record(spool, code, collections=collections, ranks=[rank])
    recorded = spool.drain()
    losses = [record for record in recorded.records if record.table == "scalars"]
    assert {row["tensor"] for row in rows} == ({"weight"} if rank == 1 else set())
    assert len(losses) == (2 if rank == 1 else 0)
    (process,) = recorded.processes.values()
    node: Any = SimpleNamespace(node="n", epoch_offset_ns=0)
    info = _make_process_info(process, node, incarnation=1)
    assert (info.rank, info.world_size) == (1, 2)


def test_a_pattern_that_matches_nothing(spool: Spool) -> None:
    """The run names the tensors with the nearest names, once, and the others are recorded."""
    code = """
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
    patterns = ("gradient/2.weigth", r"activation/1\..*", "0.bias", "input/2")
    rows = record(spool, code, collections=("weights",), patterns=patterns)
    assert {row["tensor"] for row in rows} == {"0.weight", "2.weight", "0.bias", "input/2"}
    first, second = sorted(spool.drain().notes)
    assert first.startswith(
        "The pattern 'activation/1\\\\..*' has matched no tensor in 3 recorded steps; the "
        "nearest names are activation/1, activation/"
    )
    assert second.startswith(
        "The pattern 'gradient/2.weigth' has matched no tensor in 3 recorded steps; the "
        "nearest names are gradient/2.weight, gradient/"
    )


def test_tensors_beyond_the_room_of_the_spool(new_spool: object, tmp_path: Path) -> None:
    """As many are recorded as fit, and the run names some that do not."""
    path = tmp_path / "small"
    path.mkdir()
    spool = Spool(path, 3 << 20)
    code = """
model = nn.ModuleList(nn.Linear(1, 1, bias=False) for _ in range(1500))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sum(layer.weight.sum() for layer in model).backward()
model.forward = lambda: None
model()
optimizer.step()
"""
    rows = record(spool, code, collections=("weights",), histograms=True)
    recorded = spool.drain()
    assert 0 < len(rows) < 1500
    assert recorded.dropped == 1500 - len(rows)
    (note,) = recorded.notes
    names = {f"{number}.weight" for number in range(1500)} - {row["tensor"] for row in rows}
    assert note.startswith(
        f"the spool has no room for the statistics of {len(names)} tensors of step 0: "
    )
    listed = note.partition("step 0: ")[2].partition(" and ")[0].split(", ")
    assert len(listed) == 5
    assert set(listed) <= names
    assert note.endswith(
        f" and {len(names) - 5} more; record fewer tensors or steps, or raise --spool-limit"
    )


def test_statistics_that_fail_are_switched_off(spool: Spool) -> None:
    plan = TensorPlan(collections=("weights",), interval=1)
    done = spool.run_torch(
        PREFACE
        + """
from stepscope.capture.frameworks.pytorch.tensors.statistics import HostSummary
def fail(*_):
    raise RuntimeError("no memory")
HostSummary.summarize = fail
"""
        + ONE_STEP
        + "print(model.weight.tolist())",
        STEPSCOPE_STRICT="0",
        **{TENSORS_VARIABLE: plan.encode()},
    )
    alone = spool.run_torch(PREFACE + ONE_STEP + "print(model.weight.tolist())")
    assert done.stdout == alone.stdout
    notes = spool.drain().notes
    assert [note.partition(" at ")[0] for note in notes] == [
        "stopped recording tensors after an error: RuntimeError('no memory')"
    ]


def test_sharded_gradients_of_a_scaled_fused_optimizer(spool: Spool) -> None:
    """Statistics and elements are those of this rank's shard, without the factor of the scaler."""
    plan = TensorPlan(collections=("gradients",), raw_patterns=("gradient/.*",), interval=1)
    spool.run_torch(
        """
        import torch, torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        mesh = init_device_mesh("cpu", (2,))
        weight = torch.nn.Parameter(DTensor.from_local(torch.ones(2, 3), mesh, [Shard(0)]))
        weight.grad = DTensor.from_local(torch.full((2, 3), 8.0), mesh, [Shard(0)])
        optimizer = torch.optim.Adam([weight], fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
        scaler.update()
        """,
        **{TENSORS_VARIABLE: plan.encode()},
    )
    (row,) = read_rows(spool, "tensor_statistics")
    assert (row["tensor"], row["element_count"]) == ("gradient/parameter_4x3", 6)
    assert (row["min"], row["max"]) == (2, 2)
    (elements,) = read_rows(spool, "tensor_elements")
    assert (elements["shape"], elements["byte_count"]) == ("2x3", 6 * 4)


@pytest.mark.parametrize("ranks", [None, [1]], ids=["recorded", "not recorded"])
def test_the_graph_of_a_scaled_loss_is_released(spool: Spool, ranks: list[int] | None) -> None:
    """After the backward pass, and if there is none, when the script deletes the scaled loss."""
    plan = TensorPlan(collections=("losses",), interval=1, ranks=ranks)
    spool.run_torch(
        """
        import weakref, torch

        class Memory: pass

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, values):
                ctx.memory = Memory()
                references.append(weakref.ref(ctx.memory))
                return values * 2

            @staticmethod
            def backward(ctx, gradient):
                return gradient * 2

        references, values = [], torch.ones(3, requires_grad=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        for has_backward in (True, False):
            loss = Double.apply(values).sum()
            scaled = scaler.scale(loss)
            if has_backward:
                scaled.backward()
            assert references[-1]() is not None
            del loss, scaled
            assert references[-1]() is None, has_backward
        """,
        **{TENSORS_VARIABLE: plan.encode(), "RANK": "0"},
    )
    losses = [record.value for record in spool.drain().records if record.table == "scalars"]
    assert losses == ([] if ranks else [6.0])
