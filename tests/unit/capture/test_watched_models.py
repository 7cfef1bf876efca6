"""`stepscope.watch`: tensors of one model, on request of the script."""

from __future__ import annotations

from collections import Counter

import pytest

from stepscope.spool import TENSORS_VARIABLE, TensorPlan
from tests.conftest import Spool
from tests.unit.capture.test_tensor_recording import read_rows

TRAINING = """
import sys, torch, stepscope
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
generator = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
critic = nn.Sequential(nn.Linear(4, 1))
WATCH
both, wrapped = nn.Sequential(generator, critic), nn.DataParallel(critic)
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (generator, critic)]

def train(model):
    for step in range(4):
        model(torch.ones(2, 4)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
"""


def names_by_step(spool: Spool) -> dict[int, set[str]]:
    names: dict[int, set[str]] = {}
    for row in read_rows(spool, "tensor_statistics"):
        names.setdefault(row["step"], set()).add(row["tensor"])
    return names


@pytest.mark.parametrize(
    "model",
    ["both", "nn.DataParallel(both)", "lambda x: critic(generator(x))", "lambda x: wrapped(x)"],
    ids=["inside of another", "in a wrapper of that", "called by itself", "in a wrapper"],
)
def test_tensors_of_one_model(spool: Spool, model: str) -> None:
    watch = 'stepscope.watch(critic, ["weights", "gradients", "activations", "inputs"], interval=2)'
    spool.run_torch(TRAINING.replace("WATCH", watch) + f"\ntrain({model})")
    expected = {"0.weight", "gradient/0.weight", "gradient/0.bias", "activation/0"}
    if model.startswith("lambda"):  # the outermost call is one of the watched model
        expected.add("model_input/0")
    assert names_by_step(spool) == {0: expected, 2: expected}


def test_the_recording_may_start_later(spool: Spool) -> None:
    watch = 'stepscope.stop_profiling()\nstepscope.watch(critic, ["weights", "labels"], interval=1)'
    later = """
for part in range(2):
    train(both)
    stepscope.record(labels=[part])
    stepscope.start_profiling()
"""
    spool.run_torch(TRAINING.replace("WATCH", watch) + later)
    assert names_by_step(spool) == {step: {"0.weight"} for step in range(4, 8)}
    assert [row["row_name"] for row in read_rows(spool, "tensor_values")] == ["1"]


def test_of_two_models_and_of_batches(spool: Spool) -> None:
    watch = """
stepscope.watch(generator, ["weights", "labels"], steps=[1, 3])
stepscope.watch(critic)
"""
    spool.run_torch(TRAINING.replace("WATCH", watch) + "\ntrain(both)\n"
              "for _ in range(3): stepscope.record(labels=[1, 1])")  # fmt: skip
    names = {"0.weight", "Sequential.0.weight"}
    assert names_by_step(spool) == {1: names, 3: names}
    values = read_rows(spool, "tensor_values")
    assert [(row["tensor"], row["value"]) for row in values] == [("labels/train", 2)]


def test_an_option_of_each_kind_together(spool: Spool) -> None:
    """Whole tensors with their elements, an interval of evaluations, and a pattern that matches
    nothing, in one training whose model is watched."""
    code = """
        import torch, stepscope, torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import DTensor, Shard
        from torch.testing._internal.distributed.fake_pg import FakeStore

        class Model(torch.nn.Module):
            def __init__(self, mesh):
                super().__init__()
                part = torch.arange(6.0).reshape(2, 3)
                self.weight = torch.nn.Parameter(DTensor.from_local(part, mesh, [Shard(0)]))
                self.bias = torch.nn.Parameter(torch.ones(3))

            def forward(self, inputs):
                return inputs + self.bias

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        model = Model(init_device_mesh("cpu", (2,)))
        stepscope.watch(
            model, ["weights", "outputs"], patterns=["nothing", "bias"], interval=2,
            evaluation_interval=3, raw=["weight"], joins_shards=True,
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(8):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            with torch.no_grad():
                model(torch.ones(2, 3))
    """
    spool.run_torch(code)
    rows = read_rows(spool, "tensor_statistics")
    steps: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        steps.setdefault((row["mode"], row["tensor"]), []).append(row["step"])
    trained = [0, 2, 4, 6]
    assert {key: sorted(numbers) for key, numbers in steps.items()} == {
        **{("TRAIN", name): trained for name in ("weight", "bias", "model_output/0")},
        ("EVAL", "model_output/0"): [1, 4, 7],
    }
    elements = read_rows(spool, "tensor_elements")
    assert sorted((row["step"], row["shape"]) for row in elements) == [(n, "2x3") for n in trained]
    # The other rank of this process group does not exist.
    facts = spool.drain().facts("sharded_tensors")
    assert {(fact["statistics"], tuple(fact["ranks"])) for fact in facts} == {("shards", (0, 1))}
    notes = spool.drain().notes
    assert any("'nothing' has matched no tensor in 3 recorded steps" in note for note in notes)


def test_a_second_model_does_not_count_what_is_of_the_process_twice(spool: Spool) -> None:
    watch = """
stepscope.watch(generator, "losses")
stepscope.watch(critic, "losses")
"""
    clip = "nn.utils.clip_grad_norm_(both.parameters(), 1.0)"
    training = TRAINING.replace(
        "        for optimizer in", f"        {clip}\n        for optimizer in"
    )
    spool.run_torch(training.replace("WATCH", watch) + "\ntrain(both)")
    scalars = Counter(r.name for r in spool.drain().records if r.table == "scalars")
    names = ("loss/Sum", "gradient_clipping/norm", "gradient_clipping/norm_ratio")
    assert scalars == dict.fromkeys(names, 4)


@pytest.mark.parametrize("has_spool", [False, True], ids=["not recorded", "with --tensors"])
def test_the_command_line_wins_and_without_a_run_nothing_happens(
    spool: Spool, has_spool: bool
) -> None:
    code = TRAINING.replace("WATCH", "stepscope.watch(critic)") + "\ntrain(both)"
    plan = TensorPlan(patterns=("0.0.weight",), interval=1).encode()
    if not has_spool:
        code = 'import os; del os.environ["STEPSCOPE_SPOOL"]\n' + code
    spool.run_torch(code, **{TENSORS_VARIABLE: plan if has_spool else ""})
    expected = {step: {"0.0.weight"} for step in range(4)} if has_spool else {}
    assert names_by_step(spool) == expected


def test_impossible_arguments(spool: Spool) -> None:
    spool.run_torch(
        """
        import torch, stepscope
        from stepscope.errors import UsageError
        model = torch.nn.Linear(2, 2)
        for arguments, text in (
            (dict(model=3), "stepscope.watch records a torch.nn.Module, and this is a int."),
            (dict(model=model, collections="wights"), "stepscope.watch: 'wights' is none of weig"),
            (dict(model=model, patterns=["("]), "'(' is not a regular expression: missing )"),
            (dict(model=model, interval=0), "stepscope.watch: the interval must be at least 1"),
            (dict(model=model, interval="10"), "stepscope.watch: '10' is not a whole number."),
            (dict(model=model, steps=[1.5]), "stepscope.watch: 1.5 is not a whole number."),
        ):
            try:
                stepscope.watch(**arguments)
            except UsageError as error:
                assert text in str(error), error
            else:
                raise AssertionError(arguments)
        """
    )
