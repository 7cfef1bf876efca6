"""Scale of a GradScaler and clipping of gradients in real trainings."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.spool import TENSORS_VARIABLE, TensorPlan
from tests.conftest import Spool
from tests.unit.capture.test_tensor_recording import PREFACE

TRAINING = """
import hashlib, warnings
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

def clip_value(parameters, limit):
    gradients = [p.grad.clone() for p in parameters]
    clip_grad_value_(iter(parameters), limit)
    elements = torch.cat([g.flatten() for g in gradients])
    return (elements.abs() >= limit).float().mean().item()

def clip_norm(parameters, limit):
    norm = torch.cat([p.grad.flatten() for p in parameters]).norm().item()
    assert abs(clip_grad_norm_(parameters, limit).item() - norm) <= 1e-6 * norm
    return norm

model, other = nn.Linear(3, 2), nn.Linear(2, 1)
optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
unused = torch.amp.GradScaler("cpu", enabled=False)
scales, norms, other_norms, shares = [], [], [], []
for step in range(8):
    optimizer.zero_grad()
    x = torch.full((4, 3), 1.0 + step)
    loss = other(model(x)).square().mean()
    if step in (1, 5, 6):
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    if step not in (1, 5, 6):
        norms.append(clip_norm(list(model.parameters()), torch.tensor(0.5)))
        other_norms.append(clip_norm(list(other.parameters()), 5.0))
        shares.append(clip_value(list(model.parameters()), 0.1))
    scaler.step(optimizer)
    scaler.update()
    unused.update()
    scales.append(scaler.get_scale())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    clip_grad_norm_((p for p in ()), 1.0)
weights = b"".join(p.detach().numpy().tobytes() for p in [*model.parameters(), *other.parameters()])
print(json.dumps({
    "scales": scales, "norms": norms, "other_norms": other_norms, "shares": shares,
    "digest": hashlib.sha256(weights).hexdigest(),
    "warned_in": [entry.filename == __file__ for entry in caught],
}))
"""


def train(spool: Spool, plan: TensorPlan | None) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Run the training, and return what it prints and the recorded scalars by name."""
    text = "" if plan is None else plan.encode()
    done = spool.run_torch(PREFACE + TRAINING, **{TENSORS_VARIABLE: text})
    recorded = defaultdict(list)
    drained = spool.drain()
    assert not drained.notes
    for record in drained.records:
        if record.table == "scalars":
            recorded[record.name].append(record.value)
    return json.loads(done.stdout), recorded


@pytest.mark.parametrize("collection", ["losses", "gradients"])
def test_scales_and_norms_are_those_of_the_script(
    new_spool: Callable[[str], Spool], collection: str
) -> None:
    printed, recorded = train(new_spool("a"), TensorPlan(collections=(collection,), interval=1))
    # Halved at the three steps with infinite gradients, doubled after three finite ones in a row.
    assert printed["scales"] == [64, 32, 32, 32, 64, 32, 16, 16]
    assert recorded["grad_scaler/scale"] == printed["scales"]
    norms, other_norms = printed["norms"], printed["other_norms"]
    *clipped_norms, last_norm = recorded["gradient_clipping/norm"]
    assert clipped_norms == pytest.approx(norms, rel=1e-6)
    assert last_norm == 0  # of the empty list
    assert recorded["gradient_clipping/norm_ratio"][:-1] == pytest.approx(
        [norm / 0.5 for norm in norms], rel=1e-6
    )
    assert recorded["gradient_clipping/norm_ratio#2"] == pytest.approx(
        [norm / 5 for norm in other_norms], rel=1e-6
    )
    assert recorded["gradient_clipping/clipped_ratio"] == pytest.approx(printed["shares"], rel=1e-6)
    assert len(set(printed["shares"])) > 1
    assert printed["warned_in"] == [True]
    alone, recorded = train(new_spool("alone"), None)
    assert not recorded
    assert printed["digest"] == alone["digest"], "results are the same bit for bit"


def test_elements_at_the_limit_are_counted_in_recorded_steps(spool: Spool) -> None:
    printed, recorded = train(spool, TensorPlan(collections=("gradients",), interval=4))
    # A step whose gradients are infinite counts as a step of the process: those of the 8 steps at
    # which the gradients are clipped by value are 0, 2, 3, 4 and 7.
    shares = [printed["shares"][0], printed["shares"][3]]
    assert recorded["gradient_clipping/clipped_ratio"] == pytest.approx(shares, rel=1e-6)


@pytest.mark.parametrize("rank", [0, 1])
def test_only_chosen_ranks_record(spool: Spool, rank: int) -> None:
    plan = TensorPlan(collections=("losses", "gradients"), interval=1, ranks=(1,)).encode()
    spool.run_torch(PREFACE + TRAINING, **{TENSORS_VARIABLE: plan, "RANK": str(rank)})
    names = {record.name for record in spool.drain().records if record.table == "scalars"}
    expected = {"grad_scaler/scale", "gradient_clipping/norm", "gradient_clipping/clipped_ratio"}
    assert names >= expected if rank else not names
