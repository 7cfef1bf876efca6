"""Training of a few steps with Accelerate in the way that the first argument names.

It prints each loss, exactly, and the sums of the parameters, so that two runs can be compared.
"""

from __future__ import annotations

import os
import signal
import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 40
BATCH = 4


def say(value: torch.Tensor) -> None:
    """Print a number exactly."""
    os.write(1, f"{value.item().hex()}\n".encode())


def main(way: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=2 if way == "accumulation" else 1
    )
    accelerator.init_trackers("job")
    data = TensorDataset(torch.randn(STEPS * BATCH, 8), torch.randn(STEPS * BATCH, 1))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(data, batch_size=BATCH)
    )
    for number, (inputs, targets) in enumerate(loader):
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        say(loss)
        accelerator.log({"loss": loss.item()})
        if way == "kill" and number == STEPS // 2 - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    accelerator.save_state("state")
    for parameter in model.parameters():
        say(parameter.detach().double().sum())


main(sys.argv[1])
