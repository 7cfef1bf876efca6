"""Thinning of details: how many are recorded, and which."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stepscope.capture.frameworks.pytorch import loading
from stepscope.capture.frameworks.pytorch.loading import (
    ADJUSTMENT_COUNT,
    MAX_EVERY,
    SHARE,
    Thinning,
)

SCRIPT = """
import time, types, torch
from torch.utils.data import DataLoader, Dataset
from stepscope.capture.frameworks.pytorch import loading

loading.time = types.SimpleNamespace(monotonic_ns=time.{clock})

class Numbers(Dataset):
    def __len__(self):
        return {steps} * 32
    def __getitem__(self, index):
        return torch.ones(4), 1.0

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, _ in DataLoader(Numbers(), batch_size=32, num_workers={workers}):
    optimizer.zero_grad()
    model(inputs).sum().backward()
    optimizer.step()
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        pass
"""


def record(thinner: Thinning, clock: list[int], *, interval_ns: int, cost_ns: float) -> list[bool]:
    """Run activities at a constant interval; return which of them were selected."""
    selected = []
    for _ in range(10 * ADJUSTMENT_COUNT):
        is_selected = thinner.select()
        if is_selected:
            thinner.charge(cost_ns)
        selected.append(is_selected)
        clock[0] += interval_ns
    return selected


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [1]
    monkeypatch.setattr(loading.time, "monotonic_ns", lambda: now[0])
    return now


@pytest.mark.seed("SMP-30")
@pytest.mark.parametrize("interval_ns", [200_000, 1_000_000, 5_000_000, 100_000_000])
@pytest.mark.parametrize("cost_ns", [1_000, 40_000, 300_000])
def test_details_cost_at_most_their_share(
    clock: list[int], interval_ns: int, cost_ns: float
) -> None:
    thinner = Thinning()
    selected = record(thinner, clock, interval_ns=interval_ns, cost_ns=cost_ns)
    assert all(selected[:ADJUSTMENT_COUNT]), "the first ones are all recorded"
    settled = selected[2 * ADJUSTMENT_COUNT :]
    needed = cost_ns / (SHARE * interval_ns)
    assert len(settled) / sum(settled) >= min(needed, MAX_EVERY) * 0.99
    assert thinner.detailed_every <= max(1, 2 * needed), "no more is left out than necessary"


def test_details_return_when_the_job_becomes_slower(clock: list[int]) -> None:
    thinner = Thinning()
    record(thinner, clock, interval_ns=500_000, cost_ns=40_000)
    assert thinner.detailed_every == 32
    record(thinner, clock, interval_ns=50_000_000, cost_ns=40_000)
    assert thinner.detailed_every == 1


def run_job(
    spool: Any, *, steps: int, seconds: float, workers: int = 0, clock: str = "monotonic_ns"
) -> tuple[Any, Counter[str]]:
    code = SCRIPT.format(steps=steps, seconds=seconds, workers=workers, clock=clock)
    spool.run_torch(code)
    drained = spool.drain()
    assert not drained.notes
    return drained, Counter(r.kind for r in drained.records if r.table == "spans")


@pytest.mark.parametrize("workers", [0, 1])
def test_tiny_steps_are_exact_and_their_details_thinned(spool: Any, workers: int) -> None:
    steps, clock = 400, "process_time_ns"  # on a busy machine, steps are not tiny by another clock
    drained, counts = run_job(spool, steps=steps, seconds=0, workers=workers, clock=clock)
    for phase in ("forward", "backward", "optimizer"):
        assert counts[phase] == steps
    assert counts["data_wait"] == steps + 1  # the last one finds no batch
    assert {fact["name"] for fact in drained.facts("thinned")} == {"Numbers"}
    assert ADJUSTMENT_COUNT <= counts["samples"] < steps / 2
    assert counts["collate"] == counts["samples"]
    values = [r.value for r in drained.of("fetch")]
    assert sum(value >= 0 for value in values) == counts["samples"]
    assert len(values) == (steps if workers else counts["samples"])


@pytest.mark.extended("records long steps; on a busy machine they must be long")
def test_long_steps_are_recorded_in_detail(spool: Any) -> None:
    steps = 2 * ADJUSTMENT_COUNT + 2
    drained, counts = run_job(spool, steps=steps, seconds=0.05)
    assert not drained.facts("thinned")
    assert counts["fetch"] == counts["samples"] == counts["collate"] == steps
