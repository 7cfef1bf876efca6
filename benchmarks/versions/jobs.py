"""Training of a few steps in the way that its first argument names. Standard library and torch.

It prints each loss, exactly, and the sums of the parameters, so that two runs can be compared.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import nullcontext

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 40
BATCH = 4
SLOW_STEP_S = 0.2


def main(way: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rank = start_ranks() if way in {"ddp", "fsdp"} else 0
    data = TensorDataset(torch.randn(STEPS * BATCH, 8), torch.randn(STEPS * BATCH, 1))
    if way == "by hand":
        train_by_hand(data)
        return
    loader = DataLoader(data, batch_size=BATCH, num_workers=2 if way == "workers" else 0)
    model = wrap(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)), way)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.MSELoss()
    per_step = 2 if way == "accumulation" else 1
    profiler = torch.profiler.profile() if way == "own profiler" else nullcontext()
    with profiler:
        for number, (inputs, targets) in enumerate(loader, 1):
            mixed = torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "amp")
            with mixed:
                loss = criterion(model(inputs), targets) / per_step
            loss.backward()
            if number % per_step == 0:
                optimizer.step()
                optimizer.zero_grad()
            say(rank, loss)
            if way == "slow":
                time.sleep(SLOW_STEP_S)
            if way == "kill" and number == STEPS // 2:
                os.kill(os.getpid(), signal.SIGKILL)
    for parameter in model.parameters():
        say(rank, parameter.detach().double().sum())
    if way in {"ddp", "fsdp"}:
        torch.distributed.destroy_process_group()


def say(rank: int, value: torch.Tensor) -> None:
    """Print a number exactly, in one piece: two ranks may print at once."""
    os.write(1, f"{rank} {value.item().hex()}\n".encode())


def start_ranks() -> int:
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank()


def wrap(model: nn.Module, way: str) -> nn.Module:
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if way == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel

        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    if way == "compile":
        return torch.compile(model, backend="aot_eager")
    return model


def train_by_hand(data: TensorDataset) -> None:
    """Train without modules, optimizers and DataLoaders."""
    weights = torch.randn(8, 1, requires_grad=True)
    inputs, targets = data.tensors
    for number in range(STEPS):
        rows = slice(number * BATCH, (number + 1) * BATCH)
        loss = (inputs[rows] @ weights - targets[rows]).square().mean()
        loss.backward()
        with torch.no_grad():
            weights -= 0.01 * weights.grad
            weights.grad = None
        say(0, loss)
    say(0, weights.detach().sum())


main(sys.argv[1])
