"""Backward passes and predictions of real loops without torch optimizers: every loop takes as many
steps as it should, in the recording and while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stepscope.analysis import Spans, find_steps
from stepscope.spool import Flag

STEPS = 6
SCRIPT = """
import os, stepscope, torch
from torch import nn
from torch.func import functional_call, grad
from stepscope.capture.frameworks.progress import progress

model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
inputs = torch.ones(2, 4)
STEPS, MICRO_BATCHES = 6, 3

def update():
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad

def by_hand():
    for _ in range(STEPS):
        loss = model(inputs).sum()
        model.zero_grad()
        loss.backward()
        update()

def micro_batches():
    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            model(inputs).sum().backward()
        update()
        model.zero_grad()

def micro_batches_through_data():
    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            model(inputs).sum().backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)
            parameter.grad.zero_()

def through_data_only():
    for _ in range(STEPS):
        model(inputs).sum().backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad.data, alpha=-0.1)
            parameter.grad.data.zero_()

def functional():
    parameters = {name: value.detach() for name, value in model.named_parameters()}
    gradient = grad(lambda p: functional_call(model, p, (inputs,)).sum())
    for _ in range(STEPS):
        changes = gradient(parameters)
        parameters = {name: p - 0.1 * changes[name] for name, p in parameters.items()}

def gradients_returned():
    parameters = list(model.parameters())
    for _ in range(STEPS):
        changes = torch.autograd.grad(model(inputs).sum(), parameters)
        with torch.no_grad():
            torch._foreach_add_(parameters, changes, alpha=-0.1)

def plain_tensors():
    weights = torch.ones(4, 1, requires_grad=True)
    for _ in range(STEPS):
        (inputs @ weights).sum().backward()
        weights.data -= 0.1 * weights.grad.data
        weights.grad.data.zero_()

def two_models():
    critic = nn.Linear(1, 1)
    for _ in range(STEPS):
        made = model(inputs)
        critic(made.detach()).sum().backward()
        with torch.no_grad():
            critic.weight -= 0.1 * critic.weight.grad
        critic(made).sum().backward()
        update()

def base_class_without_hooks():
    class Own(torch.optim.Optimizer):
        def __init__(self, parameters):
            self.param_groups = [{"params": list(parameters)}]
        def step(self):
            update()
    optimizer = Own(model.parameters())
    for _ in range(STEPS):
        model(inputs).sum().backward()
        optimizer.step()

def optimizer_of_plain_tensors():
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (inputs @ weight).sum().backward()
        optimizer.step()

def predictions():
    with torch.no_grad():
        for _ in range(STEPS):
            model(inputs)

def predictions_of_batches():
    model.eval()
    for batch in torch.utils.data.DataLoader(torch.ones(STEPS, 4)):
        for _ in range(3):
            model(batch)

def predictions_before_a_training():
    predictions_of_batches()
    model.train()
    by_hand()

def optimizer():
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            model(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

loops = [
    by_hand, micro_batches, micro_batches_through_data, through_data_only, functional,
    gradients_returned, plain_tensors, two_models, base_class_without_hooks, optimizer,
    optimizer_of_plain_tensors, predictions, predictions_of_batches, predictions_before_a_training,
]
for loop in loops:
    child = os.fork()
    if not child:
        with stepscope.annotate(loop.__name__):
            loop()
        stepscope.scalar("steps", progress.step_count)
        os._exit(0)
    os.waitpid(child, 0)
"""
STEP_COUNTS = {
    **dict.fromkeys(
        (
            "by_hand", "through_data_only", "functional", "gradients_returned", "plain_tensors",
            "base_class_without_hooks", "optimizer", "optimizer_of_plain_tensors", "predictions",
            "predictions_before_a_training",
        ),
        STEPS - 1,  # nothing follows the last step
    ),
    # Micro-batches of the first step only are counted apart, each update of two models is counted.
    "micro_batches": STEPS - 1 + 2,
    "micro_batches_through_data": STEPS - 1 + 2,
    "two_models": 2 * STEPS - 1,
    "predictions_of_batches": STEPS,  # the loader is asked for one more batch
}  # fmt: skip
"""Steps that are counted while each loop runs."""
STEP_KINDS = {"forward", "backward", "optimizer", "data_wait"}
PREDICTIONS = {"predictions", "predictions_of_batches"}


@dataclass(frozen=True)
class Loop:
    """Records of one loop, and the steps that it counted while it ran."""

    records: list[Any]
    step_count: int

    def spans(self) -> Spans:
        """Convert the records to the input of analyses."""
        times = {
            field: np.array([getattr(r, field) for r in self.records], dtype=np.int64)
            for field in ("start", "end", "value")
        }
        return Spans.of_columns(
            kind=[r.kind for r in self.records],
            name=[r.name for r in self.records],
            thread=[1] * len(self.records),
            flags=[r.flags for r in self.records],
            unfinished=[False] * len(self.records),
            **times,
        )


@pytest.fixture(scope="module")
def loops(module_spool: Any) -> dict[str, Loop]:
    module_spool.run_torch(SCRIPT)
    recorded = module_spool.drain()
    assert not recorded.notes
    loops = {}
    for loop in recorded.of("annotation"):
        records = [r for r in recorded.records if r.process == loop.process]
        (step_count,) = [int(r.value) for r in records if r.table == "scalars"]
        spans = [r for r in records if r.kind in STEP_KINDS]
        loops[loop.name] = Loop(sorted(spans, key=lambda r: (r.start, r.depth)), step_count)
    return loops


@pytest.mark.parametrize("name", STEP_COUNTS)
def test_every_iteration_is_a_step(loops: dict[str, Loop], name: str) -> None:
    """Optimizer steps end steps where there are any; other passes say that there are none."""
    source = "optimizer" if name.startswith("optimizer") else "backward"
    source = "forward" if name in PREDICTIONS else source
    steps = find_steps(loops[name].spans(), ("step", "optimizer", "backward", "forward"))
    assert steps is not None
    assert (steps.source, len(steps)) == (source, STEPS)
    assert loops[name].step_count == STEP_COUNTS[name]
    flags = {
        r.flags & Flag.NO_OPTIMIZER
        for r in loops[name].records
        if r.kind in {"forward", "backward"}
    }
    assert flags == ({0} if source == "optimizer" else {Flag.NO_OPTIMIZER})
